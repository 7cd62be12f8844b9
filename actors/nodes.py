"""The nodes as the head has them: processes, their control channels, and the links between them.

    spawn -> Boot, Attach (every link whose other end lives), Load -> ... Ready -> up
    a node dies -> down: its links are dropped at both ends -> spawn again, new links

The supervisor decides; this carries out, and tells the owner (`Owner`) what became of it. A link serves one life of its
two processes.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any, NamedTuple, Protocol

from omnirt.clock import NS, Clock, LoopClock, Timer
from omnirt.connectors.base import LinkBroken, LinkClosed, Received, link_figures
from omnirt.connectors.ring import RingLink, RingPair
from omnirt.errors import OmnirtError
from omnirt.ids import HEAD, Fence
from omnirt.log import level_of
from omnirt.runtime import supervised as sup
from omnirt.runtime.cells import send
from omnirt.runtime.channel import Channel, ChannelError
from omnirt.runtime.children import Child, Children
from omnirt.runtime.exits import ExitReason
from omnirt.runtime.ref import Peer
from omnirt.runtime.supervised import StageHealth
from omnirt.runtime.supervisor import Supervisor
from omnirt.shm.board import Board
from omnirt.shm.fences import FencePage
from omnirt.shm.segment import SharedMemoryFull
from omnirt.wire.messages import (
    Answer,
    Ask,
    Attach,
    Boot,
    Closed,
    Detach,
    Drain,
    Hello,
    Load,
    LoadFailed,
    Loading,
    Ready,
    Record,
    RequestFailed,
    decode_to_head,
    encode,
)
from omnirt.wire.payload import Payload
from omnirt.wire.plan import LinkPlan, NodePlan, Plan

log = logging.getLogger("omnirt.nodes")

ASK_NS = NS
"""A process in a longer step does not answer; whoever looks at the others waits this long for it."""
PING = -1
"""The number of a supervisor's ping; its answer goes to the supervisor, which keeps its own deadline."""
KILL_S = 5.0


class Parts(NamedTuple):
    """What touches the machine. A simulated world puts its own in their place."""

    clock: Callable[[asyncio.AbstractEventLoop], Clock] = LoopClock
    random: Callable[[], Random] = lambda: Random(secrets.randbits(64))
    fences: Callable[[int], FencePage] = FencePage.create
    board: Callable[[int], Board] = Board.create
    children: Callable[..., Children] = Children
    channel: Callable[..., Channel] = Channel
    pair: Callable[[LinkPlan], RingPair] = RingPair.create


class Process:
    """One running rank of a node, as the head sees it."""

    def __init__(self, node: NodePlan, rank: int, incarnation: int, child: Child) -> None:
        self.node = node
        self.rank = rank
        self.incarnation = incarnation
        self.child = child
        self.channel: Channel
        self.peer: Peer


class Owner(Protocol):
    """Who is told. Calls come one at a time, from the loop."""

    def node_up(self, node: str, peer: Peer, facts: Mapping[str, dict[str, Any]]) -> None: ...

    def node_down(self, node: str, reason: str, in_step: tuple[int, ...]) -> None:
        """`in_step`: the slots of the requests in the step it died in. Told before its links go."""
        ...

    def node_closed(self, node: str, fence: Fence) -> None: ...

    def request_failed(self, message: RequestFailed) -> None: ...

    def record(self, record: Record, body: Received | None) -> None: ...

    def arrived(self) -> None:
        """Everything that had arrived on a link was handed over."""
        ...

    def lost(self, reason: str) -> None:
        """A stage will not come back."""
        ...

    def stopped(self) -> None:
        """After `drain`: every process is gone."""
        ...


class Nodes:
    def __init__(self, plan: Plan, loop: asyncio.AbstractEventLoop, parts: Parts, owner: Owner) -> None:
        self.clock = parts.clock(loop)
        self.random = parts.random()
        self._plan = plan
        self._loop = loop
        self._parts = parts
        self._owner = owner
        self._fences = parts.fences(plan.limits.requests_max)
        ranks = [(node.name, rank) for node in plan.nodes for rank in range(node.ranks)]
        self._lines = {key: line for line, key in enumerate(ranks)}
        self._board = parts.board(len(ranks))
        self.children = parts.children(loop, self._on_exit)
        self.supervisor = Supervisor(plan, self.random, self._progress)
        self._health: tuple[StageHealth, ...] | None = None
        self._timer: Timer | None = None
        self._armed_ns: int | None = None
        self.processes: dict[tuple[str, int], Process] = {}
        self.links: dict[str, RingLink] = {}
        self._chatter = logging.INFO

    # ------------------------------------------------------------ what the owner asks

    def start(self) -> None:
        """Spawn every node. Raises SharedMemoryFull."""
        self._supervise(self.supervisor.start(self.clock.now_ns()))

    def drain(self) -> None:
        """Stop every node, in order and in time."""
        now_ns = self.clock.now_ns()
        self._supervise(self.supervisor.drain(now_ns, now_ns + int(KILL_S * NS)))

    def close(self) -> None:
        """Kill what is left and give everything back. Blocks for a moment."""
        if self._timer is not None:
            self._timer.cancel()  # or it would start a node again
        self.children.terminate_all(KILL_S)
        for process in self.processes.values():
            process.channel.close()
        for peer in list(self.links):
            self._drop_link(peer)
        self._fences.close()
        self._board.close()

    def raise_epoch(self, slot: int) -> int:
        return self._fences.raise_epoch(slot)

    def send(self, process: str, record: Record, payload: Payload | None) -> None:
        """To a process that is gone: nothing happens, its requests are being seen to. Raises LinkFull."""
        link = self.links.get(process)
        if link is not None:
            try:
                send(link, record, payload)
            except LinkClosed:
                return

    def stages(self) -> tuple[StageHealth, ...]:
        """How they are, looked at again only when something has happened."""
        if self._health is None:
            self._health = self.supervisor.state()
        return self._health

    def outstanding(self, node: str, has_work: bool) -> None:
        self._supervise(self.supervisor.work(self.clock.now_ns(), node, has_work))

    async def stats(self) -> dict[str, dict[str, float]]:
        """Per process what it counts, asked now; a process that does not answer in time is empty."""
        peers = [process for process in self.processes.values() if process.rank == 0]
        answers = await asyncio.gather(*(self._ask_stats(process) for process in peers))
        stats = {
            process.node.name: {**value, "answered": float(bool(value))}
            for process, value in zip(peers, answers, strict=True)
        }
        stats[HEAD] = {**link_figures(self.links), "answered": 1.0}
        return stats

    async def _ask_stats(self, process: Process) -> dict[str, float]:
        future: asyncio.Future[Any] = self._loop.create_future()

        def answer(value: Any) -> None:
            if not future.done():
                future.set_result(value)

        process.peer.ask(lambda number: Ask(number, "stats"), ASK_NS, answer)
        value = await future
        return {} if isinstance(value, OmnirtError) else value

    # ------------------------------------------------------------ supervision

    def _supervise(self, effects: list[sup.Effect]) -> None:
        self._health = None
        for effect in effects:
            _EFFECTS[type(effect)](self, effect)
        self._arm()

    def _arm(self) -> None:
        """One timer for whatever the supervisor waits for next; none when it waits for nothing."""
        wanted = self.supervisor.deadline_ns
        if wanted == self._armed_ns:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._armed_ns = wanted
        self._timer = None if wanted is None else self.clock.call_at(wanted, self._on_timer)

    def _on_timer(self) -> None:
        self._armed_ns = self._timer = None
        self._supervise(self.supervisor.timer(self.clock.now_ns()))

    def _progress(self, node: str, rank: int) -> int:
        return self._board.progress(self._lines[node, rank])

    def _do_spawn(self, effect: sup.Spawn) -> None:
        node = self._plan.node(effect.node)
        key = (effect.node, effect.rank)
        self._board.reset(self._lines[key])
        child = self.children.spawn(node, effect.rank, effect.incarnation)
        if child is None:
            return
        process = Process(node, effect.rank, effect.incarnation, child)
        process.channel = self._parts.channel(
            child.sock, self._loop, partial(self._on_message, process), partial(self._on_closed, process)
        )
        process.peer = Peer(effect.node, effect.incarnation, self.clock, partial(self._tell, process))
        self.processes[key] = process
        stages = tuple(self._plan.stage(name) for name in node.stages)
        boot = Boot(
            node, effect.rank, stages, self._plan.edges, effect.incarnation, self._fences.slots,
            self._lines[key], len(self._lines), level_of(log),
        )  # fmt: skip
        process.channel.send(encode(boot), [self._fences.fd, self._board.fd])
        try:
            if effect.rank == 0:
                self._link_up(process)
        except (SharedMemoryFull, OSError) as error:
            if effect.incarnation == 1:
                raise
            log.error("it cannot be linked: %s", error, extra={"node": effect.node})
            self.children.kill(*key, effect.incarnation)  # to be tried again, with the patience of a restart
            return
        process.channel.send(encode(Load()))

    def _link_up(self, process: Process) -> None:
        """New links between this process and every other that lives; nothing of an earlier life is used again."""
        name = process.node.name
        for plan in self._plan.links:
            if name not in (plan.a, plan.b):
                continue
            other = plan.b if plan.a == name else plan.a
            partner = self.processes.get((other, 0))
            if other != HEAD and partner is None:
                continue
            pair = self._parts.pair(plan)
            try:
                self._hand_over(process, *pair.side(name))
                if partner is not None:
                    self._hand_over(partner, *pair.side(other))
                else:
                    self._drop_link(name)
                    link = self.links[name] = pair.link(HEAD)
                    self._loop.add_reader(link.fileno(), partial(self._pump, link))
            finally:
                pair.close()

    def _hand_over(self, process: Process, message: Attach, fds: list[int]) -> None:
        process.channel.send(encode(message), fds)

    def _drop_link(self, peer: str) -> None:
        link = self.links.pop(peer, None)
        if link is not None:
            self._loop.remove_reader(link.fileno())
            link.close()

    def _do_kill(self, effect: sup.Kill) -> None:
        log.debug("killed: %s", effect.why, extra={"node": effect.node, "rank": effect.rank})  # a NodeDown says it too
        self.children.kill(effect.node, effect.rank, effect.incarnation)

    def _do_drain(self, effect: sup.SendDrain) -> None:
        process = self.processes.get((effect.node, effect.rank))
        if process is not None:
            self._tell(process, Drain())

    def _do_ping(self, effect: sup.Ping) -> None:
        process = self.processes.get((effect.node, effect.rank))
        if process is not None:
            self._tell(process, Ask(PING, "ping"))

    def _do_up(self, effect: sup.NodeUp) -> None:
        log.log(self._chatter, "ready", extra={"node": effect.node})
        self._owner.node_up(effect.node, self.processes[effect.node, 0].peer, effect.facts)

    def _do_down(self, effect: sup.NodeDown) -> None:
        """The node's requests are told first; its links go, so that nothing it left behind is read any more."""
        what, fields = "did not start" if effect.cause in _NOT_STARTED else "down", {"node": effect.node}
        if effect.cause == "drained":
            log.info("down: %s", effect.text, extra=fields)
        else:
            log.error("%s: %s", what, effect.text, extra=fields)
        in_step = tuple(self._board.in_step(self._lines[effect.node, 0]))
        self._owner.node_down(effect.node, effect.text, in_step)
        process = self.processes.get((effect.node, 0))
        if process is not None:
            process.peer.down(effect.text)
        self._drop_link(effect.node)
        for plan in self._plan.links:
            if effect.node in (plan.a, plan.b):
                partner = self.processes.get((plan.b if plan.a == effect.node else plan.a, 0))
                if partner is not None:
                    self._tell(partner, Detach(effect.node))

    def _do_escalate(self, effect: sup.Escalate) -> None:
        self._chatter = logging.DEBUG  # how the others come on is of no interest any more
        self._owner.lost(effect.reason)

    def _do_drained(self, effect: sup.Drained) -> None:
        self._owner.stopped()

    # ------------------------------------------------------------ what arrives

    def _tell(self, process: Process, message: Any) -> None:
        process.channel.send(encode(message))

    def _on_message(self, process: Process, data: bytes, fds: list[int]) -> None:
        message = decode_to_head(data)
        now_ns = self.clock.now_ns()
        node, rank, life = process.node.name, process.rank, process.incarnation
        if isinstance(message, RequestFailed):
            self._owner.request_failed(message)
        elif isinstance(message, Closed):
            self._read(node)  # what it sent for the request lies before this
            self._owner.node_closed(node, message.fence)
        elif isinstance(message, Answer):
            if message.question == PING:
                self._supervise(self.supervisor.pong(now_ns, node, rank, life))
            else:
                process.peer.answered(message.question, message.value)
        elif isinstance(message, Hello):
            self._supervise(self.supervisor.hello(now_ns, node, rank, life))
        elif isinstance(message, Loading):
            log.log(self._chatter, "%s", message.text, extra={"node": node, "stage": message.stage})
            self._supervise(self.supervisor.loading(now_ns, node, life, f"{message.stage}: {message.text}"))
        elif isinstance(message, Ready):
            self._supervise(self.supervisor.ready(now_ns, node, rank, life, message.facts))
        else:
            assert isinstance(message, LoadFailed)
            self._supervise(self.supervisor.load_failed(now_ns, node, rank, life, message.failure))

    def _on_closed(self, process: Process, why: ChannelError | None) -> None:
        text = str(why) if why else "its control channel closed"
        now_ns = self.clock.now_ns()
        self._supervise(
            self.supervisor.channel_closed(now_ns, process.node.name, process.rank, process.incarnation, text)
        )

    def _on_exit(self, name: str, rank: int, incarnation: int, reason: ExitReason) -> None:
        process = self.processes.get((name, rank))
        if process is not None and process.incarnation == incarnation:
            process.channel.drain()
            process.channel.close()
            process.peer.down(reason.describe())
            del self.processes[name, rank]
        self._supervise(self.supervisor.exited(self.clock.now_ns(), name, rank, incarnation, reason))

    def _pump(self, link: RingLink) -> None:
        try:
            link.pump(self._owner.record)
        except LinkBroken as error:
            self._broken(link, error)
        finally:
            self._owner.arrived()

    def _read(self, node: str) -> None:
        """Take what has arrived from this node; its doorbell need not have rung."""
        link = self.links.get(node)
        if link is not None:
            try:
                while link.drain(self._owner.record):
                    pass
            except LinkBroken as error:
                self._broken(link, error)

    def _broken(self, link: RingLink, error: LinkBroken) -> None:
        log.error("the link from %s is broken: %s", link.peer, error)
        process = self.processes.get((link.peer, 0))
        if process is not None:
            self.children.kill(link.peer, 0, process.incarnation)


_NOT_STARTED = ("load_failed", "load_limit", "spawn")
_EFFECTS: dict[type, Any] = {
    sup.Spawn: Nodes._do_spawn,
    sup.Kill: Nodes._do_kill,
    sup.SendDrain: Nodes._do_drain,
    sup.Ping: Nodes._do_ping,
    sup.NodeUp: Nodes._do_up,
    sup.NodeDown: Nodes._do_down,
    sup.Escalate: Nodes._do_escalate,
    sup.Drained: Nodes._do_drained,
}
