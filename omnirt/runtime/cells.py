"""The cells of one node and how messages reach them: pure, so that a simulated node runs the same code.

    control (head)  -> Open, Close -> cell        steps run one at a time, here: a node has one thread, because
    records (links) -> cell's mailbox             handing every step to another would cost two wake-ups per hop
    turn()          -> mailboxes dry, then one step of the next cell that has rows

The world around it (`NodeWorld`) brings bytes, time and death.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from omnirt.clock import Clock
from omnirt.connectors.base import LinkClosed
from omnirt.errors import Failure
from omnirt.ids import Fence
from omnirt.runtime.actor import NearRef, System
from omnirt.runtime.cell import Cell
from omnirt.runtime.mailbox import MailboxFull
from omnirt.runtime.stage import Context, Stage
from omnirt.wire.codec import Packing
from omnirt.wire.messages import Answer, Ask, Boot, Chunk, Close, Credit, Open, Record, RequestFailed, ToHead
from omnirt.wire.payload import Payload
from omnirt.wire.plan import EdgePlan, StagePlan

log = logging.getLogger("omnirt.node")


class Link(Protocol):
    def send(self, record: Record, packing: Packing | None) -> None: ...


def send(link: Link, record: Record, payload: Payload | None) -> None:
    """Send a record; a chunk gets its header from the payload. Raises what `Link.send` raises."""
    if payload is None:
        link.send(record, None)
    else:
        assert isinstance(record, Chunk)
        packing = Packing(payload)
        link.send(Chunk(record.edge, record.request, record.fence, record.seq, packing.header), packing)


class NodeWorld(Protocol):
    clock: Clock

    def is_stale(self, fence: Fence) -> bool: ...

    def link(self, process: str) -> Link | None:
        """None when that process is gone."""
        ...

    def tell_head(self, message: ToHead) -> None: ...

    def execute(self, slots: list[int], work: Callable[[], Any], done: Callable[[Any], None]) -> None: ...

    def wake(self) -> None:
        """Call `turn` soon."""
        ...

    def die(self, reason: str) -> None: ...


class Cells:
    """One node's cells. Implements `CellShell` for each of them."""

    def __init__(self, boot: Boot, world: NodeWorld) -> None:
        self.process = boot.node.name
        self._world = world
        self._edges = boot.edges
        self._slots = boot.slots
        self._system = System(world.clock, world.wake)
        self._cells: dict[str, tuple[Cell, NearRef]] = {}
        self._ready: deque[Cell] = deque()
        self.is_stale = world.is_stale
        self.execute = world.execute
        self.die = world.die

    def add(self, plan: StagePlan, stage: Stage, context: Context) -> None:
        """Take up a stage that was started."""
        cell = Cell(plan, self._edges, stage, context, self)
        ref = self._system.spawn(plan.name, cell, data_max=self._data_max(plan))
        ref.monitor(lambda down: self.die(f"cell {down.name} {down.reason}"))
        self._cells[plan.name] = (cell, ref)

    def _data_max(self, plan: StagePlan) -> int:
        """Records that may be on their way to a cell: per request the credit of its edges, an End each, and twice
        that, because the requests before may have left theirs behind."""
        edges = [edge for edge in self._edges if plan.name in (edge.source, edge.target)]
        return 2 * self._slots * sum(edge.credit + 1 for edge in edges)

    def stages(self) -> list[Stage]:
        return [cell.stage for cell, _ in self._cells.values()]

    # ------------------------------------------------------------ arrivals

    def open(self, message: Open) -> None:
        self._cells[message.stage][1].tell(message)

    def close(self, message: Close) -> None:
        for _, ref in self._cells.values():
            ref.tell(message)

    def ask(self, message: Ask) -> None:
        value = self.stats() if message.what == "stats" else {}
        self._world.tell_head(Answer(message.question, value))

    def record(self, record: Record, body: Any) -> None:
        """A record from a link, or from a cell of this node (then `body` is the payload itself)."""
        edge: EdgePlan = self._edges[record.edge]
        name = edge.source if isinstance(record, Credit) else edge.target
        entry = self._cells.get(name)
        if entry is None:
            log.error("node=%s got a record of edge %d for stage %s", self.process, record.edge, name)
            return
        try:
            entry[1].data((record, body))
        except MailboxFull as error:
            release = getattr(body, "release", None)
            if release is not None:
                release()
            error.stage = name
            self.failed(record.request, record.fence, error.failure())

    def turn(self) -> None:
        """Read every mailbox, then run one step. Steps yield to the loop, so control is seen between them."""
        self._system.run()
        if self._ready:
            self._ready.popleft().step()
            self._system.run()
        if self._ready:
            self._world.wake()

    # ------------------------------------------------------------ CellShell

    def send(self, process: str, record: Record, payload: Payload | None) -> None:
        if process == self.process:
            self.record(record, payload)
            return
        link = self._world.link(process)
        if link is None:
            return
        with contextlib.suppress(LinkClosed):  # that process is gone: its requests are being seen to
            send(link, record, payload)

    def failed(self, request: int, fence: Fence, failure: Failure) -> None:
        self._world.tell_head(RequestFailed(request, fence, failure))

    def ready(self, cell: Cell) -> None:
        if cell not in self._ready:
            if not self._ready:
                self._world.wake()
            self._ready.append(cell)

    def stats(self) -> dict[str, float]:
        return {f"{name}.{key}": value for name, (cell, _) in self._cells.items() for key, value in cell.stats().items()}
