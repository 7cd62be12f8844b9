"""Single-producer, single-consumer ring of variable-size records in shared memory.

    control   HEAD | TAIL | WAITING        each alone on a pair of cache lines
    data      [ header | head bytes | body ] [ ... ] [ PAD ]      every record starts on 64 bytes and never wraps

Invariants
* HEAD has one writer, the producer; TAIL one, the consumer. The store of HEAD is the only publication: a producer
  killed between `reserve` and `publish` leaves nothing behind.
* a record's tag is `generation ^ position`: memory of an older generation or an older lap is recognised (StaleRecord)
* both ends keep their own words in private memory; the shared ones are never read back by their writer

The operations on the hot path are the free functions of `atomics` on `state`, the address of the private words.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import ClassVar

import numpy as np

from omnirt.errors import OmnirtError
from omnirt.shm import atomics
from omnirt.shm.atomics import ALIGN, CONTROL_BYTES, FIELDS, HEADER

BATCH = 64
"""Records described by one scan."""

Description = tuple[int, int, int, int, int, int]
"""Where the head lies in `bytes`, its length; where the body lies, its length; slot or -1; tail after the record."""

# By far the cheapest way from shared words to Python integers: 0.1 us a record (memoryview.tolist takes 0.4).
_ROW = struct.Struct(f"{FIELDS}q")
_ROW_BYTES = _ROW.size
_unpack: Callable[[memoryview], Description] = _ROW.unpack_from  # pyright: ignore[reportAssignmentType]
_iter_unpack: Callable[[memoryview], Iterator[Description]] = _ROW.iter_unpack  # pyright: ignore[reportAssignmentType]


class StaleRecord(OmnirtError):
    """The ring holds something this generation's producer did not write."""

    code: ClassVar[str] = "stale_record"


class _End:
    """One end of a ring: the private words, and views that keep the mapping alive."""

    def __init__(self, control: np.ndarray, data: np.ndarray, generation: int) -> None:
        """`control`: [CONTROL_BYTES] uint8, `data`: [capacity] uint8, both 64-aligned pieces of one mapping."""
        assert control.nbytes >= CONTROL_BYTES
        assert data.nbytes % ALIGN == data.ctypes.data % ALIGN == 0
        self.data = data
        self.bytes = memoryview(data)
        self.capacity = data.nbytes
        self._control = control
        self._private = np.zeros(atomics.STATE_WORDS, np.int64)
        self.state: int = self._private.ctypes.data
        self._private[:6] = (control.ctypes.data, data.ctypes.data, data.nbytes, 0, 0, generation)

    def used_bytes(self) -> int:
        return atomics.used(self.state)


class Producer(_End):
    def reserve(self, head_bytes: int, body_bytes: int = 0, slot: int = -1) -> int:
        """Offset in `bytes` where the head goes; -1 when full. The body of an inline record goes to `body_at`."""
        return atomics.reserve(self.state, head_bytes, body_bytes, slot)

    def publish(self) -> bool:
        """Make the reserved record visible. True: the consumer is parked, ring."""
        return atomics.publish(self.state) == 1

    def push(self, record: bytes) -> bool | None:
        """One record in one call: None when full, else whether to ring."""
        at = atomics.reserve(self.state, len(record), 0, -1)
        if at < 0:
            return None
        self.bytes[at : at + len(record)] = record
        return atomics.publish(self.state) == 1

    def push_many(self, records: np.ndarray) -> int:
        """Publish rows of `records`: [N, n] uint8, C-contiguous. How many found room; then ask `must_ring`."""
        count, record_bytes = records.shape
        return atomics.push_many(self.state, records.ctypes.data, record_bytes, count)

    def must_ring(self) -> bool:
        return atomics.must_ring(self.state) == 1

    def record_bytes_max(self) -> int:
        """Head and inline body together. Half the ring: a larger one might never find unbroken room."""
        return self.capacity // 2 - HEADER - ALIGN


class Consumer(_End):
    def __init__(self, control: np.ndarray, data: np.ndarray, generation: int) -> None:
        super().__init__(control, data, generation)
        rows = np.zeros(BATCH * FIELDS, np.int64)
        self._rows = rows.data.cast("B")
        self.rows_address: int = rows.ctypes.data

    def scan(self) -> int:
        """Look at up to BATCH unread records; how many, for `described`. Raises StaleRecord."""
        count = atomics.scan(self.state, self.rows_address, BATCH)
        if count < 0:
            raise StaleRecord("the ring holds a record of another generation")
        return count

    def described(self, count: int) -> Iterable[Description]:
        """The `count` records of the last scan."""
        return (_unpack(self._rows),) if count == 1 else _iter_unpack(self._rows[: count * _ROW_BYTES])

    def advance(self, tail: int) -> None:
        """Give everything before `tail` (of the last record that is done with) back to the producer."""
        atomics.advance(self.state, tail)

    def park(self) -> bool:
        """True: nothing is unread and the next record rings. False: read on."""
        return atomics.park(self.state) == 1

    def pop(self) -> bytes | None:
        """Copy of the next record's head, or None. For tests and plain users; links scan in batches."""
        count = atomics.scan(self.state, self.rows_address, 1)
        if count < 0:
            raise StaleRecord("the ring holds a record of another generation")
        if count == 0:
            return None
        ((at, length, _, _, _, tail),) = self.described(1)
        record = bytes(self.bytes[at : at + length])
        atomics.advance(self.state, tail)
        return record

    def pop_many(self, into: np.ndarray) -> int:
        """Fill rows of `into`: [N, n] uint8, with records of exactly n bytes. How many. Raises StaleRecord."""
        count, record_bytes = into.shape
        done = atomics.pop_many(self.state, self.rows_address, into.ctypes.data, record_bytes, count)
        if done < 0:
            raise StaleRecord("the ring holds a record of another generation")
        return done


def body_at(at: int, head_bytes: int) -> int:
    """Where the inline body of a record lies whose head is at `at`."""
    return (at + head_bytes + ALIGN - 1) // ALIGN * ALIGN
