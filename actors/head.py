"""The head: the process that owns everything. It starts nodes, links them, runs the orchestrator and the supervisor.

    spawn node -> Boot, Attach (every link whose other end lives), Load -> ... Ready -> NodeUp
    a node dies -> NodeDown: its links are dropped at both ends, its requests are seen to -> spawn again, new links

The head's loop only moves messages. Implements `Service` for the gateway and the worlds of orchestrator and sessions.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, NamedTuple

import msgspec

from omnirt.actors.live import LiveRequest
from omnirt.actors.orchestrator import (
    Admit,
    Admitted,
    CancelPublic,
    Counts,
    EndAll,
    GiveUp,
    NodeClosed,
    NodeDown,
    NodeUp,
    Orchestrator,
    StopAdmitting,
)
from omnirt.clock import NS, Clock, LoopClock, Timer
from omnirt.connectors.base import LinkBroken, LinkClosed, Received
from omnirt.connectors.ring import RingLink, RingPair
from omnirt.errors import NotReady, OmnirtError
from omnirt.ids import CLIENT, HEAD
from omnirt.runtime import supervised as sup
from omnirt.runtime.actor import System
from omnirt.runtime.cells import send
from omnirt.runtime.channel import Channel, ChannelError
from omnirt.runtime.children import Child, Children
from omnirt.runtime.exits import ExitReason
from omnirt.runtime.mailbox import MailboxFull
from omnirt.runtime.ref import Peer
from omnirt.runtime.supervisor import Supervisor
from omnirt.session.service import Done, Failed, ServiceState, StageState, Submit
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

log = logging.getLogger("omnirt.head")

ASK_NS = 2 * NS
PING = -1
"""The number of a supervisor's ping; its answer goes to the supervisor, which keeps its own deadline."""
FAREWELL_S = 1.0
"""Between giving up and exiting: time for the errors to reach the clients."""
KILL_S = 5.0
_LEVELS = {"cancelled": logging.INFO}


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

    @property
    def key(self) -> tuple[str, int]:
        return self.node.name, self.rank


class Head:
    def __init__(self, plan: Plan, loop: asyncio.AbstractEventLoop, parts: Parts | None = None) -> None:
        parts = parts or Parts()
        self.plan = plan
        self.clock = parts.clock(loop)
        self.random = parts.random()
        self.finished: asyncio.Future[int] = loop.create_future()
        """The exit status, once the head has nothing left to do."""
        self._loop = loop
        self._parts = parts
        self._woken = False
        self._draining = False
        self._on_ready: Callable[[], None] | None = None
        self._system = System(self.clock, self._wake)
        self._fences = parts.fences(plan.limits.requests_max)
        self._lines = {(node.name, rank): 0 for node in plan.nodes for rank in range(node.ranks)}
        self._lines = {key: line for line, key in enumerate(self._lines)}
        self._board = parts.board(len(self._lines))
        self._children = parts.children(loop, self._on_exit)
        self._supervisor = Supervisor(plan, self.random, self._progress)
        self._timer: Timer | None = None
        self._armed_ns: int | None = None
        self._processes: dict[tuple[str, int], Process] = {}
        self._links: dict[str, RingLink] = {}
        self._facts: dict[str, dict[str, Any]] = {}
        self._modalities = {edge.index: edge.to_port for edge in plan.edges if edge.target == CLIENT}
        orchestrator = Orchestrator(plan, self._system, self)
        self._orchestrator = orchestrator.ref = self._system.spawn("orchestrator", orchestrator)
        self._orchestrator.monitor(lambda down: self._give_up(f"the orchestrator {down.reason}"))

    # ------------------------------------------------------------ life

    def start(self) -> None:
        """Spawn every node. Raises SharedMemoryFull."""
        self._supervise(self._supervisor.start(self.clock.now_ns()))

    def on_ready(self, call: Callable[[], None]) -> None:
        """Call once, when every stage is up for the first time."""
        self._on_ready = call
        self._maybe_ready()

    def stop_now(self) -> None:
        """Do not wait for anything; who waits for us hears of it."""
        self._end_all()
        self._finish(1)

    def drain(self) -> None:
        """Refuse what comes, finish what runs within the drain limit, then stop the nodes and finish with 0."""
        self._draining = True
        self._orchestrator.tell(StopAdmitting())
        limit_ns = int(self.plan.limits.drain_s * NS)
        self.clock.call_at(self.clock.now_ns() + limit_ns, self._drain_limit)

    def _drain_limit(self) -> None:
        """What still runs ends typed, and the nodes are stopped without waiting for what they do."""
        self._end_all()
        self.drained()

    def _end_all(self) -> None:
        text = "the server stopped before the request was finished"
        self._orchestrator.tell(EndAll(NotReady(text, reason="shutting_down")))

    def drained(self) -> None:
        """Nothing runs any more, or the drain limit has passed."""
        now_ns = self.clock.now_ns()
        self._supervise(self._supervisor.drain(now_ns, now_ns + int(KILL_S * NS)))

    def close(self) -> None:
        """Kill what is left and give everything back. Blocks for a moment; the last thing a head does."""
        if self._timer is not None:
            self._timer.cancel()  # or it would start a node again
        self._children.terminate_all(KILL_S)
        for process in self._processes.values():
            process.channel.close()
        for peer in list(self._links):
            self._drop_link(peer)
        self._fences.close()
        self._board.close()

    def _maybe_ready(self) -> None:
        if self._on_ready is not None and all(stage.ready == stage.replicas for stage in self._supervisor.state()):
            call, self._on_ready = self._on_ready, None
            call()

    def _give_up(self, reason: str) -> None:
        log.critical("giving up: %s", reason)
        self._orchestrator.tell(GiveUp(reason))
        self.clock.call_at(self.clock.now_ns() + int(FAREWELL_S * NS), lambda: self._finish(1))

    def _finish(self, status: int) -> None:
        if not self.finished.done():
            self.finished.set_result(status)

    # ------------------------------------------------------------ Service

    def submit(self, request: Submit) -> LiveRequest:
        admitted: Admitted = self._system.call(self._orchestrator, Admit(request))
        return LiveRequest(request.public_id, admitted.session, admitted.outlet, self._modalities, self._system)

    def state(self) -> ServiceState:
        counts: Counts = self._system.call(self._orchestrator, "count")
        stages = tuple(
            StageState(stage.name, stage.state, stage.ready, stage.replicas, stage.detail, stage.restarts)
            for stage in self._supervisor.state()
        )
        states = {stage.state for stage in stages}
        if self._draining:
            state = "draining"
        elif all(stage.ready == stage.replicas for stage in stages):
            state = "ready"
        elif all(stage.ready for stage in stages):
            state = "degraded"
        else:
            state = "unavailable" if "failed" in states or "restarting" in states else "loading"
        return ServiceState(state, stages, counts.running, counts.waiting, self.plan.limits.requests_max)

    def facts(self) -> dict[str, dict[str, Any]]:
        return self._facts

    def cancel(self, public_id: str) -> str:
        return self._system.call(self._orchestrator, CancelPublic(public_id))

    async def stats(self) -> dict[str, dict[str, float]]:
        peers = [process for process in self._processes.values() if process.rank == 0]
        answers = await asyncio.gather(*(self._ask_stats(process) for process in peers))
        stats = {process.node.name: value for process, value in zip(peers, answers, strict=True)}
        stats[HEAD] = {}
        for peer, link in self._links.items():
            for name, value in msgspec.structs.asdict(link.occupancy()).items():
                stats[HEAD][f"link.{peer}.{name}"] = value
        return stats

    async def _ask_stats(self, process: Process) -> dict[str, float]:
        future: asyncio.Future[Any] = self._loop.create_future()

        def answer(value: Any) -> None:
            if not future.done():
                future.set_result(value)

        process.peer.ask(lambda number: Ask(number, "stats"), ASK_NS, answer)
        value = await future
        return {} if isinstance(value, OmnirtError) else value

    # ------------------------------------------------------------ worlds of orchestrator and sessions

    def raise_epoch(self, slot: int) -> int:
        return self._fences.raise_epoch(slot)

    def send(self, process: str, record: Record, payload: Payload | None) -> None:
        link = self._links.get(process)
        if link is not None:
            with contextlib.suppress(LinkClosed):
                send(link, record, payload)

    def outstanding(self, node: str, has_work: bool) -> None:
        self._supervise(self._supervisor.work(self.clock.now_ns(), node, has_work))

    def ended(self, submit: Submit, outcome: Done | Failed, started_ns: int, attempts: int) -> None:
        fields = {"request": submit.public_id, "attempts": attempts}
        fields["seconds"] = f"{(self.clock.now_ns() - started_ns) / NS:.3f}"
        if isinstance(outcome, Done):
            log.info("done", extra=fields)
        else:
            failure = outcome.failure
            text = f"{failure.code}: {failure.message}"
            log.log(_LEVELS.get(failure.code, logging.WARNING), text, extra={**fields, "stage": failure.stage or "-"})

    # ------------------------------------------------------------ supervision

    def _supervise(self, effects: list[sup.Effect]) -> None:
        for effect in effects:
            _EFFECTS[type(effect)](self, effect)
        self._arm()

    def _arm(self) -> None:
        """One timer for whatever the supervisor waits for next; none when it waits for nothing."""
        wanted = self._supervisor.deadline_ns
        if wanted == self._armed_ns:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._armed_ns = wanted
        self._timer = None if wanted is None else self.clock.call_at(wanted, self._on_timer)

    def _on_timer(self) -> None:
        self._armed_ns = self._timer = None
        self._supervise(self._supervisor.timer(self.clock.now_ns()))

    def _progress(self, node: str, rank: int) -> int:
        return self._board.progress(self._lines[node, rank])

    def _do_spawn(self, effect: sup.Spawn) -> None:
        node = self.plan.node(effect.node)
        key = (effect.node, effect.rank)
        self._board.reset(self._lines[key])
        child = self._children.spawn(node, effect.rank, effect.incarnation)
        if child is None:
            return
        process = Process(node, effect.rank, effect.incarnation, child)
        process.channel = self._parts.channel(
            child.sock, self._loop, partial(self._on_message, process), partial(self._on_closed, process)
        )
        process.peer = Peer(effect.node, effect.incarnation, self.clock, partial(self._tell, process))
        self._processes[key] = process
        stages = tuple(self.plan.stage(name) for name in node.stages)
        boot = Boot(
            node, effect.rank, stages, self.plan.edges, effect.incarnation, self._fences.slots,
            self._lines[key], len(self._lines),
        )  # fmt: skip
        process.channel.send(encode(boot), [self._fences.fd, self._board.fd])
        try:
            if effect.rank == 0:
                self._link_up(process)
        except (SharedMemoryFull, OSError) as error:
            if effect.incarnation == 1:
                raise
            log.error("it cannot be linked: %s", error, extra={"node": effect.node})
            self._children.kill(*key, effect.incarnation)  # to be tried again, with the patience of a restart
            return
        process.channel.send(encode(Load()))

    def _link_up(self, process: Process) -> None:
        """New links between this process and every other that lives; nothing of an earlier life is used again."""
        name = process.node.name
        for plan in self.plan.links:
            if name not in (plan.a, plan.b):
                continue
            other = plan.b if plan.a == name else plan.a
            partner = self._processes.get((other, 0))
            if other != HEAD and partner is None:
                continue
            pair = self._parts.pair(plan)
            try:
                self._hand_over(process, *pair.side(name))
                if partner is not None:
                    self._hand_over(partner, *pair.side(other))
                else:
                    self._drop_link(name)
                    link = self._links[name] = pair.link(HEAD)
                    self._loop.add_reader(link.fileno(), partial(self._pump, link))
            finally:
                pair.close()

    def _hand_over(self, process: Process, message: Attach, fds: list[int]) -> None:
        process.channel.send(encode(message), fds)

    def _drop_link(self, peer: str) -> None:
        link = self._links.pop(peer, None)
        if link is not None:
            self._loop.remove_reader(link.fileno())
            link.close()

    def _do_kill(self, effect: sup.Kill) -> None:
        log.error("killed: %s", effect.why, extra={"node": effect.node, "rank": effect.rank})
        self._children.kill(effect.node, effect.rank, effect.incarnation)

    def _do_drain(self, effect: sup.SendDrain) -> None:
        process = self._processes.get((effect.node, effect.rank))
        if process is not None:
            self._tell(process, Drain())

    def _do_ping(self, effect: sup.Ping) -> None:
        process = self._processes.get((effect.node, effect.rank))
        if process is not None:
            self._tell(process, Ask(PING, "ping"))

    def _do_up(self, effect: sup.NodeUp) -> None:
        self._facts.update(effect.facts)
        log.info("ready", extra={"node": effect.node})
        self._orchestrator.tell(NodeUp(effect.node, self._processes[effect.node, 0].peer))
        self._maybe_ready()

    def _do_down(self, effect: sup.NodeDown) -> None:
        """The node's requests are told first; its links go, so that nothing it left behind is read any more."""
        log.log(
            logging.INFO if effect.cause == "drained" else logging.ERROR,
            "down: %s",
            effect.text,
            extra={"node": effect.node},
        )
        in_step = tuple(self._board.in_step(self._lines[effect.node, 0]))
        self._orchestrator.tell(NodeDown(effect.node, effect.text, in_step))
        process = self._processes.get((effect.node, 0))
        if process is not None:
            process.peer.down(effect.text)
        self._drop_link(effect.node)
        for plan in self.plan.links:
            if effect.node in (plan.a, plan.b):
                partner = self._processes.get((plan.b if plan.a == effect.node else plan.a, 0))
                if partner is not None:
                    self._tell(partner, Detach(effect.node))

    def _do_escalate(self, effect: sup.Escalate) -> None:
        self._give_up(effect.reason)

    def _do_drained(self, effect: sup.Drained) -> None:
        self._finish(0)

    # ------------------------------------------------------------ what arrives

    def _tell(self, process: Process, message: Any) -> None:
        process.channel.send(encode(message))

    def _on_message(self, process: Process, data: bytes, fds: list[int]) -> None:
        message = decode_to_head(data)
        now_ns = self.clock.now_ns()
        node, rank, life = process.node.name, process.rank, process.incarnation
        if isinstance(message, RequestFailed):
            self._orchestrator.tell(message)
        elif isinstance(message, Closed):
            self._read(node)  # what it sent for the request lies before this
            self._orchestrator.tell(NodeClosed(node, message.fence))
        elif isinstance(message, Answer):
            if message.question == PING:
                self._supervise(self._supervisor.pong(now_ns, node, rank, life))
            else:
                process.peer.answered(message.question, message.value)
        elif isinstance(message, Hello):
            self._supervise(self._supervisor.hello(now_ns, node, rank, life))
        elif isinstance(message, Loading):
            log.info(message.text, extra={"node": node, "stage": message.stage})
            self._supervise(self._supervisor.loading(now_ns, node, life, f"{message.stage}: {message.text}"))
        elif isinstance(message, Ready):
            self._supervise(self._supervisor.ready(now_ns, node, rank, life, message.facts))
        else:
            assert isinstance(message, LoadFailed)
            self._supervise(self._supervisor.load_failed(now_ns, node, rank, life, message.failure))

    def _on_closed(self, process: Process, why: ChannelError | None) -> None:
        text = str(why) if why else "its control channel closed"
        now_ns = self.clock.now_ns()
        self._supervise(
            self._supervisor.channel_closed(now_ns, process.node.name, process.rank, process.incarnation, text)
        )

    def _on_exit(self, name: str, rank: int, incarnation: int, reason: ExitReason) -> None:
        process = self._processes.get((name, rank))
        if process is not None and process.incarnation == incarnation:
            process.channel.drain()
            process.channel.close()
            process.peer.down(reason.describe())
            del self._processes[name, rank]
        self._supervise(self._supervisor.exited(self.clock.now_ns(), name, rank, incarnation, reason))

    def _pump(self, link: RingLink) -> None:
        self._woken = True  # `run` follows at once
        try:
            link.pump(self._deliver)
        except LinkBroken as error:
            self._broken(link, error)
        finally:
            self._run()

    def _read(self, node: str) -> None:
        """Take what has arrived from this node; its doorbell need not have rung."""
        link = self._links.get(node)
        if link is not None:
            try:
                while link.drain(self._deliver):
                    pass
            except LinkBroken as error:
                self._broken(link, error)

    def _broken(self, link: RingLink, error: LinkBroken) -> None:
        log.error("the link from %s is broken: %s", link.peer, error)
        process = self._processes.get((link.peer, 0))
        if process is not None:
            self._children.kill(link.peer, 0, process.incarnation)

    def _deliver(self, record: Record, body: Received | None) -> None:
        session = self._system.find(f"session/{record.request}")
        if session is not None:
            try:
                if session.data((record, body)) is None:
                    return
            except MailboxFull:
                log.error("session/%d has a full mailbox: a node sends more than its credit", record.request)
        if body is not None:
            body.release()

    def _wake(self) -> None:
        if not self._woken:
            self._woken = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        self._woken = False
        self._system.run()


_EFFECTS: dict[type, Any] = {
    sup.Spawn: Head._do_spawn,
    sup.Kill: Head._do_kill,
    sup.SendDrain: Head._do_drain,
    sup.Ping: Head._do_ping,
    sup.NodeUp: Head._do_up,
    sup.NodeDown: Head._do_down,
    sup.Escalate: Head._do_escalate,
    sup.Drained: Head._do_drained,
}
