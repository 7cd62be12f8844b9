"""A link between two processes of one host: one segment with both directions, and one doorbell for each.

    segment   link header | a->b: ring control, slab list | b->a: the same | rings | slots
    head      RingPair.create(plan) -> message and descriptors for either side -> close
    node      RingLink.attach(message, descriptors)

Invariants
* payload bytes are copied once, by `Packing.write`, into the record (up to 4 KB) or the slot where they are read
* a segment serves one pair of processes once: after a death both ends get a new pair, so nothing is ever re-initialised
  under a process that still maps it
* both doorbells start armed: the first record rings, whenever its reader begins to watch
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from typing import Self

import msgspec
import numpy as np

from omnirt.connectors.base import (
    Deliver,
    LinkBroken,
    LinkClosed,
    LinkFull,
    Occupancy,
    PayloadTooLarge,
    Received,
)
from omnirt.shm import atomics
from omnirt.shm.atomics import ALIGN, CONTROL_BYTES, LINE, WAITING, publish, reserve
from omnirt.shm.doorbell import Doorbell
from omnirt.shm.ring import BATCH, Consumer, Producer
from omnirt.shm.segment import Segment
from omnirt.shm.slab import SlabConsumer, SlabProducer, control_bytes
from omnirt.wire.codec import INLINE_BYTES_MAX, Packing
from omnirt.wire.messages import Attach, Chunk, Record, decode_record, encode
from omnirt.wire.plan import LinkPlan

_MAGIC = 0x6F6D6E6972743032
_PAGE = 4096
_HEADER_WORDS = 8  # magic, generation, then the sizes the two ends must agree on

PUMP_RECORDS_MAX = 256
"""Delivered by one `pump` at most; the rest waits for the next turn of the loop, so control messages get theirs."""


class _Direction(msgspec.Struct, frozen=True):
    """Where one direction lies in the segment."""

    control: int
    slab_list: int
    ring: int
    slots: int
    ring_bytes: int
    slot_bytes: int
    slot_count: int


class _Layout(msgspec.Struct, frozen=True):
    a_to_b: _Direction
    b_to_a: _Direction
    nbytes: int


def _round_up(value: int, to: int) -> int:
    return (value + to - 1) // to * to


def _layout(ring_bytes: int, ab: tuple[int, int], ba: tuple[int, int]) -> _Layout:
    """`ab`, `ba`: slot bytes and slots of each direction."""
    ring = _round_up(ring_bytes, _PAGE)
    controls: list[tuple[int, int]] = []
    at = LINE
    for _, count in (ab, ba):
        controls.append((at, at + CONTROL_BYTES))
        at += CONTROL_BYTES + (control_bytes(count) if count else 0)
    at = _round_up(at, _PAGE)
    rings = (at, at + ring)
    at += 2 * ring
    directions: list[_Direction] = []
    for (control, slab_list), ring_at, (slot_bytes, count) in zip(controls, rings, (ab, ba), strict=True):
        slot = _round_up(slot_bytes, _PAGE)
        directions.append(_Direction(control, slab_list, ring_at, at, ring, slot, count))
        at += slot * count
    return _Layout(directions[0], directions[1], at)


def link_bytes(plan: LinkPlan) -> int:
    """What the link takes from /dev/shm: the plan's sizes rounded up to pages, and the control words."""
    return _plan_layout(plan).nbytes


def _plan_layout(plan: LinkPlan) -> _Layout:
    ab = (plan.a_to_b_slot_bytes, plan.a_to_b_slots)
    return _layout(plan.ring_bytes, ab, (plan.b_to_a_slot_bytes, plan.b_to_a_slots))


class RingPair:
    """A new link as its creator holds it: only descriptors, to be passed on."""

    def __init__(self, plan: LinkPlan, segment: Segment, to_a: Doorbell, to_b: Doorbell) -> None:
        self._plan = plan
        self._segment = segment
        self._to_a = to_a
        self._to_b = to_b

    @classmethod
    def create(cls, plan: LinkPlan) -> Self:
        """Raises SharedMemoryFull. Written through the descriptor: the creator maps nothing."""
        layout = _plan_layout(plan)
        segment = Segment.create(layout.nbytes)
        header = np.zeros(_HEADER_WORDS, np.int64)
        header[:2] = (_MAGIC, secrets.randbits(62) | 1)
        os.pwrite(segment.fd, header.tobytes(), 0)
        for direction in (layout.a_to_b, layout.b_to_a):
            os.pwrite(segment.fd, np.ones(1, np.int64).tobytes(), direction.control + WAITING)
        return cls(plan, segment, Doorbell.create(), Doorbell.create())

    def side(self, process: str) -> tuple[Attach, list[int]]:
        """The message for `process` (`a` or `b` of the plan) and the descriptors to send with it, still owned here."""
        plan = self._plan
        if process == plan.a:
            out, into = (plan.a_to_b_slot_bytes, plan.a_to_b_slots), (plan.b_to_a_slot_bytes, plan.b_to_a_slots)
            message = Attach(plan.b, plan.ring_bytes, *out, *into, first=True)
            return message, [self._segment.fd, self._to_b.fileno(), self._to_a.fileno()]
        assert process == plan.b, f"{process} is neither end of the link {plan.a} - {plan.b}"
        out, into = (plan.b_to_a_slot_bytes, plan.b_to_a_slots), (plan.a_to_b_slot_bytes, plan.a_to_b_slots)
        message = Attach(plan.a, plan.ring_bytes, *out, *into, first=False)
        return message, [self._segment.fd, self._to_a.fileno(), self._to_b.fileno()]

    def link(self, process: str) -> RingLink:
        """This process's own end, where the creator is one of the two."""
        message, fds = self.side(process)
        return RingLink.attach(message, [os.dup(fd) for fd in fds])

    def close(self) -> None:
        """The descriptors have been passed on."""
        self._segment.close()
        self._to_a.close()
        self._to_b.close()


class RingLink:
    """One end of a link. A Connector."""

    def __init__(self, message: Attach, segment: Segment, bell_out: Doorbell, bell_in: Doorbell) -> None:
        """Use `attach`."""
        out_sizes, in_sizes = (message.out_slot_bytes, message.out_slots), (message.in_slot_bytes, message.in_slots)
        ab, ba = (out_sizes, in_sizes) if message.first else (in_sizes, out_sizes)
        layout = _layout(message.ring_bytes, ab, ba)
        out, into = (layout.a_to_b, layout.b_to_a) if message.first else (layout.b_to_a, layout.a_to_b)
        memory = segment.array
        magic, generation = memory[:16].view(np.int64).tolist()
        if magic != _MAGIC:
            raise LinkBroken(f"the segment of the link to {message.peer} is not one of ours", peer=message.peer)
        self.peer = message.peer
        self._segment = segment
        self._bell_out = bell_out
        self._bell_in = bell_in
        self._closed = False
        self._producer = Producer(_control(memory, out), _ring(memory, out), generation)
        self._out_state, self._out_bytes = self._producer.state, self._producer.bytes
        self._consumer = Consumer(_control(memory, into), _ring(memory, into), generation)
        self._slab_out = SlabProducer(*_slab(memory, out), out.slot_count) if out.slot_count else None
        self._slab_in = SlabConsumer(*_slab(memory, into), into.slot_count) if into.slot_count else None

    @classmethod
    def attach(cls, message: Attach, fds: Sequence[int]) -> Self:
        """Takes over the descriptors `[segment, doorbell out, doorbell in]`. Raises SegmentRefused, LinkBroken."""
        segment_fd, out_fd, in_fd = fds
        out_sizes, in_sizes = (message.out_slot_bytes, message.out_slots), (message.in_slot_bytes, message.in_slots)
        layout = _layout(message.ring_bytes, out_sizes, in_sizes)
        return cls(message, Segment.attach(segment_fd, layout.nbytes), Doorbell(out_fd), Doorbell(in_fd))

    def fileno(self) -> int:
        return self._bell_in.fileno()

    # -------------------------------------------------------------------------------------------- sending

    def send(self, record: Record, packing: Packing | None = None) -> None:
        if self._closed:
            raise LinkClosed(f"the link to {self.peer} is closed", peer=self.peer)
        head = encode(record)
        size = len(head)
        nbytes = 0 if packing is None else packing.nbytes
        if packing is None or nbytes <= INLINE_BYTES_MAX:
            at = reserve(self._out_state, size, nbytes, -1)
            if at < 0:
                raise self._full(record, size + nbytes)
            if packing is not None:
                packing.write(self._out_bytes, (at + size + ALIGN - 1) & -ALIGN)
        else:
            at = self._write_slot(record, size, packing)
        self._out_bytes[at : at + size] = head
        if publish(self._out_state):
            self._bell_out.ring()

    def _write_slot(self, record: Record, size: int, packing: Packing) -> int:
        """Fill a slot and reserve the record that carries it."""
        slab = self._slab_out
        if slab is None or packing.nbytes > slab.slot_bytes:
            limit = INLINE_BYTES_MAX if slab is None else slab.slot_bytes
            raise PayloadTooLarge(peer=self.peer, edge=record.edge, nbytes=packing.nbytes, limit_bytes=limit)
        slot = atomics.take(slab.state)
        if slot < 0:
            raise LinkFull(f"{self.peer} holds all {slab.slots} payload slots of its link", peer=self.peer)
        at = -1
        try:
            packing.write(slab.bytes, slot * slab.slot_bytes)
            at = reserve(self._out_state, size, packing.nbytes, slot)
        finally:
            if at < 0:
                atomics.untake(slab.state, slot)
        if at < 0:
            raise self._full(record, size)
        return at

    def _full(self, record: Record, nbytes: int) -> LinkFull | PayloadTooLarge:
        limit = self._producer.record_bytes_max()
        if nbytes > limit:
            return PayloadTooLarge(peer=self.peer, edge=record.edge, nbytes=nbytes, limit_bytes=limit)
        used = self._producer.used_bytes()
        return LinkFull(
            f"{self.peer} has stopped reading: {used} of {self._producer.capacity} bytes of its ring are unread",
            peer=self.peer,
        )

    # -------------------------------------------------------------------------------------------- receiving

    def pump(self, deliver: Deliver) -> int:
        if not self.clear():
            return 0
        total = 0
        try:
            while not self._closed:
                count = self.drain(deliver)
                total += count
                if total >= PUMP_RECORDS_MAX:
                    self._bell_in.ring()
                    break
                if count < BATCH and self.park():  # which looks once more itself
                    break
        except LinkBroken:
            raise  # it stays broken: sleep until it is replaced
        except BaseException:
            if not self._closed:
                self._bell_in.ring()  # not parked: without this nobody would come back for the rest
            raise
        return total

    # `pump` in parts, for a caller that polls for a while (`spin_us`) before it parks: clear, drain repeatedly, park.

    def clear(self) -> bool:
        """Silence the doorbell. False when the link is closed."""
        if not self._closed:
            self._bell_in.clear()
        return not self._closed

    def park(self) -> bool:
        """True: the next record will ring. False: one came in between, drain again."""
        return atomics.park(self._consumer.state) == 1

    def drain(self, deliver: Deliver) -> int:
        """Deliver one batch without touching the doorbell; how many records."""
        consumer = self._consumer
        count = atomics.scan(consumer.state, consumer.rows_address, BATCH)
        if count <= 0:
            if count < 0:
                raise LinkBroken(f"the link to {self.peer} holds a record of another generation", peer=self.peer)
            return 0
        data = consumer.bytes
        tail = -1
        try:
            for at, size, body, nbytes, slot, tail in consumer.described(count):  # noqa: B007 - used in `finally`
                try:
                    record = decode_record(data[at : at + size])
                except msgspec.MsgspecError as error:
                    raise LinkBroken(f"{self.peer} sent an unreadable record: {error}", peer=self.peer) from error
                if type(record) is not Chunk:
                    received = None
                elif slot < 0:
                    received = Received(record.header, data[body : body + nbytes].tobytes())
                else:
                    received = self._lease(record, slot, nbytes)
                deliver(record, received)
                if self._closed:  # by `deliver`: what is unread goes with the link
                    break
        finally:
            atomics.advance(consumer.state, tail)
        return count

    def _lease(self, record: Chunk, slot: int, nbytes: int) -> Received:
        slab = self._slab_in
        if slab is None:
            raise LinkBroken(f"{self.peer} sent a slot on a link without slots", peer=self.peer)
        try:
            lease = slab.lease(slot, nbytes)
        except IndexError as error:
            raise LinkBroken(f"{self.peer} sent {error}", peer=self.peer) from error
        return Received(record.header, lease.view, lease)

    # -------------------------------------------------------------------------------------------- the rest

    def occupancy(self) -> Occupancy:
        producer, slab_out, slab_in = self._producer, self._slab_out, self._slab_in
        return Occupancy(
            out_bytes=producer.used_bytes(),
            out_bytes_max=producer.capacity,
            out_slots=slab_out.used_slots() if slab_out else 0,
            out_slots_max=slab_out.slots if slab_out else 0,
            in_bytes=self._consumer.used_bytes(),
            in_slots=slab_in.leased_slots if slab_in else 0,
        )

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._slab_in is not None:
            self._slab_in.close()
        self._bell_in.close()
        self._bell_out.close()
        self._segment.close()


def _control(memory: np.ndarray, direction: _Direction) -> np.ndarray:
    return memory[direction.control : direction.control + CONTROL_BYTES]


def _ring(memory: np.ndarray, direction: _Direction) -> np.ndarray:
    return memory[direction.ring : direction.ring + direction.ring_bytes]


def _slab(memory: np.ndarray, direction: _Direction) -> tuple[np.ndarray, np.ndarray]:
    slots_bytes = direction.slot_bytes * direction.slot_count
    control = memory[direction.slab_list : direction.slab_list + control_bytes(direction.slot_count)]
    return control, memory[direction.slots : direction.slots + slots_bytes]
