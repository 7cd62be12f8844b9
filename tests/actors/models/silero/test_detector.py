"""When speech starts and ends, told by a network that takes loudness for likelihood."""

import numpy as np
import pytest

from omnirt.actors.models.silero.detector import Detector, Sensitivity, SpeechEnded, SpeechStarted
from omnirt.actors.models.silero.network import WINDOW


class Loudness:
    """The mean of a window is how likely it holds speech."""

    def judge(self, samples, memory):
        return samples.reshape(-1, WINDOW).mean(axis=1)


PLAIN = Sensitivity(threshold=0.5, speech_s=0.096, silence_s=0.064, pad_s=0.032)
"""Three windows of speech, two of silence, one of padding."""


def sound(*likely):
    return np.repeat(np.asarray(likely, np.float32), WINDOW)


def detect(samples, sensitivity=PLAIN, cuts=()):
    detector = Detector(Loudness(), sensitivity)
    events = [event for piece in np.split(samples, cuts) for event in detector.feed(piece)]
    return events + detector.end()


def windows(events):
    """Places in windows."""
    return [(type(event).__name__.removeprefix("Speech").lower(), event.at / WINDOW) for event in events]


def test_speech_starts_a_pad_before_its_first_window_and_ends_a_pad_behind_its_last():
    events = detect(sound(0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0))
    assert windows(events) == [("started", 2), ("ended", 8)]


def test_a_start_is_said_as_soon_as_it_is_long_enough_and_an_end_once_it_was_quiet():
    detector = Detector(Loudness(), PLAIN)
    said = [[type(event) for event in detector.feed(sound(level))] for level in (0, 1, 1, 1, 1, 0, 0, 0)]
    assert said == [[], [], [], [SpeechStarted], [], [], [SpeechEnded], []]


def test_what_is_shorter_is_no_speech():
    assert detect(sound(0, 1, 1, 0, 0, 0, 1, 1, 0, 0)) == []


def test_a_short_silence_is_part_of_speech():
    assert windows(detect(sound(0, 1, 1, 0, 1, 1, 0, 0, 0))) == [("started", 0), ("ended", 7)]


def test_between_the_thresholds_things_stay_as_they_are():
    assert windows(detect(sound(0, 0.4, 0.4, 1, 0.4, 0.4, 0.4, 0, 0))) == [("started", 2), ("ended", 8)]
    assert detect(sound(0.4, 0.4, 0.4, 0.4, 0.4)) == []


def test_speech_up_to_the_end_ends_with_the_recording():
    whole = sound(0, 1, 1, 1, 1)
    assert [event.at for event in detect(whole[:-100])] == [0, len(whole) - 100]


def test_padding_never_reaches_into_the_speech_before():
    long_pad = Sensitivity(threshold=0.5, speech_s=0.032, silence_s=0.032, pad_s=0.32)
    events = detect(sound(0, 1, 1, 1, 0, 1, 1, 0, 0), long_pad)
    assert windows(events) == [("started", 0), ("ended", 5), ("started", 5), ("ended", 8)]


def test_long_speech_is_cut_where_it_was_least_likely():
    limited = Sensitivity(threshold=0.5, speech_s=0.032, silence_s=0.064, pad_s=0.0, speech_max_s=0.32)
    events = detect(sound(0, 1, 0.6, 1, 1, 1, 1, 0.7, 1, 1, 1, 1, 1, 0, 0), limited)
    assert windows(events) == [("started", 1), ("ended", 8), ("started", 8), ("ended", 13)]


def test_no_stretch_is_longer_than_the_limit():
    random = np.random.default_rng(5)
    limited = Sensitivity(speech_s=0.032, speech_max_s=1.0)
    events = detect(sound(*(0.5 + random.random(400) / 2)), limited)
    pairs = list(zip(events[::2], events[1::2], strict=True))
    assert len(pairs) > 12
    assert all(0 < stop.at - start.at <= 16_000 for start, stop in pairs)


@pytest.mark.parametrize("seed", range(20))
def test_events_do_not_depend_on_how_the_samples_were_cut(seed):
    random = np.random.default_rng(seed)
    samples = sound(*np.repeat(random.random(60), random.integers(1, 12, 60)))[: -random.integers(1, 500)]
    sensitivity = Sensitivity(speech_max_s=1.0 if seed % 2 else 0.0)
    whole = detect(samples, sensitivity)
    assert whole
    cuts = np.sort(random.integers(0, len(samples), 40))
    assert detect(samples, sensitivity, cuts) == whole


@pytest.mark.parametrize("seed", range(10))
def test_no_start_is_said_before_what_was_called_clear(seed):
    random = np.random.default_rng(seed)
    detector, clear = Detector(Loudness(), Sensitivity(pad_s=0.2)), 0
    starts = 0
    for level in np.repeat(random.random(100), random.integers(1, 9, 100)):
        for event in detector.feed(sound(level)):
            if isinstance(event, SpeechStarted):
                starts += 1
                assert event.at >= clear
        if not detector.speaking:
            assert detector.clear_until >= clear
            clear = detector.clear_until
    assert starts > 3
