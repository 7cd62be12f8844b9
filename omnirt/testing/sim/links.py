"""Simulated links: what `RingPair` and `RingLink` are to the head and to nodes, with virtual delays.

Bodies above INLINE_BYTES_MAX lie in a leased slot. The slot is overwritten when it is released, as a producer would do,
so a payload that is read after its release shows. Sizes are the plan's: a full link is a finding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np

from omnirt.connectors.base import Deliver, LinkClosed, LinkFull, Occupancy
from omnirt.ids import HEAD
from omnirt.testing.sim.observer import Observer
from omnirt.testing.sim.pipe import Pipe
from omnirt.wire.codec import Packing, unpack
from omnirt.wire.messages import Attach, Chunk, Record
from omnirt.wire.payload import Payload
from omnirt.wire.plan import LinkPlan

P = TypeVar("P", bound=Payload)

INLINE_BYTES_MAX = 64
"""Far below the real links': simulated payloads are small, and most should need a lease."""
RECORD_BYTES = 64
"""A record without its body."""
OVERWRITTEN = 0xA5


class SimReceived:
    """A payload as a link delivers it. Keeps its record, so that a client's check can see where it came from."""

    __slots__ = ("_body", "_end", "_held", "record")

    def __init__(self, record: Chunk, body: np.ndarray, end: SimLink | None) -> None:
        self.record = record
        self._body = body
        self._end = end
        self._held = end is not None

    def unpack(self, kind: type[P]) -> P:
        return unpack(kind, self.record.header, self._body)

    @property
    def is_lease(self) -> bool:
        return self._held

    def own(self) -> None:
        if self._held:
            body = self._body.copy()
            self.release()
            self._body, self._end = body, None

    def release(self) -> None:
        if self._end is None:
            return
        if not self._held:
            self._end.observer.wrong("lease", f"a payload of edge {self.record.edge} was released twice")
            return
        self._held = False
        self._end.released(self)
        self._body[:] = OVERWRITTEN


class Direction:
    """From one process to another. `bytes_used` is what is written and unread; a slot is used until its release."""

    __slots__ = ("bytes_max", "bytes_used", "pipe", "slot_bytes", "slots_max", "slots_used")

    def __init__(self, pipe: Pipe, bytes_max: int, slots_max: int, slot_bytes: int) -> None:
        self.pipe = pipe
        self.bytes_max = bytes_max
        self.slots_max = slots_max
        self.slot_bytes = slot_bytes
        self.bytes_used = 0
        self.slots_used = 0


class SimLink:
    """One end of a link. A Connector."""

    def __init__(self, owner: str, peer: str, out: Direction, into: Direction, observer: Observer) -> None:
        self.owner = owner
        self.peer = peer
        self.observer = observer
        self.held: set[SimReceived] = set()
        """Payloads with a lease that this side has not released."""
        self._out = out
        self._in = into
        self._closed = False

    # ------------------------------------------------------------ Connector

    def fileno(self) -> Any:
        """A link is its own descriptor; see `SimLoop`."""
        return self

    def watch(self, readable: Callable[[], None]) -> None:
        self._in.pipe.readable = readable
        if self._in.pipe.has_arrived():
            readable()

    def send(self, record: Record, packing: Packing | None = None) -> None:
        if self._closed:
            raise LinkClosed(f"the link to {self.peer} is closed", peer=self.peer)
        out = self._out
        size = RECORD_BYTES
        body = None
        nbytes = 0 if packing is None else packing.nbytes
        leased = nbytes > INLINE_BYTES_MAX
        if packing is not None:
            assert isinstance(record, Chunk)
            size += len(record.header) + (0 if leased else nbytes)
            body = np.zeros(nbytes, np.uint8)
            packing.write(body)
        if out.bytes_used + size > out.bytes_max or (leased and out.slots_used >= out.slots_max):
            what = f"{out.slots_used} of {out.slots_max} slots, {out.bytes_used} of {out.bytes_max} bytes"
            self.observer.wrong("full", f"the link {self.owner} -> {self.peer} is full: {what}")
            raise LinkFull(f"{self.peer}: {what}", peer=self.peer)
        out.bytes_used += size
        out.slots_used += leased
        self.observer.filled(out.bytes_used / out.bytes_max, out.slots_used / max(1, out.slots_max))
        out.pipe.put((record, body, size, leased))

    def pump(self, deliver: Deliver) -> int:
        return self._take(self._in.pipe.arrived(), deliver)

    def drain(self, deliver: Deliver) -> int:
        """Everything that was sent: a delay is that of the doorbell, the memory is there at once."""
        return self._take(self._in.pipe.all(), deliver)

    def _take(self, items: Iterator[Any], deliver: Deliver) -> int:
        count = 0
        for record, body, size, leased in items:
            if self._closed:
                break
            self._in.bytes_used -= size
            count += 1
            received = None
            if body is not None:
                received = SimReceived(record, body, self if leased else None)
                if leased:
                    self.held.add(received)
            self.observer.arrives(self.owner, record)
            deliver(record, received)  # type: ignore[arg-type]
        return count

    def occupancy(self) -> Occupancy:
        out, into = self._out, self._in
        return Occupancy(out.bytes_used, out.bytes_max, out.slots_used, out.slots_max, into.bytes_used, len(self.held))

    def close(self) -> None:
        """What is unread goes with the link; what is held stays readable and must still be released."""
        self._closed = True
        self._in.pipe.readable = None
        for _ in self._in.pipe.all():
            pass

    # ------------------------------------------------------------ the world's side

    def has_arrived(self) -> bool:
        return not self._closed and self._in.pipe.has_arrived()

    def unread(self) -> list[Record]:
        return [] if self._closed else [item[0] for _, item in self._in.pipe.waiting()]

    def released(self, received: SimReceived) -> None:
        self.held.discard(received)
        self._in.slots_used -= 1

    def die(self) -> None:
        """The process is gone: the kernel takes back what it held."""
        self.close()
        self.held.clear()


class SimPair:
    """A new link as the head holds it."""

    def __init__(self, plan: LinkPlan, pipes: tuple[Pipe, Pipe], observer: Observer) -> None:
        forth = Direction(pipes[0], plan.ring_bytes, plan.a_to_b_slots, plan.a_to_b_slot_bytes)
        back = Direction(pipes[1], plan.ring_bytes, plan.b_to_a_slots, plan.b_to_a_slot_bytes)
        self._plan = plan
        self._ends = {
            plan.a: SimLink(plan.a, plan.b, forth, back, observer),
            plan.b: SimLink(plan.b, plan.a, back, forth, observer),
        }

    def side(self, process: str) -> tuple[Attach, list[Any]]:
        plan = self._plan
        other = plan.b if process == plan.a else plan.a
        sizes = (plan.a_to_b_slot_bytes, plan.a_to_b_slots, plan.b_to_a_slot_bytes, plan.b_to_a_slots)
        return Attach(other, plan.ring_bytes, *sizes, first=process == plan.a), [self._ends[process]]

    def link(self, process: str) -> SimLink:
        assert process == HEAD
        return self._ends[process]

    def close(self) -> None: ...
