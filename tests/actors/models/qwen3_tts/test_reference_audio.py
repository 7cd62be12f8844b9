import runpy
from pathlib import Path

import numpy as np
import pytest

from omnirt.actors.models.qwen3_tts.reference_audio import RATE_MAX, RATE_MIN, Recording, heard, resampled
from omnirt.errors import InvalidRequest

PARITY = Path(__file__).parents[3] / "parity" / "qwen_clone_reference.py"


@pytest.fixture(scope="module")
def reference():
    return runpy.run_path(str(PARITY))


def tone(hertz, rate, seconds=1.0, level=0.5):
    return (level * np.sin(2 * np.pi * hertz * np.arange(round(rate * seconds)) / rate)).astype(np.float32)


def of(*pieces, rate=24_000, seconds_min=0.5, seconds_max=30.0):
    recording = Recording(seconds_min, seconds_max)
    for piece in pieces:
        recording.add(piece, rate)
    return recording


def refusal(make):
    with pytest.raises(InvalidRequest) as caught:
        make()
    assert caught.value.param == "ref_audio"
    return caught.value.message


def test_a_recording_is_the_same_however_it_was_cut():
    samples = tone(220, 24_000)
    cut = of(*np.split(samples, [1, 7_000, 7_001]))
    assert np.array_equal(cut.samples(), samples)
    assert cut.seconds == 1.0


def test_pieces_are_copied_because_their_memory_is_only_lent():
    piece = tone(220, 24_000)
    recording = of(piece)
    wanted = piece.copy()
    piece[:] = 0
    assert np.array_equal(recording.samples(), wanted)


def test_all_channels_become_one():
    left, right = tone(220, 24_000), tone(330, 24_000)
    both = np.stack([left, right], axis=1)
    assert np.allclose(of(both).samples(), (left + right) / 2, atol=1e-6)
    found = of((both * 32_767).astype(np.int16)).samples()
    assert found.dtype == np.int16
    assert np.abs(found / 32_768 - (left + right) / 2).max() < 1e-4


def test_too_short_too_long_and_silent_recordings_are_refused_with_the_limit():
    assert "at least 0.5 s" in refusal(lambda: of(tone(220, 24_000, 0.49)).samples())
    assert "at least 0.5 s" in refusal(lambda: Recording(0.5, 30.0).samples())
    assert "longer than 2 s" in refusal(lambda: of(tone(220, 24_000, 2.01), seconds_max=2.0))
    assert "silent" in refusal(lambda: of(np.zeros(24_000, np.int16)).samples())
    assert "silent" in refusal(lambda: of(np.full(24_000, 0.25, np.float32)).samples())
    assert "silent" in refusal(lambda: of(tone(220, 24_000, level=0.001)).samples())


def test_a_recording_of_hours_holds_no_more_memory_than_the_limit():
    recording = of(tone(220, 24_000, 1.5), seconds_max=2.0)
    for _ in range(3):
        assert "longer than 2 s" in refusal(lambda: recording.add(tone(220, 24_000, 1.0), 24_000))
    assert not recording._pieces


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_samples_that_are_no_numbers_are_refused(value):
    samples = tone(220, 24_000)
    samples[17] = value
    assert "no numbers" in refusal(lambda: of(samples).samples())


def test_floating_point_samples_that_are_not_in_their_range_are_refused():
    assert "-1 to 1" in refusal(lambda: of(tone(220, 24_000, level=20_000.0)).samples())
    assert len(of(tone(220, 24_000, level=1.2)).samples()) == 24_000


@pytest.mark.parametrize("rate", [0, -24_000, RATE_MIN - 1, RATE_MAX + 1, 1 << 40])
def test_rates_that_no_recording_has_are_refused(rate):
    assert "rate" in refusal(lambda: of(tone(220, 24_000), rate=rate))


def test_a_rate_or_a_clip_that_changes_on_the_way_is_refused():
    recording = of(tone(220, 24_000))
    assert "24000 to 16000" in refusal(lambda: recording.add(tone(220, 16_000), 16_000))
    assert "from one recording" in refusal(lambda: recording.add(tone(220, 24_000), 24_000, clip=1))


@pytest.mark.parametrize("samples", [np.zeros(9, np.float64), np.zeros(9, "U1"), np.zeros((9, 0), np.int16)])
def test_samples_of_another_kind_are_refused(samples):
    assert "int16 or float32" in refusal(lambda: of(samples))


def test_resampling_agrees_with_the_reference_but_for_the_ends(reference):
    """Which has another filter of the same passband, and other ideas of what is beyond the ends."""
    with np.load(reference["GOLDEN"]) as golden:
        for rate in reference["RATES"]:
            samples = reference["recording"](round(rate * reference["RESAMPLED_S"]), rate, seed=rate)
            found, wanted = resampled(samples, rate, 24_000), golden[f"resampled_{rate}"]
            assert found.shape == wanted.shape
            assert found.dtype == np.float32
            middle = slice(100, -100)
            assert np.abs(found - wanted)[middle].max() < 0.01, rate


@pytest.mark.parametrize("rate", [8_000, 11_025, 16_000, 22_050, 22_051, 44_100, 48_000, 96_000, 192_000])
def test_a_tone_stays_the_tone_it_was(rate):
    hertz = 440.0
    found = heard(tone(hertz, rate), rate)
    assert abs(len(found) - 24_000) <= 1
    wanted = tone(hertz, 24_000, len(found) / 24_000)
    assert np.abs(found - wanted)[600:-600].max() < 1e-3


def test_what_the_lower_rate_cannot_hold_is_gone():
    above = heard(tone(15_000, 48_000), 48_000)
    assert np.abs(above[600:-600]).max() < 1e-3


def test_the_end_of_a_recording_does_not_sound_at_its_beginning():
    samples = np.zeros(48_000, np.float32)
    samples[-2_000:] = tone(440, 48_000, 2_000 / 48_000)
    assert np.abs(heard(samples, 48_000)[:2_000]).max() < 1e-3


def test_integers_are_heard_at_the_level_they_have():
    samples = (tone(440, 24_000) * 32_768).astype(np.int16)
    assert np.array_equal(heard(samples, 24_000), samples / np.float32(32_768))
