"""The spectrogram that the speaker encoder hears: log magnitudes in 128 bands of the mel scale, 93.75 frames a second.

Bands are triangles on Slaney's mel scale, linear below 1 kHz and logarithmic above, each scaled to the same area. The
scale is what the encoder was trained with, so its constants are not options.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

RATE = 24_000
FFT = 1024
HOP = 256
BANDS = 128
LOW_HZ, HIGH_HZ = 0.0, 12_000.0
FLOOR = 1e-5
"""Magnitudes below are taken for it, before the logarithm."""
SQUARED_FLOOR = 1e-9
"""Keeps the root of a power away from zero."""

_LINEAR_HZ = 200.0 / 3.0
"""Of a mel, in the linear part."""
_KNEE_HZ = 1000.0
_KNEE = _KNEE_HZ / _LINEAR_HZ
_LOG_STEP = np.log(6.4) / 27.0
"""Of a mel, in the logarithmic part."""


def mel_filters(rate: int = RATE, fft: int = FFT, bands: int = BANDS) -> np.ndarray:
    """[bands, fft / 2 + 1] float32: what each frequency gives to each band."""
    edges = _hertz(np.linspace(_mel(LOW_HZ), _mel(HIGH_HZ), bands + 2))
    frequencies = np.linspace(0.0, rate / 2.0, fft // 2 + 1)
    away = edges[:, None] - frequencies[None, :]  # [bands + 2, fft / 2 + 1]
    widths = np.diff(edges)
    rising, falling = -away[:-2] / widths[:-1, None], away[2:] / widths[1:, None]
    area = 2.0 / (edges[2:] - edges[:-2])
    return (np.maximum(0.0, np.minimum(rising, falling)) * area[:, None]).astype(np.float32)


def log_mel(samples: torch.Tensor, filters: torch.Tensor, window: torch.Tensor) -> torch.Tensor:
    """[T] float32 -> [frames, bands], on the device of its arguments. `window`: Hann's, [FFT]. T is above FFT / 2."""
    import torch

    edge = (FFT - HOP) // 2
    padded = torch.nn.functional.pad(samples[None, None], (edge, edge), mode="reflect")[0, 0]
    spectrum = torch.fft.rfft(padded.unfold(0, FFT, HOP) * window)  # [frames, FFT / 2 + 1]
    magnitude = torch.sqrt(spectrum.real.square() + spectrum.imag.square() + SQUARED_FLOOR)
    return torch.log(torch.clamp(magnitude @ filters.T, min=FLOOR))


def _mel(hertz: float) -> float:
    if hertz < _KNEE_HZ:
        return hertz / _LINEAR_HZ
    return _KNEE + np.log(hertz / _KNEE_HZ) / _LOG_STEP


def _hertz(mels: np.ndarray) -> np.ndarray:
    return np.where(mels < _KNEE, mels * _LINEAR_HZ, _KNEE_HZ * np.exp(_LOG_STEP * (mels - _KNEE)))
