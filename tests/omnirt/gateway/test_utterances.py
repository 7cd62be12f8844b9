"""What each message means, as tables."""

import json

import pytest

from omnirt.gateway.utterances import (
    Abort,
    Begin,
    Bounds,
    Close,
    Complain,
    Configure,
    Flush,
    Lost,
    More,
    Utterances,
    Whole,
)

BOUNDS = Bounds(chars_max=20, config_bytes_max=400, text_bytes_max=200)
BAD = Complain("no such voice", param="voice")


def set_up(granularity="none"):
    machine = Utterances(BOUNDS)
    machine.configured(granularity)
    return machine


def say(machine, kind, **fields):
    return machine.received(json.dumps({"type": kind, **fields}).encode())


def text(machine, value):
    return say(machine, "input.text", text=value)


def code(effects):
    assert isinstance(effects[0], Complain)
    return effects[0].code


def test_an_utterance_from_its_first_word_to_its_end():
    machine = set_up()
    assert text(machine, "") == []
    assert text(machine, "  ") == []
    assert text(machine, " hello ") == [Begin(0, 0, "hello ")]
    assert text(machine, "world.") == [More("world.")]
    assert text(machine, " Bye.") == [More(" Bye.")]
    assert say(machine, "input.done") == [Whole(), Flush(0, 1)]
    assert text(machine, "next") == [Begin(1, 0, "next")]
    assert say(machine, "input.done") == [Whole(), Flush(1, 1)]


def test_an_utterance_without_text_ends_too():
    machine = set_up()
    assert say(machine, "input.done") == [Flush(0, 0)]
    text(machine, " \n")
    assert say(machine, "input.done") == [Flush(1, 0)]


def test_sentences_are_units_of_their_own():
    machine = set_up("sentence")
    assert text(machine, "One. Two") == [Begin(0, 0, "One."), Whole(), Begin(0, 1, "Two")]
    assert text(machine, ".") == [More(".")]
    assert text(machine, " ") == [Whole()]
    assert say(machine, "input.done") == [Flush(0, 2)]
    assert text(machine, "Three") == [Begin(1, 0, "Three")]


def test_settings_come_first_and_between_utterances():
    machine = Utterances(BOUNDS)
    assert code(text(machine, "hello")) == "invalid_value"
    assert not machine.is_set
    assert say(machine, "session.config", voice="a") == [Configure({"voice": "a"})]
    machine.configured("none")
    assert machine.is_set
    text(machine, "hello")
    assert code(say(machine, "session.config", voice="b")) == "invalid_value"
    assert text(machine, " you") == [More(" you")], "the utterance is not spoilt by it"
    say(machine, "input.done")
    assert say(machine, "session.config", voice="b") == [Configure({"voice": "b"})]


def test_bad_settings_are_said_once_and_spoil_every_utterance_until_good_ones_come():
    machine = set_up()
    assert machine.misconfigured(BAD) == [BAD]
    for index in range(2):
        assert text(machine, "hello") == []
        assert text(machine, "you") == []
        assert say(machine, "input.done") == [Flush(index, 0, error=True)]
    assert say(machine, "input.done") == [Flush(2, 0)], "nothing was to be spoken"
    machine.configured("none")
    assert text(machine, "hello") == [Begin(3, 0, "hello")]


@pytest.mark.parametrize("value", [None, 3, ["a"], "x" * 300])
def test_what_is_wrong_with_a_text_spoils_its_utterance_alone(value):
    machine = set_up()
    text(machine, "hello")
    complaint, abort = text(machine, value)
    assert isinstance(complaint, Complain)
    assert abort == Abort()
    assert text(machine, "more") == []
    assert say(machine, "input.done") == [Flush(0, 1, error=True)]
    assert text(machine, "hello") == [Begin(1, 0, "hello")]


def test_a_text_that_is_too_long_is_not_spoken_in_part():
    machine = set_up()
    assert text(machine, "x" * 20) == [Begin(0, 0, "x" * 20)]
    assert [type(effect) for effect in text(machine, "x")] == [Complain, Abort]
    assert say(machine, "input.done") == [Flush(0, 1, error=True)]
    assert [type(effect) for effect in text(machine, "x" * 21)] == [Complain]
    assert say(machine, "input.done") == [Lost(1, 0), Flush(1, 1, error=True)]


def test_of_sentences_those_before_the_one_that_is_too_long_are_spoken():
    machine = set_up("sentence")
    effects = text(machine, f"One. {'x' * 21}. Three.")
    assert effects[:2] == [Begin(0, 0, "One."), Whole()]
    assert isinstance(effects[2], Complain)
    assert len(effects) == 3
    assert say(machine, "input.done") == [Lost(0, 1), Flush(0, 2, error=True)]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "invalid_json"),
        (b"{", "invalid_json"),
        (b"[]", "invalid_json"),
        (b'"input.done"', "invalid_json"),
        (b"\xff\xfe", "invalid_json"),
        (b"[" * 100_000, "invalid_json"),
        (b"{}", "unknown_event"),
        (b'{"type": 3}', "unknown_event"),
        (b'{"type": "input.cancel"}', "unknown_event"),
    ],
)
def test_what_is_no_message_is_refused_and_changes_nothing(data, expected):
    machine = set_up()
    text(machine, "hello")
    assert code(machine.received(data)) == expected
    assert code(machine.binary()) == "invalid_json"
    assert text(machine, "!") == [More("!")]


def test_each_kind_of_message_has_its_own_limit():
    machine = set_up()
    assert say(machine, "session.config", ref_audio="x" * 300) == [Configure({"ref_audio": "x" * 300})]
    assert code(say(machine, "session.config", ref_audio="x" * 500)) == "request_too_large"
    assert text(machine, "hello") == [], "the settings that were asked for are not there"
    assert code(say(machine, "session.close", reason="x" * 300)) == "request_too_large"


def test_closing_gives_up_what_is_not_finished():
    machine = set_up()
    assert say(machine, "session.close") == [Close()]
    text(machine, "hello")
    assert say(machine, "session.close") == [Abort(), Close()]
