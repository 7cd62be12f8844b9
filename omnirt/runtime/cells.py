"""The cells of one node and how messages reach them: pure, so that a simulated node runs the same code.

    control (head)  -> Open, Close -> cell        steps run one at a time, here: a node has one thread, because
    records (links) -> a row's inbox              handing every step to another would cost two wake-ups per hop
    turn()          -> one step of the next cell that has rows

A stage actor's mailbox is the inboxes of its rows, bounded by credit: records go straight there, and only a step reads
them. Control takes effect when it is read, between steps, so it is never behind data.

The world around it (`NodeWorld`) brings bytes, time and death.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from omnirt.connectors.base import LinkClosed
from omnirt.errors import Failure, StageFailed
from omnirt.ids import Fence
from omnirt.runtime.cell import Cell
from omnirt.runtime.stage import Context, Stage
from omnirt.wire.codec import Packing
from omnirt.wire.messages import Answer, Ask, Boot, Chunk, Close, Closed, Credit, Opens, Record, RequestFailed, ToHead
from omnirt.wire.payload import Payload
from omnirt.wire.plan import StagePlan


class Link(Protocol):
    def send(self, record: Record, packing: Packing | None) -> None: ...


def send(link: Link, record: Record, payload: Payload | None) -> None:
    """Send a record; a chunk gets its header from the payload. Raises what `Link.send` raises, and StageFailed."""
    if payload is None:
        link.send(record, None)
    else:
        assert isinstance(record, Chunk)
        try:
            packing = Packing(payload)
        except (TypeError, ValueError, OverflowError) as error:
            raise StageFailed(f"a {type(payload).__name__} cannot travel: {error}") from error
        link.send(Chunk(record.edge, record.request, record.fence, record.seq, packing.header), packing)


class NodeWorld(Protocol):
    def is_stale(self, fence: Fence) -> bool: ...

    def now_ns(self) -> int: ...

    def link(self, process: str) -> Link | None:
        """None when that process is gone."""
        ...

    def drain(self) -> None:
        """Hand over what has arrived on every link (`record`)."""
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
        self._cells: dict[str, Cell] = {}
        self._receivers: list[Cell | None] = [None] * len(boot.edges)
        """By edge: whose chunks and ends they are."""
        self._senders: list[Cell | None] = [None] * len(boot.edges)
        """By edge: whose credits they are."""
        self._ready: deque[Cell] = deque()
        self.is_stale = world.is_stale
        self.now_ns = world.now_ns
        self.execute = world.execute
        self.die = world.die

    def add(self, plan: StagePlan, stage: Stage, context: Context) -> None:
        """Take up a stage that was started."""
        cell = self._cells[plan.name] = Cell(plan, self._edges, stage, context, self)
        for edge in self._edges:
            if edge.target == plan.name:
                self._receivers[edge.index] = cell
            if edge.source == plan.name:
                self._senders[edge.index] = cell

    # ------------------------------------------------------------ arrivals

    def open(self, message: Opens) -> None:
        for opening in message.opens:
            self._cells[opening.stage].open(opening)

    def close(self, message: Close) -> None:
        """What was sent under the old fence has arrived by now: it is read first, so that none of it is left."""
        self._world.drain()
        for cell in self._cells.values():
            cell.close(message)
        self._world.tell_head(Closed(message.request, message.fence))

    def ask(self, message: Ask, links: Mapping[str, float] | None = None) -> None:
        """`links`: what the process says of them, to go with the answer."""
        value = {**self.stats(), **(links or {})} if message.what == "stats" else {}
        self._world.tell_head(Answer(message.question, value))

    def record(self, record: Record, body: Any) -> None:
        """A record from a link, or from a cell of this node (then `body` is the payload itself)."""
        cell = (self._senders if type(record) is Credit else self._receivers)[record.edge]
        assert cell is not None, f"{self.process} has no stage at its end of edge {record.edge}"
        cell.record(record, body)

    def turn(self) -> None:
        """Run one step. Steps yield to the loop, so control is seen between them."""
        if self._ready:
            self._ready.popleft().step()
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
        try:
            send(link, record, payload)
        except LinkClosed:  # that process is gone: its requests are being seen to
            return

    def failed(self, request: int, fence: Fence, failure: Failure) -> None:
        self._world.tell_head(RequestFailed(request, fence, failure))

    def ready(self, cell: Cell) -> None:
        if cell not in self._ready:
            if not self._ready:
                self._world.wake()
            self._ready.append(cell)

    def stats(self) -> dict[str, float]:
        return {f"{name}.{key}": value for name, cell in self._cells.items() for key, value in cell.stats().items()}
