"""Decoded recordings that are asked for again and again: each is decoded once, the last are kept.

Invariants: what is kept is bounded in seconds, of which each counts as one at least, so it is in number too; the least
recently used goes first; who asks for a recording that is being decoded waits for it; who decodes may give up (its
client went), then the next one does it; what is given out is shared and read-only.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence

from omnirt.wire.payload import Pcm

Pieces = tuple[Pcm, ...]

LEAST_S = 1.0
"""That one counts for: of those that are nearly nothing, there would be millions."""


class KeptRecordings:
    def __init__(self, seconds_max: float) -> None:
        self._seconds_max = seconds_max
        self._pieces: OrderedDict[str, Pieces] = OrderedDict()
        self._decoding: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        self.seconds = 0.0

    @property
    def keys(self) -> list[str]:
        """The least recently used first."""
        return list(self._pieces)

    async def get(
        self, key: str, decode: Callable[[], Awaitable[Pieces]], may_be_kept: Callable[[], bool] = lambda: True
    ) -> Pieces:
        """`may_be_kept` is asked once it is decoded. Raises what `decode` raises; that is not remembered."""
        lock = self._decoding.get(key)
        if lock is None:
            lock = self._decoding[key] = asyncio.Lock()
        async with lock:
            pieces = self._pieces.get(key)
            if pieces is None:
                pieces = await decode()
                if may_be_kept():
                    self._keep(key, pieces)
            else:
                self._pieces.move_to_end(key)
            return pieces

    def drop(self, key: str) -> None:
        pieces = self._pieces.pop(key, None)
        if pieces is not None:
            self.seconds -= _counted_s(pieces)

    def _keep(self, key: str, pieces: Pieces) -> None:
        for piece in pieces:
            piece.samples.flags.writeable = False
        self._pieces[key] = pieces
        self.seconds += _counted_s(pieces)
        while self.seconds > self._seconds_max and len(self._pieces) > 1:
            self.drop(next(iter(self._pieces)))


def _counted_s(pieces: Pieces) -> float:
    return max(LEAST_S, seconds_of(pieces))


def seconds_of(pieces: Sequence[Pcm]) -> float:
    return sum(piece.samples.size / piece.rate for piece in pieces)
