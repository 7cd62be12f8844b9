"""The page of epoch words: one per admitted request. The head writes, every process reads.

Invariants
* one writer (the head); an epoch only rises, also when its slot is used again
* a reader that sees an old value for a moment only works in vain: what leaves is compared again, last by the session
  machine in the head, whose own stores it always sees. So a relaxed load is enough on every processor, nothing is
  published *through* an epoch, and the check stays a plain 8-byte load (`memoryview` makes exactly one).
"""

from __future__ import annotations

from typing import Self

from omnirt.ids import Fence
from omnirt.shm.atomics import store_release
from omnirt.shm.segment import Segment

_WORD = 8


class FencePage:
    def __init__(self, segment: Segment, slots: int) -> None:
        """Use `create` (head) or `attach` (nodes)."""
        self.segment = segment
        self.slots = slots
        # Keeps the mapping alive by itself, so a check after `close` reads memory that is still there.
        self._words = memoryview(segment.array[: slots * _WORD]).cast("B").cast("q")
        self._address = segment.address

    @classmethod
    def create(cls, slots: int) -> Self:
        return cls(Segment.create(page_bytes(slots)), slots)

    @classmethod
    def attach(cls, fd: int, slots: int) -> Self:
        return cls(Segment.attach(fd, page_bytes(slots)), slots)

    @property
    def fd(self) -> int:
        return self.segment.fd

    def epoch(self, slot: int) -> int:
        return self._words[slot]

    def raise_epoch(self, slot: int) -> int:
        """Head only. Everything that carries an older epoch of `slot` is stale from now on."""
        epoch = self._words[slot] + 1
        store_release(self._address + slot * _WORD, epoch)
        return epoch

    def is_stale(self, fence: Fence) -> bool:
        """About 0.1 us (bench/transport.py). Called before a cell works and again where output leaves."""
        return self._words[fence.slot] != fence.epoch

    def close(self) -> None:
        self.segment.close()


def page_bytes(slots: int) -> int:
    return (slots * _WORD + 4095) // 4096 * 4096
