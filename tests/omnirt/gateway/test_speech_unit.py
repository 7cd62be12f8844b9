"""How text reaches the pipeline as it comes."""

import pytest

from omnirt.errors import Cancelled
from omnirt.gateway.speech_pipeline import Voicing
from omnirt.gateway.speech_request import SpeechRequest
from omnirt.gateway.speech_unit import FURTHER_PIECES, PROMPT_PIECES, Unit
from omnirt.gateway.stream_settings import Settings

SETTINGS = Settings(Voicing(SpeechRequest(), {}), 24_000)


class Heard:
    """A live request that writes down what it is told."""

    def __init__(self, over=False):
        self.pieces = []
        self.ends = 0
        self.cancels = 0
        self.over = over

    def extend(self, modality, payload):
        if self.over:
            raise Cancelled("over")
        assert modality == "text"
        assert self.ends == 0
        self.pieces.append(payload.text)

    def end_input(self):
        if self.over:
            raise Cancelled("over")
        self.ends += 1

    def cancel(self, reason):
        self.cancels += 1


def unit(text="a", chars_max=4096):
    return Unit(0, 0, SETTINGS, text, chars_max)


def test_what_came_before_the_request_is_in_it_and_what_comes_later_follows():
    spoken, live = unit("one "), Heard()
    spoken.add("two ")
    spoken.attach(live, len("one two "))
    assert live.pieces == []
    spoken.add("three")
    spoken.finish()
    assert (live.pieces, live.ends, spoken.text) == (["three"], 1, "one two three")


def test_what_came_while_the_request_was_made_follows_too():
    spoken, live = unit("one "), Heard()
    given = len(spoken.text)
    spoken.add("two")
    spoken.finish()
    spoken.attach(live, given)
    assert (live.pieces, live.ends) == (["two"], 1)


def test_a_request_gets_a_bounded_number_of_pieces_and_all_of_the_text():
    spoken, live = unit(""), Heard()
    spoken.attach(live, 0)
    for index in range(4096):
        spoken.add(str(index % 10))
    spoken.finish()
    assert "".join(live.pieces) == spoken.text
    assert live.pieces[:PROMPT_PIECES] == list(spoken.text[:PROMPT_PIECES])
    assert len(live.pieces) <= PROMPT_PIECES + FURTHER_PIECES + 1


@pytest.mark.parametrize("late", [False, True])
def test_a_unit_that_is_given_up_ends_its_request(late):
    spoken, live = unit(), Heard()
    if late:
        spoken.attach(live, 1)
    spoken.abort()
    if not late:
        spoken.attach(live, 1)
    assert live.cancels == 1
    assert live.pieces == []


def test_text_for_a_request_that_is_over_is_for_another_one():
    spoken, live = unit("a "), Heard(over=True)
    spoken.attach(live, 2)
    spoken.add(" b")
    spoken.finish()
    spoken.detach()
    assert (spoken.text, spoken.spoken, spoken.is_whole) == ("a  b", "a ", True)
    assert spoken.goes_on(has_failed=False)
    assert (spoken.text, spoken.is_further, spoken.is_over) == ("b", True, False)
    later = Heard()
    spoken.attach(later, 1)
    assert (later.pieces, later.ends) == ([], 1)
    spoken.detach()
    assert not spoken.goes_on(has_failed=False)
    assert (spoken.is_over, spoken.has_failed) == (True, False)


@pytest.mark.parametrize(("text", "failed"), [("", False), (" \n", False), ("more", True)])
def test_a_unit_does_not_go_on_for_blanks_or_behind_a_failure(text, failed):
    spoken = unit("a")
    spoken.attach(Heard(over=True), 1)
    spoken.add(text)
    spoken.detach()
    assert not spoken.goes_on(has_failed=failed)
    assert (spoken.is_over, spoken.has_failed) == (True, failed)
