"""What travels from the acoustic network to the decoder, and what may be known of it without decoding.

A frame stands for 12.5 ms. Per frequency bin the network says how the harmonics of the pitch are coloured (`lh`,
`theta`), how loud the noise is (`ln`), and a part with its own phase (`lr`, `phi`); `f0` is the pitch, 0 where there is
none.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from omnirt.wire.payload import Payload

BINS = 601
FRAMES_PER_S = 80
BLOCK_FRAMES = 20
"""Frames in one payload at most: a quarter of a second, 241,152 bytes on the ring."""
AUDIBLE = 0.3
"""Natural log of the spectrum's energy in a frame above which it is heard: about -55 dB below full scale."""


class AcousticFrames(Payload, frozen=True):
    """`lh`, `theta`, `ln`, `lr`, `phi`: [F, 601] float32; `f0`: [F] float32.

    `lead`: [F] int32, -1 inside a clause; on the first frame of a clause the samples of silence in front of it.
    `last`: [F] bool, true on the last frame of a clause. `shorten`: [F] float64, how many times shorter than its frames
    the audio of the clause is to be.
    """

    lh: np.ndarray
    theta: np.ndarray
    ln: np.ndarray
    lr: np.ndarray
    phi: np.ndarray
    f0: np.ndarray
    lead: np.ndarray
    last: np.ndarray
    shorten: np.ndarray

    def parts(self) -> Iterator[Part]:
        """The payload cut where a clause begins or ends, in order."""
        begins = np.flatnonzero(self.lead >= 0)
        ends = np.flatnonzero(self.last) + 1
        cuts = sorted({0, len(self.f0), *begins.tolist(), *ends.tolist()})
        for start, stop in pairwise(cuts):
            yield Part(self, start, stop)


class Part(NamedTuple):
    """Frames `start` to `stop` of a payload, all of one clause."""

    frames: AcousticFrames
    start: int
    stop: int

    @property
    def lead(self) -> int:
        """Samples of silence before a clause that begins here; -1 when it goes on."""
        return int(self.frames.lead[self.start])

    @property
    def shorten(self) -> float:
        return float(self.frames.shorten[self.start])

    @property
    def ends(self) -> bool:
        return bool(self.frames.last[self.stop - 1])


class Spectra(NamedTuple):
    """The network's answer for a clause: [601, F] each but `f0`: [F]."""

    lh: np.ndarray
    theta: np.ndarray
    ln: np.ndarray
    lr: np.ndarray
    phi: np.ndarray
    f0: np.ndarray

    def audible(self) -> tuple[int, int]:
        """The first audible frame and the one after the last; (0, 0) when there is none."""
        voiced = np.where(self.f0 > 0, _energy(self.lh), -np.inf)
        loud = np.flatnonzero(np.maximum(np.maximum(_energy(self.ln), _energy(self.lr)), voiced) > AUDIBLE)
        return (int(loud[0]), int(loud[-1]) + 1) if len(loud) else (0, 0)

    def cut(self, start: int, stop: int) -> Spectra:
        return Spectra(*(array[..., start:stop] for array in self))

    def blocks(self, lead: int, shorten: float) -> Iterator[AcousticFrames]:
        """As payloads, frame by frame; the arrays are views, so the only copy is the one into the ring."""
        count = len(self.f0)
        for start in range(0, count, BLOCK_FRAMES):
            stop = min(start + BLOCK_FRAMES, count)
            leads = np.full(stop - start, -1, np.int32)
            if start == 0:
                leads[0] = lead
            last = np.zeros(stop - start, np.bool_)
            last[-1] = stop == count
            lh, theta, ln, lr, phi = (array[:, start:stop].T for array in self[:5])
            shortens = np.full(stop - start, shorten)
            yield AcousticFrames(lh, theta, ln, lr, phi, self.f0[start:stop], leads, last, shortens)


def silence(frames: int) -> Spectra:
    """Frames without sound."""
    quiet = np.full((BINS, frames), -30.0, np.float32)
    zero = np.zeros((BINS, frames), np.float32)
    return Spectra(quiet, zero, quiet, quiet, zero, np.zeros(frames, np.float32))


def _energy(logs: np.ndarray) -> np.ndarray:
    """[B, F] log magnitudes -> [F] log of the root of their summed squares."""
    return 0.5 * np.log(np.exp(2.0 * np.minimum(logs, 7.0)).sum(axis=0))
