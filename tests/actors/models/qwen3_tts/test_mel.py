import runpy
from pathlib import Path

import numpy as np
import pytest

from omnirt.actors.models.qwen3_tts.mel import BANDS, FFT, FLOOR, HOP, log_mel, mel_filters

torch = pytest.importorskip("torch")

PARITY = Path(__file__).parents[3] / "parity" / "qwen_clone_reference.py"


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Models this small lose time to more."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def reference():
    return runpy.run_path(str(PARITY))


@pytest.fixture(scope="module")
def golden(reference):
    with np.load(reference["GOLDEN"]) as arrays:
        return dict(arrays)


def mel_of(samples):
    window = torch.hann_window(FFT)
    return log_mel(torch.from_numpy(samples), torch.from_numpy(mel_filters()), window).numpy()


def test_the_filters_are_those_of_the_reference(golden):
    wanted = np.zeros(BANDS * (FFT // 2 + 1), np.float32)
    wanted[golden["filter_at"]] = golden["filter_values"]
    assert np.abs(mel_filters() - wanted.reshape(BANDS, -1)).max() < 1e-5


def test_the_spectrogram_is_that_of_the_reference(reference, golden):
    found = mel_of(reference["recording"](12_001, seed=2))
    assert found.shape == golden["mel"].shape
    assert np.abs(found - golden["mel"]).max() < 1e-5


def test_a_tone_is_loudest_in_the_band_that_holds_it():
    tone = (0.5 * np.sin(2 * np.pi * 1000.0 * np.arange(24_000) / 24_000)).astype(np.float32)
    loudest = mel_of(tone).mean(axis=0).argmax()
    assert mel_filters()[loudest].argmax() == round(1000.0 / 24_000 * FFT)


def test_silence_is_the_floor_and_there_is_a_frame_for_each_hop():
    found = mel_of(np.zeros(12_000, np.float32))
    assert found.shape == (12_000 // HOP, BANDS)
    assert np.isfinite(found).all()
    assert found.max() < np.log(FLOOR) + 1.0
