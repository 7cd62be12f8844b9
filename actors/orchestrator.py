"""The orchestrator: admission, replicas, fences and completion. It never touches payload bytes and never polls.

    Admit -> a place (slot) free? -> choose replicas -> Open to each stage -> session starts sending
             else wait in line, or refuse

A request holds one slot of the fence page from its first start to its end; every start raises the slot's epoch, and so
does its end, so whatever an earlier life still has on the way is behind the fence. The slot serves again when every
node has confirmed that it gave the earlier life up (see `places`); until then the node counts as at work.

Invariants: every accepted request ends exactly once; slots in use + free == slots; a stage gets Close for every Open.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

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
    OrchestratorWorld,
    StopAdmitting,
)
from omnirt.actors.places import Places
from omnirt.actors.session import (
    Again,
    Cancel,
    Lost,
    Outlet,
    Over,
    Refuse,
    SessionActor,
    StageSaid,
    Started,
    deadline_from,
)
from omnirt.errors import InvalidRequest, NotReady, Overloaded, StageLost
from omnirt.ids import CLIENT, HEAD, Fence
from omnirt.pipeline.router import Router
from omnirt.pipeline.ways import Way, Ways
from omnirt.runtime.actor import Actor, NearRef, System
from omnirt.runtime.ref import Down, Ref
from omnirt.session.request import RequestMachine, Route
from omnirt.session.service import Failed, Submit
from omnirt.wire.messages import Close, Open, Opens, RequestFailed, encode
from omnirt.wire.plan import Plan

log = logging.getLogger("omnirt.orchestrator")

PARAMS_BYTES_MAX = 1 << 20
"""Of a request, as a message: each of its stages is told them, all stages of a node in one message (16 MiB at most)."""
FINISHED_MAX = 1024
"""Public ids of ended requests remembered, so that cancelling one says `finished` and not `unknown`."""


class Entry:
    """A request the orchestrator answers for."""

    __slots__ = (
        "alone", "fence", "id", "machine", "nodes", "outlet", "seed", "session", "slot", "started_ns", "submit", "way",
    )  # fmt: skip

    def __init__(self, id: int, submit: Submit, seed: int, way: Way) -> None:
        self.id = id
        self.submit = submit
        self.seed = seed
        self.way = way
        self.nodes: dict[str, str] = {}
        """Group -> node, while started."""
        self.slot = -1
        self.fence: Fence | None = None
        self.alone = False
        self.session: NearRef
        self.machine: RequestMachine
        self.outlet = Outlet()
        self.started_ns = 0


class Orchestrator(Actor):
    def __init__(self, plan: Plan, system: System, world: OrchestratorWorld) -> None:
        self._plan = plan
        self._system = system
        self._world = world
        self._router = Router(plan)
        self._ways = Ways(plan)
        self._groups = {stage.name: stage.group for stage in plan.stages}
        self._client_edges = tuple(edge for edge in plan.edges if CLIENT in (edge.source, edge.target))
        self._refs: dict[str, Ref] = {}
        self._places = Places(plan.limits.requests_max)
        self._entries: dict[int, Entry] = {}
        self._line: dict[int, Entry] = {}
        """Waiting for a slot or for a replica, first come first served."""
        self._public: dict[str, set[int]] = {}
        self._finished: OrderedDict[str, None] = OrderedDict()
        self._next = 0
        self._was_ready = False
        self._draining = False
        self._drained = False
        self._gave_up = ""
        self.ref: NearRef | None = None

    # ------------------------------------------------------------ messages

    def receive(self, message: Any) -> None:
        handler = self._handlers.get(type(message))
        if handler is None:
            raise TypeError(f"the orchestrator takes no {type(message).__name__}")
        handler(self, message)

    def answer(self, question: Any) -> Any:
        if isinstance(question, Admit):
            return self._admit(question.submit)
        if isinstance(question, CancelPublic):
            return self._cancel(question.public_id)
        if question == "count":
            return Counts(len(self._entries) - len(self._line), len(self._line))
        raise TypeError(f"the orchestrator answers no {question!r}")

    # ------------------------------------------------------------ admission

    def _admit(self, submit: Submit) -> Admitted:
        way = self._way(submit)
        _check_params(submit)
        self._check_capacity(submit, way.stages)
        self._next += 1
        seed = self._world.random.getrandbits(31) if submit.seed is None else submit.seed
        entry = Entry(self._next, submit, seed, way)
        self._entries[entry.id] = entry
        self._public.setdefault(submit.public_id, set()).add(entry.id)
        self._spawn_session(entry)
        self._line[entry.id] = entry
        self._start_waiting()
        return Admitted(entry.id, entry.session, entry.outlet)

    def _way(self, submit: Submit) -> Way:
        if not submit.outputs:
            raise InvalidRequest("no output was asked for", param="modalities")
        brought = [modality for modality, _ in submit.inputs]
        way = self._ways.of((*brought, *submit.later) or self._plan.inputs, submit.outputs)
        for modality in brought:
            if modality not in way.takes:
                takes = ", ".join(way.takes)
                raise InvalidRequest(f"{self._plan.name} takes {takes} for this output, not {modality}", param="input")
        return way

    def _check_capacity(self, submit: Submit, stages: tuple[str, ...]) -> None:
        if self._gave_up:
            raise NotReady(self._gave_up, reason="engine_dead")
        if self._draining:
            raise NotReady("the server is shutting down", reason="shutting_down")
        limits = self._plan.limits
        for stage in stages:
            if not self._router.ready_replicas(self._groups[stage]):
                reason = "engine_dead" if self._was_ready else "model_loading"
                state = "has no live replica" if self._was_ready else "is loading"
                raise NotReady(f"stage {stage} {state}", reason=reason, stage=stage)
        if limits.per_key_max and submit.key:
            mine = sum(1 for entry in self._entries.values() if entry.submit.key == submit.key)
            if mine >= limits.per_key_max:
                raise Overloaded(f"this key has {mine} requests already; {limits.per_key_max} are allowed")
        # Not by free slots: one that is being closed serves the next request in a moment.
        if len(self._entries) >= limits.requests_max + limits.queue_max:
            waiting = len(self._line)
            raise Overloaded(f"{len(self._entries) - waiting} requests run and {waiting} wait already")

    def _spawn_session(self, entry: Entry) -> None:
        limits = self._plan.limits
        entry.machine = RequestMachine(
            entry.id,
            self._client_edges,
            entry.submit.inputs,
            entry.submit.input_open,
            attempts_max=limits.attempts_max if entry.way.is_pure else 1,
        )
        entry.started_ns = self._world.clock.now_ns()
        deadline_ns = deadline_from(entry.started_ns, entry.submit.deadline_s or limits.deadline_s)
        actor = SessionActor(entry.id, entry.machine, entry.outlet, self._world, self._tell_self, deadline_ns)
        outputs = sum(2 * (edge.credit + 1) for edge in self._client_edges)
        entry.session = self._system.spawn(f"session/{entry.id}", actor, data_max=2 * outputs)
        entry.session.monitor(lambda down: self._session_down(entry, down))

    def _tell_self(self, message: Over | Again) -> None:
        assert self.ref is not None
        self.ref.tell(message)

    # ------------------------------------------------------------ starting

    def _start_waiting(self) -> None:
        """Start who can be started, in order of arrival. One that waits for a replica lets others pass."""
        for entry in list(self._line.values()):
            if self._places.is_closing(entry.slot) if entry.slot >= 0 else not self._places.free:
                continue
            nodes = self._choose(entry)
            if nodes is not None:
                del self._line[entry.id]
                self._start(entry, nodes)

    def _choose(self, entry: Entry) -> dict[str, str] | None:
        nodes: dict[str, str] = {}
        for group in entry.way.groups:
            node = self._router.choose(group, entry.submit.affinity)
            if node is None:
                return None
            nodes[group] = node
        return nodes

    def _start(self, entry: Entry, nodes: dict[str, str]) -> None:
        if entry.slot < 0:
            entry.slot = self._places.take()
        entry.nodes = nodes
        entry.fence = Fence(entry.slot, self._world.raise_epoch(entry.slot))
        for node in nodes.values():
            self._router.opened(node)
            if self._router.load(node) == 1:
                self._world.outstanding(node, True)
        opens: dict[str, list[Open]] = {node: [] for node in nodes.values()}
        for stage in entry.way.stages:
            opens[nodes[self._groups[stage]]].append(self._opening(entry, stage))
        for node, those in opens.items():
            self._refs[node].tell(Opens(tuple(those)))
        inputs = {edge.index: self._at(entry, edge.target) for edge in entry.way.leaving[CLIENT]}
        outputs = {edge.index: self._at(entry, edge.source) for edge in entry.way.arriving[CLIENT]}
        entry.session.tell(Started(Route(entry.fence, inputs, outputs)))

    def _opening(self, entry: Entry, stage: str) -> Open:
        assert entry.fence is not None
        submit = entry.submit
        limits = self._plan.limits
        return Open(
            stage=stage,
            request=entry.id,
            fence=entry.fence,
            seed=entry.seed,
            deadline_ns=deadline_from(entry.started_ns, submit.deadline_s or limits.deadline_s),
            public_id=submit.public_id,
            params=submit.params,
            sources={edge.index: self._at(entry, edge.source) for edge in entry.way.arriving[stage]},
            targets={edge.index: self._at(entry, edge.target) for edge in entry.way.leaving[stage]},
            alone=entry.alone,
        )

    def _at(self, entry: Entry, stage: str) -> str:
        return HEAD if stage == CLIENT else entry.nodes[self._groups[stage]]

    # ------------------------------------------------------------ ends

    def _close(self, entry: Entry) -> None:
        """Take the request away from every node that holds it. The fence goes up first: what is under way is stale."""
        if entry.fence is None:
            return
        old, entry.fence = entry.fence, None
        self._world.raise_epoch(old.slot)
        for node in entry.nodes.values():
            self._refs[node].tell(Close(entry.id, old))
        self._places.close(old, entry.nodes.values())
        entry.nodes = {}

    def _on_node_closed(self, message: NodeClosed) -> None:
        if self._places.confirmed(message.node, message.fence):
            self._router.closed(message.node)
            if self._router.load(message.node) == 0:
                self._world.outstanding(message.node, False)
            self._start_waiting()
            self._maybe_drained()

    def _on_over(self, message: Over) -> None:
        entry = self._entries.pop(message.request, None)
        if entry is None:
            return
        self._line.pop(entry.id, None)
        self._close(entry)
        if entry.slot >= 0:
            self._places.give_back(entry.slot)
        self._remember_end(entry.submit.public_id, entry.id)
        self._system.stop(entry.session.name)
        self._world.ended(entry.submit, message.outcome, entry.started_ns, entry.machine.attempts)
        self._start_waiting()
        self._maybe_drained()

    def _remember_end(self, public_id: str, request: int) -> None:
        living = self._public.get(public_id, set())
        living.discard(request)
        if not living:
            self._public.pop(public_id, None)
        self._finished[public_id] = None
        if len(self._finished) > FINISHED_MAX:
            self._finished.popitem(last=False)

    def _on_again(self, message: Again) -> None:
        entry = self._entries.get(message.request)
        if entry is None:
            return
        self._close(entry)
        entry.alone = message.alone
        self._line[entry.id] = entry
        self._line = dict(sorted(self._line.items()))  # back to its place: ids rise with arrival
        self._start_waiting()

    def _session_down(self, entry: Entry, down: Down) -> None:
        """A session that crashed ends its request all the same."""
        if entry.id in self._entries:
            failure = StageLost(f"the request's session {down.reason}").failure()
            entry.outlet.end(Failed(failure))
            self._tell_self(Over(entry.id, Failed(failure)))

    def _cancel(self, public_id: str) -> str:
        living = self._public.get(public_id)
        if living:
            for request in sorted(living):
                self._entries[request].session.tell(Cancel("cancelled on request"))
            return "cancelled"
        return "finished" if public_id in self._finished else "unknown"

    # ------------------------------------------------------------ nodes

    def _on_node_up(self, message: NodeUp) -> None:
        self._refs[message.node] = message.ref
        self._router.ready(message.node)
        groups = {node.group for node in self._plan.nodes}
        self._was_ready = self._was_ready or all(self._router.ready_replicas(group) for group in groups)
        self._start_waiting()

    def _on_node_down(self, message: NodeDown) -> None:
        self._router.unready(message.node)
        self._refs.pop(message.node, None)
        self._world.outstanding(message.node, False)
        for entry in list(self._entries.values()):
            groups = [group for group, node in entry.nodes.items() if node == message.node]
            for group in groups:
                del entry.nodes[group]
                self._router.closed(message.node)
            suspect = entry.slot in message.in_step
            if groups or suspect:
                entry.session.tell(Lost(message.node, message.reason, suspect, is_held=bool(groups)))
        for fence in self._places.awaited_of(message.node):
            self._on_node_closed(NodeClosed(message.node, fence))

    def _on_give_up(self, message: GiveUp) -> None:
        self._gave_up = message.reason
        self._draining = True
        self._on_end_all(EndAll(StageLost(message.reason)))

    def _on_end_all(self, message: EndAll) -> None:
        for entry in list(self._entries.values()):
            entry.session.tell(Refuse(message.error))

    def _on_request_failed(self, message: RequestFailed) -> None:
        entry = self._entries.get(message.request)
        if entry is not None:
            entry.session.tell(StageSaid(message.fence, message.failure))

    # ------------------------------------------------------------ drain

    def _on_stop_admitting(self, _: StopAdmitting) -> None:
        self._draining = True
        self._maybe_drained()

    def _maybe_drained(self) -> None:
        idle = not self._entries and not self._places.closing
        if self._draining and idle and not self._drained and not self._gave_up:
            self._drained = True
            self._world.drained()

    _handlers: dict[type, Callable[[Orchestrator, Any], None]] = {
        Over: _on_over,
        Again: _on_again,
        NodeUp: _on_node_up,
        NodeClosed: _on_node_closed,
        NodeDown: _on_node_down,
        GiveUp: _on_give_up,
        StopAdmitting: _on_stop_admitting,
        EndAll: _on_end_all,
        RequestFailed: _on_request_failed,
    }


def _check_params(submit: Submit) -> None:
    """Here it is one request that fails; in a message to a node it would be the server."""
    try:
        size = len(encode(submit.params))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidRequest(f"the parameters cannot be passed on: {error}", param="params") from None
    if size > PARAMS_BYTES_MAX:
        raise InvalidRequest(f"the parameters have {size} bytes; the limit is {PARAMS_BYTES_MAX}", param="params")
