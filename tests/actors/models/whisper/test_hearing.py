"""Which attempts are made at an utterance, told by a model that answers what it is told to."""

import numpy as np
import pytest

from omnirt.actors.models.whisper.hearing import Hearing
from omnirt.actors.models.whisper.model import FULL_S, RATE, Decoded, Encoded, Wish
from omnirt.actors.models.whisper.stretches import Reading, Stretch
from omnirt.wire.payload import Word

WISH = Wish("en", temperatures=(0.0, 0.4, 0.8))


def decoded(*spans, stop_s=None, logprob=-0.3, no_speech=0.0, compression=1.0, broken=False, beyond=False, cut=False):
    """Spans are (start, stop); the text of a stretch is its place among them."""
    stretches = [Stretch(start, stop, (at,)) for at, (start, stop) in enumerate(spans)]
    stop_s = stop_s if stop_s is not None else max((stop for _, stop in spans), default=0.0)
    reading = Reading(stretches, stop_s, broken, beyond)
    return Decoded((1, 2), reading, 0.0, logprob, no_speech, compression, cut)


class Model:
    """Gives the answers in turn, and notes what it was asked."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.encoded = []
        self.temperatures = []

    def encode(self, samples, window_s):
        self.encoded.append((len(samples) / RATE, window_s))
        return Encoded(None, len(samples) / RATE, window_s)

    def language(self, encoded):
        return "fr"

    def decode(self, encoded, wish, temperature, tokens_max):
        self.temperatures.append(temperature)
        return self.answers.pop(0)._replace(temperature=temperature)

    def text(self, tokens, wish):
        return f" said {tokens[0]}"

    def words(self, encoded, texts, wish):
        return [[Word(f" said {tokens[0]}", 0.5, 0.9, 1.0)] for tokens in texts]


def hear(seconds, *answers, wish=WISH):
    """The segments, and the model afterwards."""
    model, hearing = Model(*answers), Hearing(np.zeros(round(seconds * RATE), np.int16), wish)
    segments = []
    while not hearing.over:
        segments += hearing.attempt(model)
    assert not model.answers
    return segments, model


def test_a_clear_utterance_takes_one_short_window():
    segments, model = hear(3.0, decoded((0.0, 1.0), (1.2, 2.9)))
    assert [(s.text, s.start_s, s.stop_s) for s in segments] == [(" said 0", 0.0, 1.0), (" said 1", 1.2, 2.9)]
    assert model.encoded == [(3.0, 10.0)]


@pytest.mark.parametrize(("seconds", "window_s"), [(0.3, 10.0), (6.0, 10.0), (8.0, 12.0), (25.0, 29.0), (27.0, 30.0)])
def test_a_window_ends_well_behind_the_sound(seconds, window_s):
    _, model = hear(seconds, decoded((0.0, seconds)))
    assert model.encoded == [(seconds, window_s)]


@pytest.mark.parametrize("fault", [{"cut": True}, {"beyond": True}, {"compression": 5.0}])
def test_one_that_does_not_know_where_to_stop_is_heard_in_a_full_window(fault):
    segments, model = hear(3.0, decoded((0.0, 3.0), **fault), decoded((0.0, 2.0)))
    assert [window for _, window in model.encoded] == [10.0, FULL_S]
    assert model.temperatures == [0.0, 0.0]
    assert [segment.stop_s for segment in segments] == [2.0]


def test_doubt_raises_the_temperature_until_there_is_none():
    segments, model = hear(3.0, decoded((0.0, 1.0), logprob=-1.5), decoded((0.0, 2.0), logprob=-0.8))
    assert model.temperatures == [0.0, 0.4]
    assert len(model.encoded) == 1
    assert (segments[0].stop_s, segments[0].of.temperature) == (2.0, 0.4)


def test_when_doubt_stays_the_likeliest_is_taken():
    doubtful = [decoded((0.0, stop), logprob=logprob) for stop, logprob in ((1.0, -1.9), (2.0, -1.2), (3.0, -1.5))]
    segments, model = hear(3.0, *doubtful)
    assert model.temperatures == [0.0, 0.4, 0.8]
    assert [segment.stop_s for segment in segments] == [2.0]


def test_a_text_that_repeats_itself_is_the_last_choice():
    loud = decoded((0.0, 27.0), compression=9.0, logprob=-0.1)
    segments, _ = hear(28.0, loud, decoded((0.0, 26.0), logprob=-2.0), loud)
    assert [segment.stop_s for segment in segments] == [26.0]


def test_an_explicit_temperature_is_the_only_one():
    _, model = hear(3.0, decoded((0.0, 1.0), logprob=-3.0), wish=Wish("en", temperatures=(0.7,)))
    assert model.temperatures == [0.7]


def test_silence_is_no_text():
    segments, model = hear(3.0, decoded((0.0, 2.0), no_speech=0.7, logprob=-1.3, cut=True))
    assert segments == []
    assert model.temperatures == [0.0]


def test_clear_words_count_though_silence_was_likely():
    assert len(hear(3.0, decoded((0.0, 2.0), no_speech=0.8, logprob=-0.3))[0]) == 1


def test_fluent_words_do_not_count_where_silence_is_sure():
    assert hear(3.0, decoded((0.0, 2.0), no_speech=0.9, logprob=-0.1))[0] == []


def test_what_was_broken_off_goes_on_in_the_next_window():
    segments, model = hear(10.0, decoded((0.0, 6.0), broken=True), decoded((0.0, 4.0)))
    assert [(s.start_s, s.stop_s) for s in segments] == [(0.0, 6.0), (6.0, 10.0)]
    assert [seconds for seconds, _ in model.encoded] == [10.0, 4.0]


def test_a_short_rest_is_not_gone_back_to():
    assert len(hear(10.0, decoded((0.0, 9.2), broken=True))[0]) == 1


def test_much_that_was_left_out_is_heard_again():
    segments, _ = hear(12.0, decoded((0.0, 5.0)), decoded((0.0, 7.0)))
    assert [(s.start_s, s.stop_s) for s in segments] == [(0.0, 5.0), (5.0, 12.0)]


def test_windows_always_get_on():
    segments, model = hear(20.0, decoded((0.0, 0.5), broken=True))
    assert len(segments) == 1
    assert len(model.encoded) == 1


def test_the_language_is_found_out_when_none_was_named():
    model, hearing = Model(decoded((0.0, 1.0))), Hearing(np.zeros(RATE, np.int16), Wish())
    hearing.attempt(model)
    assert hearing.wish.language == "fr"


def test_words_give_a_segment_its_times():
    wish = WISH._replace(words=True)
    segments, _ = hear(10.0, decoded((0.0, 6.0), broken=True), decoded((0.0, 4.0)), wish=wish)
    assert [(s.start_s, s.stop_s) for s in segments] == [(0.5, 0.9), (6.5, 6.9)]
    assert segments[1].words == (Word(" said 0", 6.5, 6.9, 1.0),)
