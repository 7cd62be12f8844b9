"""The head: the process that owns everything: nodes, orchestrator and sessions, and the `Service` the gateway sees.

The head's loop only moves messages. This class is the world of the orchestrator and of its sessions, and it hears from
the nodes what became of them (`nodes.Owner`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from omnirt.actors.live import LiveRequest
from omnirt.actors.messages import (
    Admit,
    Admitted,
    CancelPublic,
    Counts,
    EndAll,
    GiveUp,
    NodeClosed,
    NodeDown,
    NodeUp,
    StopAdmitting,
)
from omnirt.actors.nodes import Nodes, Parts
from omnirt.actors.orchestrator import Orchestrator
from omnirt.clock import NS
from omnirt.connectors.base import Received
from omnirt.errors import NotReady
from omnirt.ids import CLIENT, HEAD, Fence
from omnirt.runtime.actor import System
from omnirt.runtime.mailbox import MailboxFull
from omnirt.runtime.ref import Peer
from omnirt.session.service import Done, Failed, ServiceState, StageState, Submit
from omnirt.wire.messages import Record, RequestFailed
from omnirt.wire.payload import Payload
from omnirt.wire.plan import Plan

log = logging.getLogger("omnirt.head")

FAREWELL_S = 1.0
"""Between giving up and exiting: time for the errors to reach the clients."""
_LEVELS = {"cancelled": logging.INFO}


class Head:
    def __init__(self, plan: Plan, loop: asyncio.AbstractEventLoop, parts: Parts | None = None) -> None:
        self.plan = plan
        self.finished: asyncio.Future[int] = loop.create_future()
        """The exit status, once the head has nothing left to do."""
        self.reason = ""
        """Why the head gave up, in one line, if it did."""
        self._loop = loop
        self._woken = False
        self._draining = False
        self._stale = 0
        """Chunks that came for requests that are over."""
        self._on_ready: Callable[[], None] | None = None
        self._facts: dict[str, dict[str, Any]] = {}
        self._modalities = {edge.index: edge.to_port for edge in plan.edges if edge.target == CLIENT}
        self._nodes = Nodes(plan, loop, parts or Parts(), self)
        self.clock = self._nodes.clock
        self.random = self._nodes.random
        self._system = System(self.clock, self._wake)
        orchestrator = Orchestrator(plan, self._system, self)
        self._orchestrator = orchestrator.ref = self._system.spawn("orchestrator", orchestrator)
        self._orchestrator.monitor(lambda down: self.lost(f"the orchestrator {down.reason}"))

    # ------------------------------------------------------------ life

    def start(self) -> None:
        """Spawn every node. Raises SharedMemoryFull."""
        self._nodes.start()

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
        self._nodes.drain()

    def close(self) -> None:
        """Kill what is left and give everything back. Blocks for a moment; the last thing a head does."""
        self._nodes.close()

    def _maybe_ready(self) -> None:
        if self._on_ready is not None and all(stage.ready == stage.replicas for stage in self._nodes.stages()):
            call, self._on_ready = self._on_ready, None
            call()

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
            for stage in self._nodes.stages()
        )
        limit = self.plan.limits.requests_max
        return ServiceState(self.condition(), stages, counts.running, counts.waiting, limit)

    def condition(self) -> str:
        if self._draining:
            return "draining"
        stages = self._nodes.stages()
        if all(stage.ready == stage.replicas for stage in stages):
            return "ready"
        if all(stage.ready for stage in stages):
            return "degraded"
        states = {stage.state for stage in stages}
        return "unavailable" if "failed" in states or "restarting" in states else "loading"

    def facts(self) -> dict[str, dict[str, Any]]:
        return self._facts

    def cancel(self, public_id: str) -> str:
        return self._system.call(self._orchestrator, CancelPublic(public_id))

    async def stats(self) -> dict[str, dict[str, float]]:
        stats = await self._nodes.stats()
        stats[HEAD]["stale_total"] = self._stale
        return stats

    # ------------------------------------------------------------ worlds of orchestrator and sessions

    def raise_epoch(self, slot: int) -> int:
        return self._nodes.raise_epoch(slot)

    def send(self, process: str, record: Record, payload: Payload | None) -> None:
        self._nodes.send(process, record, payload)

    def outstanding(self, node: str, has_work: bool) -> None:
        self._nodes.outstanding(node, has_work)

    def ended(self, submit: Submit, outcome: Done | Failed, started_ns: int, attempts: int) -> None:
        fields = {"request": submit.public_id, "attempts": attempts}
        fields["seconds"] = f"{(self.clock.now_ns() - started_ns) / NS:.3f}"
        if isinstance(outcome, Done):
            log.debug("done", extra=fields)  # the gateway's line says it too
        else:
            failure = outcome.failure
            text = f"{failure.code}: {failure.message}"
            log.log(_LEVELS.get(failure.code, logging.WARNING), text, extra={**fields, "stage": failure.stage or "-"})

    # ------------------------------------------------------------ what the nodes say

    def node_up(self, node: str, peer: Peer, facts: Mapping[str, dict[str, Any]]) -> None:
        self._facts = {**self._facts, **facts}
        self._orchestrator.tell(NodeUp(node, peer))
        self._maybe_ready()

    def node_down(self, node: str, reason: str, in_step: tuple[int, ...]) -> None:
        self._orchestrator.tell(NodeDown(node, reason, in_step))

    def node_closed(self, node: str, fence: Fence) -> None:
        self._orchestrator.tell(NodeClosed(node, fence))

    def request_failed(self, message: RequestFailed) -> None:
        self._orchestrator.tell(message)

    def lost(self, reason: str) -> None:
        what, _, why = reason.partition(": ")
        log.critical("giving up: %s", what)  # the reason has been logged where it came up
        is_by_stage = why.partition(": ")[0] in {stage.name for stage in self.plan.stages}
        self.reason = " ".join((why if is_by_stage else reason).split())
        self._orchestrator.tell(GiveUp(reason))
        self.clock.call_at(self.clock.now_ns() + int(FAREWELL_S * NS), lambda: self._finish(1))

    def stopped(self) -> None:
        self._finish(0)

    def record(self, record: Record, body: Received | None) -> None:
        session = self._system.find(f"session/{record.request}")
        if session is not None:
            try:
                if session.data((record, body)) is None:
                    return
            except MailboxFull:
                log.error("session/%d has a full mailbox: a node sends more than its credit", record.request)
        if body is not None:
            self._stale += 1
            body.release()

    def arrived(self) -> None:
        self._run()

    def _wake(self) -> None:
        if not self._woken:
            self._woken = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        self._woken = False
        self._system.run()
