"""Streaming equals one-shot, lengths are exact, pitch stays."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnirt.kernels.time_stretch import REACH, TOLERANCE, WINDOW, TimeStretch, correlation, reference

RATE = 24_000


def speechlike(samples, seed=0):
    noise = np.random.default_rng(seed).standard_normal(samples)
    x = 0.3 * np.sin(np.arange(samples) * 2 * np.pi * 200 / RATE) + 0.05 * noise
    x[samples // 4 : samples // 3] = 0
    return x.astype(np.float32)


def streamed(x, ratio, sizes):
    stretch, parts, at = TimeStretch(ratio), [], 0
    for size in sizes:
        parts.append(stretch.feed(x[at : at + size]))
        at += size
    return np.concatenate([*parts, stretch.feed(x[at:]), stretch.flush()])


@given(
    st.integers(0, 9000), st.floats(0.5, 4.0), st.lists(st.integers(0, 3000), max_size=12), st.integers(0, 2**32 - 1)
)
@settings(max_examples=60, deadline=None)
def test_blocks_of_any_size_give_the_reference_sample_for_sample(samples, ratio, sizes, seed):
    x = speechlike(samples, seed)
    assert TOLERANCE == 0.0
    np.testing.assert_array_equal(streamed(x, ratio, sizes), reference(x, ratio))


@pytest.mark.parametrize("ratio", [0.5, 1.0, 1.25, 2.0, 4.0])
def test_the_length_is_the_asked_for_one_to_the_sample(ratio):
    assert len(reference(speechlike(30_011), ratio)) == round(30_011 / ratio)


def test_a_tone_keeps_its_pitch_and_its_loudness():
    tone = np.sin(np.arange(RATE) * 2 * np.pi * 220 / RATE).astype(np.float32)
    fast = reference(tone, 2.0)[1000:-1000]
    spectrum = np.abs(np.fft.rfft(fast * np.hanning(len(fast)), RATE))
    assert abs(int(np.argmax(spectrum)) - 220) <= 2
    assert abs(np.sqrt(np.mean(fast**2)) - np.sqrt(0.5)) < 0.05


def test_at_ratio_one_the_signal_is_itself():
    x = speechlike(5000)
    np.testing.assert_allclose(reference(x, 1.0), x, atol=1e-6)


def test_silence_stays_silence():
    assert not reference(np.zeros(5000, np.float32), 1.7).any()


def test_correlation_by_fft_is_the_plain_one():
    x = speechlike(WINDOW + 2 * REACH).astype(np.float64)
    np.testing.assert_allclose(correlation(x, x[:WINDOW]), np.correlate(x, x[:WINDOW], "valid"), atol=1e-9)


def test_memory_does_not_grow_with_the_stream():
    stretch = TimeStretch(3.0)
    for _ in range(50):
        stretch.feed(speechlike(6000))
    assert len(stretch._x) < 6000
