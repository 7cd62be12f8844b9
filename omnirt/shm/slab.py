"""Fixed slots for large payloads, with a return list in shared memory.

    producer   take (most recently returned first) -> write -> send the slot's number through the ring
    consumer   read in place under a lease -> give: the number goes into the return list

Invariants
* a slot has one owner at a time: the producer until it is sent, then the consumer until it is given back
* slots come back in any order; a held one stalls nothing but itself
* last returned, first used again: a stream in lock-step stays in the cache
* the list has a place for every slot, so it cannot overflow; its count is the only word both sides touch
"""

from __future__ import annotations

import numpy as np

from omnirt.shm import atomics
from omnirt.shm.atomics import ALIGN, LINE

_FREE_STACK = atomics.B_STACK // 8


def control_bytes(slots: int) -> int:
    """Size of the return list."""
    return LINE + (slots * 8 + LINE - 1) // LINE * LINE


class _Side:
    def __init__(self, control: np.ndarray, data: np.ndarray, slots: int) -> None:
        """`control`: [control_bytes(slots)] uint8, `data`: [slots * slot_bytes] uint8, pieces of one mapping."""
        assert slots > 0
        assert data.nbytes % slots == 0
        assert control.nbytes >= control_bytes(slots)
        self.slots = slots
        self.slot_bytes = data.nbytes // slots
        assert self.slot_bytes % ALIGN == data.ctypes.data % ALIGN == 0
        self.bytes = memoryview(data)
        """Slot `n` begins at `n * slot_bytes`."""
        self._control = control
        self._private = np.zeros(_FREE_STACK + slots, np.int64)
        self.state: int = self._private.ctypes.data
        self._private[:2] = (control.ctypes.data, slots)


class SlabProducer(_Side):
    def __init__(self, control: np.ndarray, data: np.ndarray, slots: int) -> None:
        super().__init__(control, data, slots)
        self._private[3] = slots
        self._private[_FREE_STACK:] = np.arange(slots)[::-1]

    def take(self) -> int:
        """A free slot, or -1. The caller may write it until it is sent."""
        return atomics.take(self.state)

    def untake(self, slot: int) -> None:
        """Give back a slot that was taken and not sent."""
        atomics.untake(self.state, slot)

    def used_slots(self) -> int:
        """Slots sent and not yet given back."""
        returned = atomics.load_acquire(self._control.ctypes.data)
        return self.slots - int(self._private[3]) - (returned - int(self._private[2]))


class SlabConsumer(_Side):
    def __init__(self, control: np.ndarray, data: np.ndarray, slots: int) -> None:
        super().__init__(control, data, slots)
        self.bytes = self.bytes.toreadonly()
        self.closed = False
        self.leased_slots = 0

    def lease(self, slot: int, nbytes: int) -> Lease:
        """The first `nbytes` of a slot that arrived. Raises IndexError for a number that is none."""
        if not 0 <= slot < self.slots or not 0 <= nbytes <= self.slot_bytes:
            raise IndexError(f"slot {slot} with {nbytes} bytes, of {self.slots} slots of {self.slot_bytes}")
        self.leased_slots += 1
        start = slot * self.slot_bytes
        return Lease(self, slot, self.bytes[start : start + nbytes])

    def close(self) -> None:
        """The link is gone: leases stay readable, and releasing them no longer tells anybody."""
        self.closed = True


class Lease:
    """The right to read one slot. After `release` the view's content may change at any time."""

    __slots__ = ("_slab", "_slot", "view")

    def __init__(self, slab: SlabConsumer, slot: int, view: memoryview) -> None:
        self._slab: SlabConsumer | None = slab
        self._slot = slot
        self.view = view

    def release(self) -> None:
        slab, self._slab = self._slab, None
        if slab is None:
            return
        slab.leased_slots -= 1
        if not slab.closed:
            atomics.give(slab.state, self._slot)
