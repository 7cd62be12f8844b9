"""Watches everything that moves and notes what must not happen. Knows the rules, not the code that keeps them.

stale    no record leaves a process behind its fence, or for a request that has ended
epoch    a fence belongs to one attempt of one request, and each stage is opened once under it
credit   no edge of a request carries more chunks than it lent, and none comes back twice
order    chunks of an edge arrive as they were sent
"""

from __future__ import annotations

import traceback
import zlib
from collections.abc import Callable

from omnirt.ids import CLIENT, Fence
from omnirt.testing.sim.clock import SimClock
from omnirt.wire.messages import Chunk, Credit, Open, Record
from omnirt.wire.plan import Plan

FINDINGS_MAX = 40


class Flow:
    """Chunks of one request's edge in one attempt: sent, and given back by the consumer."""

    __slots__ = ("credited", "sent")

    def __init__(self) -> None:
        self.sent = 0
        self.credited = 0


class Observer:
    def __init__(self, clock: SimClock, plan: Plan) -> None:
        self.epochs = [0] * plan.limits.requests_max
        """The fence page."""
        self.findings: list[str] = []
        self.trace = 0
        self.counts: dict[str, int] = {}
        self.fullest = [0.0, 0.0]
        """The highest share of a ring and of a slab ever in use."""
        self.on_first_output: Callable[[str, Chunk], None] = lambda process, record: None
        self._clock = clock
        self._plan = plan
        self._flows: dict[tuple[int, int, int], Flow] = {}
        self._owners: dict[Fence, int] = {}
        self._opened: set[tuple[str, int, str, Fence]] = set()
        self._over: set[int] = set()

    def wrong(self, kind: str, text: str) -> None:
        self.count(f"finding.{kind}")
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(f"{kind}: {text} (at {self._clock.now_ns() / 1e9:.6f} s)")

    def crashed(self, who: str, error: Exception) -> None:
        """Production code raised where nothing may."""
        place = traceback.extract_tb(error.__traceback__)[-1]
        self.wrong("crash", f"{who}: {error!r} at {place.filename.rpartition('/')[2]}:{place.lineno}")

    def count(self, name: str, by: int = 1) -> None:
        self.counts[name] = self.counts.get(name, 0) + by

    def note(self, text: str) -> None:
        """Into the trace: two runs of a seed must agree in it."""
        self.trace = zlib.crc32(f"{self._clock.now_ns()} {text}".encode(), self.trace)

    # ------------------------------------------------------------ records

    def leaves(self, process: str, record: Record) -> None:
        fence = record.fence
        if self.epochs[fence.slot] != fence.epoch:
            name = type(record).__name__
            self.wrong("stale", f"{process} sent a {name} of edge {record.edge} behind its fence")
        elif record.request in self._over:
            self.wrong("stale", f"{process} sent for request {record.request}, which has ended")
        if isinstance(record, Chunk):
            if record.seq == 0 and self._plan.edges[record.edge].target == CLIENT:
                self.on_first_output(process, record)
            flow = self._flow(record)
            flow.sent += 1
            limit = self._plan.edges[record.edge].credit
            if flow.sent - flow.credited > limit:
                lent = f"{flow.sent - flow.credited} of {limit} chunks"
                self.wrong("credit", f"{process} has {lent} of request {record.request} on edge {record.edge}")
        elif isinstance(record, Credit):
            flow = self._flow(record)
            flow.credited += record.count
            if flow.credited > flow.sent:
                self.wrong("credit", f"{process} gave back more of edge {record.edge} than it got")

    def arrives(self, process: str, record: Record) -> None:
        self.count("records")
        self.note(f"{process} {record.edge} {record.request} {record.fence.epoch} {type(record).__name__}")

    def filled(self, ring: float, slab: float) -> None:
        if ring > self.fullest[0]:
            self.fullest[0] = ring
        if slab > self.fullest[1]:
            self.fullest[1] = slab

    def opened(self, process: str, incarnation: int, message: Open) -> None:
        """A stage hears of a request."""
        fence = message.fence
        if self._owners.setdefault(fence, message.request) != message.request:
            self.wrong("epoch", f"requests {self._owners[fence]} and {message.request} run under one fence")
        key = (process, incarnation, message.stage, fence)
        if key in self._opened:
            self.wrong("epoch", f"{process} opens {message.stage} twice under one fence")
        self._opened.add(key)

    def over(self, request: int) -> None:
        """Nobody may send for it any more."""
        self._over.add(request)
        for key in [key for key in self._flows if key[1] == request]:
            del self._flows[key]

    def _flow(self, record: Record) -> Flow:
        key = (record.edge, record.request, record.fence.epoch)
        flow = self._flows.get(key)
        if flow is None:
            flow = self._flows[key] = Flow()
        return flow
