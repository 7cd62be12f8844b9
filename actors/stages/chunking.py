"""When the frames of an answer leave for the decoder: small chunks first, then larger ones, never late for the player.

A player that starts on the first packet has heard `now - first` seconds and was given `frames * frame_s`: the rest is
its lead. Larger chunks cost less to decode; so a chunk grows along `sizes`, but what is there leaves at once when the
lead would not last until the next chance. Who has half of its chunk may go along when others leave: one call of the
decoder for many costs much less than several, and from then on they leave together. Pure: time comes in.
"""

from __future__ import annotations

from omnirt.clock import NS

SIZES = (1, 2, 4, 8, 16)
"""Frames of the first, second, ... chunk; the last one repeats."""
FAST = 4
"""Times as fast as the player."""
GUARD_S = 0.06
"""Lead that is never given away: a chunk still has to be decoded and to travel."""


class Chunks:
    def __init__(self, sizes: tuple[int, ...], frame_s: float) -> None:
        self._sizes, self._frame_s = sizes, frame_s
        self._count = 0
        self._frames = 0
        self._first_ns = 0
        self._last_ns = 0
        """When the frame before was made, and how long that took."""
        self._period_s = 0.0

    def made(self, now_ns: int) -> None:
        """A frame is there."""
        if self._last_ns:
            self._period_s = (now_ns - self._last_ns) / NS
        self._last_ns = now_ns

    def is_due(self, waiting: int, now_ns: int) -> bool:
        """Whether the `waiting` frames should leave now."""
        if not waiting:
            return False
        if waiting >= self._size:
            return True
        return bool(self._count) and self._lead_s(now_ns) < GUARD_S + 2 * self._period_s

    @property
    def is_grown(self) -> bool:
        """Chunks grow no more."""
        return self._count >= len(self._sizes) - 1

    def may_join(self, waiting: int) -> bool:
        """Whether the `waiting` frames may leave now because others do. Never before the first chunk, and not where
        frames come hardly faster than they are heard: there, a chunk is worth its full size."""
        is_fast = self._period_s * FAST < self._frame_s
        return is_fast and bool(self._count) and 2 * waiting >= self._size

    def left(self, frames: int, now_ns: int) -> None:
        """They did."""
        if not self._count:
            self._first_ns = now_ns
        self._count += 1
        self._frames += frames

    @property
    def _size(self) -> int:
        return self._sizes[min(self._count, len(self._sizes) - 1)]

    def _lead_s(self, now_ns: int) -> float:
        return self._frames * self._frame_s - (now_ns - self._first_ns) / NS
