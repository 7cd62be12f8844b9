"""The production head in a simulated world: its clock, links, channels and children are ours, the rest is its own."""

# pyright: reportUnknownMemberType=false, reportUnknownLambdaType=false
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any

from omnirt.ids import HEAD
from omnirt.loader import resolve
from omnirt.runtime.children import Child
from omnirt.runtime.exits import ExitReason
from omnirt.testing.faults import LoadFault
from omnirt.testing.sim.clock import SimLoop
from omnirt.testing.sim.ground import Ground
from omnirt.testing.sim.links import SimPair
from omnirt.testing.sim.pipe import Socket
from omnirt.testing.sim.process import SimNode
from omnirt.wire.messages import Record
from omnirt.wire.payload import Payload
from omnirt.wire.plan import LinkPlan, NodePlan

EOF_MARK = None
NOTICE_US_MAX = 500
"""From the end of a process to the head's notice of it."""


class SimChannel:
    """The head's end of a control socketpair."""

    def __init__(
        self,
        socket: Socket,
        loop: SimLoop,
        on_message: Callable[[bytes, list[int]], None],
        on_closed: Callable[[Exception | None], None],
    ) -> None:
        self._socket = socket
        self._loop = loop
        self._on_message = on_message
        self._on_closed = on_closed
        self._closed = False
        socket.to_head.readable = lambda: loop.readable(self, self._readable)
        if socket.to_head.has_arrived():
            loop.readable(self, self._readable)

    def send(self, data: bytes, fds: Sequence[Any] = ()) -> None:
        if not self._closed:
            self._socket.to_node.put((data, list(fds)))

    def drain(self) -> None:
        """What the process wrote before it ended has arrived, whatever its delay."""
        self._deliver(self._socket.to_head.all())

    def close(self) -> None:
        self._closed = True
        self._socket.to_head.readable = None

    def _readable(self) -> None:
        if not self._closed:
            self._deliver(self._socket.to_head.arrived())

    def _deliver(self, items: Any) -> None:
        for item in items:
            if self._closed:
                return
            if item is EOF_MARK:
                self.close()
                self._loop.call_soon(lambda: self._on_closed(None))
                return
            self._on_message(*item)


class SimChildren:
    """Spawns simulated nodes."""

    def __init__(self, ground: Ground, loop: SimLoop, on_exit: Callable[[str, int, int, ExitReason], None]) -> None:
        self._ground = ground
        self._loop = loop
        self._on_exit = on_exit
        self.nodes: dict[str, SimNode] = {}
        """The present life of each node."""
        self.bad_loads: dict[tuple[str, int], LoadFault] = {}
        self.on_kill: Callable[[SimNode], None] = lambda node: None

    def spawn(self, node: NodePlan, rank: int, incarnation: int) -> Child | None:
        ground = self._ground
        fault = self.bad_loads.get((node.name, incarnation))
        if fault is LoadFault.SPAWN:
            reason = ExitReason("spawn", 12, text="no memory")
            self._loop.call_soon(self._on_exit, node.name, rank, incarnation, reason)
            return None
        socket = Socket(ground.control_pipe(), ground.control_pipe())
        process = SimNode(ground, node.name, incarnation, socket, fault)
        process.on_exit = lambda ended, kind, code: self._ended(ended, socket, kind, code)
        self.nodes[node.name] = process
        ground.observer.note(f"spawn {node.name} {incarnation}")
        return Child(node.name, rank, incarnation, 1, socket)  # type: ignore[arg-type]

    def kill(self, name: str, rank: int, incarnation: int) -> None:
        node = self.nodes.get(name)
        if node is not None and node.incarnation == incarnation and node.alive:
            self.on_kill(node)
            node.end("signal", 9)

    def terminate_all(self, timeout_s: float) -> list[str]:
        return []

    def alive(self) -> int:
        return sum(node.alive for node in self.nodes.values())

    def _ended(self, node: SimNode, socket: Socket, kind: str, code: int) -> None:
        """The pidfd and the end of the channel are noticed apart, in either order."""
        ground = self._ground
        ground.observer.note(f"exit {node.name} {node.incarnation} {kind}")
        ground.observer.count("exits")
        socket.to_head.put(EOF_MARK)
        reason = ExitReason(kind, code)  # type: ignore[arg-type]
        notice_ns = int(ground.random.random() * NOTICE_US_MAX * 1000)
        told = partial(self._on_exit, node.name, 0, node.incarnation, reason)
        ground.clock.after(notice_ns, lambda: self._loop.readable(node, told))


def simulated_head(ground: Ground, loop: SimLoop, seed: int) -> Any:
    """A head for the ground's plan; `head.children` are its nodes."""
    head_class: Any = resolve("omnirt.actors.head:Head")
    parts_class: Any = resolve("omnirt.actors.head:Parts")

    class SimHead(head_class):  # type: ignore[misc]
        children: SimChildren
        on_ended: Callable[[Any, Any], None]
        note_entry: Callable[[Any], None]
        work_since: dict[str, int]
        """Nodes with open requests, and when they got the first of them."""

        def send(self, process: str, record: Record, payload: Payload | None) -> None:
            ground.observer.leaves("head", record)
            super().send(process, record, payload)

        def ended(self, submit: Any, outcome: Any, started_ns: int, attempts: int) -> None:
            super().ended(submit, outcome, started_ns, attempts)
            self.on_ended(submit, outcome)

        def outstanding(self, node: str, has_work: bool) -> None:
            if has_work:
                self.work_since[node] = ground.clock.now_ns()
            else:
                self.work_since.pop(node, None)
            super().outstanding(node, has_work)

        def orchestrator_actor(self) -> Any:
            return self._system._entries["orchestrator"].actor

    def children(loop: SimLoop, on_exit: Any) -> SimChildren:
        SimHead.children = SimChildren(ground, loop, on_exit)
        return SimHead.children

    def pair(plan: LinkPlan) -> SimPair:
        made = SimPair(plan, (ground.data_pipe(), ground.data_pipe()), ground.observer)
        if HEAD in (plan.a, plan.b):
            ground.head_links.append(made.link(HEAD))
        return made

    parts = parts_class(
        clock=lambda loop: ground.clock,
        random=lambda: Random(seed),
        fences=lambda slots: ground.fences,
        board=lambda lines: ground.board,
        children=children,
        channel=SimChannel,
        pair=pair,
    )
    SimHead.work_since = {}
    return SimHead(ground.plan, loop, parts)
