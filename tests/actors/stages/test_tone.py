import numpy as np
import pytest

from omnirt.actors.stages.tone import AMPLITUDE, Tone, ToneOptions, sine
from omnirt.runtime.stage import Chunk, Context, Request
from omnirt.wire.payload import Text


def context():
    return Context("tone", "cpu", 0, 1, print)


def opened(stage, text="", **params):
    row = Request(1, "req_1", 0, params, 0)
    stage.admit(context(), Chunk(row, "text", Text(text), 0))
    assert stage.step(context(), [row]) == []
    stage.close(context(), row)
    return row


def frames(stage, row):
    got = []
    while True:
        (emission,) = stage.step(context(), [row])
        got += [emission.payload.samples] if emission.payload else []
        if emission.end:
            return got


@pytest.mark.parametrize(
    ("text", "params", "frequency", "seconds"),
    [
        ("523 Hz for 2.5 s", {}, 523, 2.5),
        ("hello", {"frequency": 880, "seconds": 0.07}, 880, 0.07),
        ("hello", {}, 440, 1.0),
        ("50hz", {"seconds": 0.011}, 50, 0.011),
    ],
)
def test_the_frames_joined_are_one_unbroken_tone(text, params, frequency, seconds):
    stage = Tone(ToneOptions(frame_ms=20))
    got = frames(stage, opened(stage, text, **params))
    joined = np.concatenate(got)
    np.testing.assert_array_equal(joined, sine(frequency, 0, round(seconds * 24000), 24000))
    assert {len(part) for part in got[:-1]} <= {480}


def test_the_phase_is_exact_far_into_a_stream():
    np.testing.assert_array_equal(sine(440, 24000 * 3600, 100, 24000), sine(440, 0, 100, 24000))
    assert np.abs(sine(440, 0, 24000, 24000)).max() == AMPLITUDE


def test_a_tone_of_no_length_ends_without_a_frame():
    stage = Tone(ToneOptions(seconds=0.0))
    assert frames(stage, opened(stage)) == []


def test_the_gateway_is_told_the_rate():
    assert Tone(ToneOptions(rate=16000)).facts()["sample_rate"] == 16000
