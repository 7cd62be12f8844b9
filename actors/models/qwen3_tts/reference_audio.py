"""A recording as it came from a client, made into what the encoders hear: mono, 24 kHz, float32 in -1..1.

What is wrong with a recording is said here, with the field and the limit. Resampling is by spectrum: linear phase, flat
to 0.9 of the lower Nyquist frequency and rolled off to it, for any pair of rates; the reference implementation has a
polyphase filter of the same passband, and the two agree to 1e-3 of full scale on sound with the spectrum of speech.
"""

from __future__ import annotations

import math

import numpy as np

from omnirt.actors.models.qwen3_tts.mel import RATE
from omnirt.errors import InvalidRequest

PARAM = "ref_audio"
RATE_MIN, RATE_MAX = 8_000, 192_000
LEVEL_MAX = 4.0
"""Floating-point samples beyond are no sound in -1..1."""
SILENCE = 0.003
"""The highest peak of silence: 50 dB below full scale."""
PASSBAND = 0.9
"""Of the lower Nyquist frequency."""
EDGE_S = 0.05
"""Of zeros behind the recording, since a spectrum takes its end and its beginning for neighbours."""


class Recording:
    """The pieces of one request's recording, as they arrive. Refuses a piece as soon as the limit is passed, so that a
    longer recording costs no more than one of the allowed length."""

    def __init__(self, seconds_min: float, seconds_max: float) -> None:
        self._seconds_min = seconds_min
        self._seconds_max = seconds_max
        self._pieces: list[np.ndarray] = []
        self._length = 0
        self._clip: int | None = None
        self.rate = 0

    def add(self, samples: np.ndarray, rate: int, clip: int = 0) -> None:
        """`samples`: [T] or [T, channels], int16 or float32; copied. Raises InvalidRequest."""
        if self._clip not in (None, clip):
            raise InvalidRequest("a voice is copied from one recording, not from several", param=PARAM)
        self._clip = clip
        if samples.dtype not in (np.int16, np.float32) or samples.ndim not in (1, 2) or 0 in samples.shape[1:]:
            raise InvalidRequest("the recording must be int16 or float32 samples", param=PARAM)
        if not RATE_MIN <= rate <= RATE_MAX:
            raise InvalidRequest(f"the recording's rate must be from {RATE_MIN} to {RATE_MAX} Hz", param=PARAM)
        if self.rate not in (0, rate):
            raise InvalidRequest(f"the recording changes its rate from {self.rate} to {rate} Hz", param=PARAM)
        self.rate = rate
        self._length += len(samples)
        if self._length > self._seconds_max * rate:
            self._pieces.clear()
            raise InvalidRequest(f"the recording is longer than {self._seconds_max:g} s", param=PARAM)
        self._pieces.append(samples.copy() if samples.ndim == 1 else _mono(samples))

    @property
    def seconds(self) -> float:
        return self._length / self.rate if self.rate else 0.0

    def samples(self) -> np.ndarray:
        """[T], at its own rate, int16 or float32. Raises InvalidRequest for what no voice can be made of."""
        if self.seconds < self._seconds_min:
            raise InvalidRequest(
                f"the recording is {self.seconds:.2f} s long; at least {self._seconds_min:g} s are needed", param=PARAM
            )
        samples = np.concatenate(self._pieces)
        if samples.dtype == np.float32 and not np.isfinite(samples).all():
            raise InvalidRequest("the recording holds samples that are no numbers", param=PARAM)
        low, high = _range(samples)
        if max(-low, high) > LEVEL_MAX:
            raise InvalidRequest("the recording's floating-point samples must be from -1 to 1", param=PARAM)
        if max(-low, high) < SILENCE:
            raise InvalidRequest("the recording is silent", param=PARAM)
        return samples


def heard(samples: np.ndarray, rate: int) -> np.ndarray:
    """[T] int16 or float32 at `rate` -> float32 at 24 kHz."""
    return resampled(as_float(samples), rate, RATE)


def as_float(samples: np.ndarray) -> np.ndarray:
    if samples.dtype == np.int16:
        return samples.astype(np.float32) * np.float32(1.0 / 32768.0)
    return samples.astype(np.float32, copy=False)


def resampled(samples: np.ndarray, rate: int, wanted: int) -> np.ndarray:
    """[T] -> [T * wanted / rate, rounded up], float32."""
    if rate == wanted:
        return samples
    common = math.gcd(rate, wanted)
    from_block, to_block = rate // common, wanted // common  # samples of the same stretch of time
    blocks = _smooth(math.ceil((len(samples) + EDGE_S * rate) / from_block))
    spectrum = np.fft.rfft(samples, blocks * from_block)
    bins = blocks * min(from_block, to_block) // 2 + 1  # up to the lower Nyquist frequency
    spectrum = spectrum[:bins] * _roll_off(bins)
    count = math.ceil(len(samples) * (wanted / rate))  # in this order, as the reference rounds: a frame may hang on it
    whole = np.fft.irfft(spectrum, blocks * to_block)
    return (whole[:count] * (wanted / rate)).astype(np.float32)


def _roll_off(bins: int) -> np.ndarray:
    """1 in the passband, then half a cosine down to 0 at the last bin."""
    place = np.linspace(0.0, 1.0, bins, dtype=np.float32)
    return (0.5 + 0.5 * np.cos(np.pi * np.clip((place - PASSBAND) / (1.0 - PASSBAND), 0.0, 1.0))).astype(np.float32)


def _smooth(least: int) -> int:
    """The next number without prime factors above 5, so that transforms of its multiples are fast."""
    found = 1 << (least - 1).bit_length()
    fives = 1
    while fives < found:
        threes = fives
        while threes < found:
            found = min(found, threes << max(0, (-(-least // threes) - 1).bit_length()))
            threes *= 3
        fives *= 5
    return found


def _mono(samples: np.ndarray) -> np.ndarray:
    """The mean of all channels, in the samples' own kind."""
    mean = samples.mean(axis=1, dtype=np.float32)
    return np.rint(mean).astype(np.int16) if samples.dtype == np.int16 else mean


def _range(samples: np.ndarray) -> tuple[float, float]:
    """Lowest and highest, of full scale. Without a constant offset, which is no sound either."""
    low, high, middle = float(samples.min()), float(samples.max()), float(samples.mean(dtype=np.float64))
    scale = 1.0 / 32768.0 if samples.dtype == np.int16 else 1.0
    return (low - middle) * scale, (high - middle) * scale
