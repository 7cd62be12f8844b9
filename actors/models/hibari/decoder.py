"""Frames to samples, as a stream: what comes out does not depend on how the frames were cut into blocks.

    pulses(f0) --STFT--> E         S = exp(lh) e^(i pi tanh theta) E  +  exp(ln) Z  +  exp(lr) e^(i phi)
                                   samples = inverse STFT of S, overlap-added

Z is complex Gaussian noise from the request's own generator. The STFT has a window of 1200 samples (4 hops), so with
hop k of the output the following must be known:

    pitch     0 .. k+4          a frame's pulses are interpolated towards its neighbours' pitch,
    pulses    0 .. k+3 hops     a frame of the STFT reaches two hops to either side,
    spectra   0 .. k+2          and so does the overlap-add

hence the decoder runs four frames (50 ms of audio, no waiting) behind its input and gives the rest at a clause's end.
At both ends of a clause the pulses are mirrored and the overlap-add is scaled for the windows that are missing there,
as in a centred STFT of the whole clause.
"""

from __future__ import annotations

import numpy as np

from omnirt.actors.models.hibari.frames import BINS, Part

RATE = 24_000
HOP = 300
HOPS = 4
WINDOW = HOP * HOPS
HALF = WINDOW // 2
VOICED_HZ = 40.0
HARMONICS_HZ_MAX = 11_000.0
LOG_MAX = 7.0
_HANN = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)).astype(np.float32)
_ANALYSIS = _HANN / np.float32(WINDOW / 4)
"""So that a harmonic of amplitude 1 is a peak of 1, and exp(lh) is its loudness."""
_WEIGHTS = (_HANN * _HANN).reshape(HOPS, HOP)
_TOWARDS = ((np.arange(HOP) + 0.5) / HOP - 0.5).astype(np.float32)
"""Where the samples of a hop lie between the middle of their frame (0) and those of its neighbours (-1, 1)."""
_DIRICHLET_LIMIT = 2e-3


class PulseSource:
    """Pitch to a band-limited pulse train, hop by hop: every harmonic below HARMONICS_HZ_MAX, at amplitude 1."""

    def __init__(self) -> None:
        self._pitch = np.zeros(0, np.float32)
        """Of the frame before the next hop (at the very start its own once more), its own, and later ones."""
        self._cycles = 0.0
        """Sum of the frequency over all samples so far: 24,000 times the phase."""

    def feed(self, f0: np.ndarray, *, last: bool) -> np.ndarray:
        """[F] -> the samples that are certain: a hop needs the pitch of the frame after it."""
        if not len(self._pitch) and len(f0):
            self._pitch = f0[:1].astype(np.float32)
        known = np.concatenate([self._pitch, f0, f0[-1:] if last else f0[:0]])
        hops = max(len(known) - 2, 0)
        self._pitch = known[hops:]
        return self._pulses(known, hops) if hops else np.zeros(0, np.float32)

    def _pulses(self, known: np.ndarray, hops: int) -> np.ndarray:
        before, own, after = (known[at : at + hops, None] for at in range(3))
        half = HOP // 2
        frequency = np.empty((hops, HOP), np.float32)
        frequency[:, :half] = before * -_TOWARDS[:half] + own * (1 + _TOWARDS[:half])
        frequency[:, half:] = own * (1 - _TOWARDS[half:]) + after * _TOWARDS[half:]
        frequency = frequency.reshape(-1)
        voiced = frequency > VOICED_HZ
        frequency = np.maximum(frequency, np.float32(VOICED_HZ))
        # Summed one after the other from where the block before stopped: the same additions however it is cut.
        cycles = np.cumsum(np.concatenate([[self._cycles], frequency]), dtype=np.float64)
        self._cycles = float(cycles[-1])
        phase = (cycles[1:] / RATE % 1.0 * (2 * np.pi)).astype(np.float32)
        return np.where(voiced, _harmonics(phase, np.floor(np.float32(HARMONICS_HZ_MAX) / frequency)), np.float32(0))


def _harmonics(phase: np.ndarray, count: np.ndarray) -> np.ndarray:
    """cos(phase) + cos(2 phase) + ... + cos(count phase), in closed form."""
    under = 2 * np.sin(phase * np.float32(0.5))
    near_zero = np.abs(under) <= _DIRICHLET_LIMIT
    over = np.sin((count + np.float32(0.5)) * phase)
    ratio = over / np.where(near_zero, np.float32(1), under)
    return np.where(near_zero, count + np.float32(0.5), ratio) - np.float32(0.5)


class ClauseDecoder:
    """One clause. `feed` its frames in order; the block that says `ends` gives the rest."""

    def __init__(self, noise: np.random.Generator) -> None:
        self._noise = noise
        self._source = PulseSource()
        self._pulses = np.zeros(0, np.float32)
        """Pulses from HALF before the middle of the next frame to transform; before the start, from the start."""
        self._mirrored = False
        self._filters: list[tuple[np.ndarray, np.ndarray]] = []
        """Per block of frames not yet transformed: colour of the harmonics, and everything else: [F, 601] complex."""
        self._spectra = 0
        """Frames transformed."""
        self._windows = np.zeros((0, HOPS, HOP), np.float32)
        """Inverse transforms that later samples still need: at most the last three."""

    def feed(self, part: Part) -> np.ndarray:
        """Samples, [T] float32."""
        frames, ends = part.frames, part.ends
        at = slice(part.start, part.stop)
        self._pulses = np.concatenate([self._pulses, self._source.feed(frames.f0[at], last=ends)])
        self._filters.append(self._filter(part))
        windows = self._transform(ends)
        return self._overlap_add(windows, ends)

    def _filter(self, part: Part) -> tuple[np.ndarray, np.ndarray]:
        frames, at = part.frames, slice(part.start, part.stop)
        # One memory layout always: numpy rounds exp, cos and sin of strided input differently.
        lh, theta, ln, lr, phi = (
            np.ascontiguousarray(array[at]) for array in (frames.lh, frames.theta, frames.ln, frames.lr, frames.phi)
        )
        colour = _polar(lh, np.tanh(theta) * np.float32(np.pi))
        rest = _polar(lr, phi)
        noise = self._noise.standard_normal((len(ln), 2 * BINS), dtype=np.float32).view(np.complex64)
        rest += noise * _magnitude(ln)
        return colour, rest

    def _transform(self, ends: bool) -> np.ndarray:
        """The inverse transforms of the frames whose pulses are known: [F, HOPS, HOP]."""
        pulses = self._padded(ends)
        waiting = sum(len(colour) for colour, _ in self._filters)
        count = min(max((len(pulses) - WINDOW) // HOP + 1, 0), waiting) if self._mirrored else 0
        if count == 0:
            return np.zeros((0, HOPS, HOP), np.float32)
        colour, rest = (np.concatenate(column) for column in zip(*self._filters, strict=True))
        self._filters = [(colour[count:], rest[count:])]
        windowed = np.lib.stride_tricks.sliding_window_view(pulses, WINDOW)[::HOP][:count] * _ANALYSIS
        harmonics = np.fft.rfft(windowed, axis=1)
        # Into a new array: numpy would multiply a large temporary in place, by a loop that rounds differently.
        spectra = np.multiply(colour[:count], harmonics, out=np.empty_like(harmonics))
        spectra += rest[:count]
        self._pulses = pulses[count * HOP :]
        self._spectra += count
        return (np.fft.irfft(spectra, WINDOW, axis=1) * _HANN).reshape(count, HOPS, HOP)

    def _padded(self, ends: bool) -> np.ndarray:
        """The pulses, mirrored at the clause's ends as far as those are known."""
        pulses = self._pulses
        if not self._mirrored and (ends or len(pulses) > HALF):
            pulses = np.pad(pulses, (HALF, 0), mode="reflect")
            self._pulses, self._mirrored = pulses, True
        return np.pad(pulses, (0, HALF), mode="reflect") if ends else pulses

    def _overlap_add(self, windows: np.ndarray, ends: bool) -> np.ndarray:
        """Hop k is the sum over frames k-1 .. k+2, always in that order, divided by the sum of their windows."""
        before = self._spectra - len(windows)
        first = before - len(self._windows)
        held = np.concatenate([self._windows, windows])
        begin = max(before - 2, 0)
        end = self._spectra if ends else max(self._spectra - 2, 0)
        hops = max(end - begin, 0)
        total = np.zeros((hops, HOP), np.float32)
        weight = np.zeros((hops, HOP), np.float32)
        for back in range(HOPS):  # frame k+2-back contributes its part number `back`
            low, high = max(begin + 2 - back, 0), min(end + 2 - back, self._spectra)
            if high > low:
                rows = slice(low - 2 + back - begin, high - 2 + back - begin)
                total[rows] += held[low - first : high - first, back]
                weight[rows] += _WEIGHTS[back]
        self._windows = held[max(len(held) - 3, 0) :]
        return (total / weight).reshape(-1)


def _magnitude(logs: np.ndarray) -> np.ndarray:
    return np.exp(np.minimum(logs, np.float32(LOG_MAX)))


def _polar(logs: np.ndarray, angle: np.ndarray) -> np.ndarray:
    loud = _magnitude(logs)
    both = np.empty(loud.shape, np.complex64)
    both.real = loud * np.cos(angle)
    both.imag = loud * np.sin(angle)
    return both
