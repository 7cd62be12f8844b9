"""One world from its seed: `run(seed)` plays a scenario to its end and says what was wrong with it.

all nodes up -> clients and faults -> nothing left to happen -> one more request for each output -> stop, in order
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from random import Random
from typing import Any

from msgspec import Struct

from omnirt.session.service import Failed
from omnirt.testing.faults import Fault, FaultKind, FaultPoint
from omnirt.testing.sim.checks import check_client, check_end, check_idle, check_kill, check_rows
from omnirt.testing.sim.client import PROBE, Client
from omnirt.testing.sim.clock import SimLoop
from omnirt.testing.sim.ground import Ground
from omnirt.testing.sim.head import SimChildren, simulated_head
from omnirt.testing.sim.process import SimNode
from omnirt.testing.sim.scenario import ClientPlan, Scenario, drawn
from omnirt.wire.messages import Chunk
from omnirt.wire.plan import Plan

EVENTS_MAX = 400_000
"""Far more than any scenario needs: a world that has not come to rest by then never will."""


class Report(Struct, frozen=True):
    seed: int
    findings: tuple[str, ...]
    trace: int
    """The same for two runs of a seed."""
    events: int
    virtual_s: float
    counts: dict[str, int]
    fullest: tuple[float, float]
    """The highest share of a ring and of a slab in use."""


class World:
    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.pipeline = scenario.pipeline
        random = Random(f"{scenario.seed}/world")
        self.ground = Ground(scenario.pipeline.plan, random, scenario.delays, scenario.pipeline.classes)
        self.observer = self.ground.observer
        self.clock = self.ground.clock
        self.loop = SimLoop(self.clock, self.ground.turn_ns, random)
        self.head: Any = simulated_head(self.ground, self.loop, scenario.seed)
        self.children: SimChildren = self.head.children
        self.children.bad_loads = {(bad.node, bad.incarnation): bad.fault for bad in scenario.bad_loads}
        self.clients: list[Client] = []
        self.bulky = _bulky(scenario.pipeline.plan)
        """Stages that may get a whole stream in one chunk, and so may emit any number of payloads in one step."""
        self._crossings = scenario.crossings
        self._strikes: dict[int, int] = {}
        self.observer.on_first_output = self._cross
        self.head.on_ended = self._ended
        self.head.note_entry = self._note_entry
        self.ground.strike = self._strike
        self.ground.may_strike = self._may_strike
        self.ground.after_step = lambda node: check_rows(self, node)
        self.children.on_kill = lambda node: check_kill(self, node)
        self.clock.on_timer = lambda callback: check_idle(self, callback)

    # ------------------------------------------------------------ the course of events

    def play(self) -> None:
        scenario = self.scenario
        self.head.on_ready(self._all_up)
        self.head.start()
        self._settle("the scenario")
        if scenario.drain_ns < 0 and not self.escalated:
            self._probe()
        for client in self.clients:
            check_client(self, client)
        if scenario.drain_ns < 0 and not self.escalated:
            check_end(self)
            self.head.drain()
            self._settle("the end")
        self._check_stopped()

    @property
    def escalated(self) -> bool:
        """A stage is lost for good, and the head has given up (as it may, in a fragile world)."""
        return bool(self.head.orchestrator_actor()._gave_up)

    def _all_up(self) -> None:
        scenario = self.scenario
        for plan in scenario.clients:
            self._arrives(plan, plan.at_ns)
        for fault in scenario.faults:
            self.clock.after(fault.at_ns, lambda fault=fault: self._fault(fault))
        if scenario.drain_ns >= 0:
            self.clock.after(scenario.drain_ns, self.head.drain)

    def _arrives(self, plan: ClientPlan, in_ns: int) -> None:
        client = Client(plan, self.pipeline, self.ground, self.head, self.loop)
        self.clients.append(client)
        client.arrives(in_ns)

    def _settle(self, what: str) -> None:
        if not self.clock.run(events_max=self.clock.events + EVENTS_MAX):
            self.observer.wrong("restless", f"{what} did not come to rest in {EVENTS_MAX} events")

    def _probe(self) -> None:
        """Whatever happened: each output can be asked for again, alone and all together."""
        plan = self.pipeline.plan
        random = Random(f"{self.scenario.seed}/probe")
        wanted = [(name,) for name in plan.outputs] + [tuple(plan.outputs)]
        for number, outputs in enumerate(wanted):
            inputs = tuple(self.pipeline.draw_inputs(random, plan.inputs, outputs))
            tag = PROBE + number
            self._arrives(ClientPlan(tag, 0, plan.inputs, outputs, inputs, random.getrandbits(31), f"probe{number}"), 0)
            self._settle("a probe")

    def _check_stopped(self) -> None:
        finished = self.head.finished
        if not finished.done():
            self.observer.wrong("drain", "the head did not finish")
        elif self.children.alive() and not self.escalated:
            self.observer.wrong("drain", f"{self.children.alive()} processes outlived the head")

    # ------------------------------------------------------------ what the head tells

    def _note_entry(self, client: Client) -> None:
        """Just submitted: keep the orchestrator's entry, and watch what its outlet is given."""
        orchestrator = self.head.orchestrator_actor()
        entry = orchestrator._entries[orchestrator._next]
        client.entry, client.machine = entry, entry.machine
        put: Callable[[int, Any], None] = entry.outlet.put

        def watched(edge: int, event: Any) -> None:
            record = getattr(event, "record", None)
            if record is not None and self.observer.epochs[record.fence.slot] != record.fence.epoch:
                self.observer.wrong("gate", f"a stale payload of edge {edge} reached request {client.plan.tag}")
            put(edge, event)

        entry.outlet.put = watched
        if client.endings:
            self.observer.over(entry.id)

    def _ended(self, submit: Any, outcome: Any) -> None:
        client = next(client for client in self.clients if client.plan.tag == submit.params["tag"])
        client.endings += 1
        client.ended_ns = self.clock.now_ns()
        self.observer.note(f"ended {client.plan.tag} {outcome}")
        self.observer.count(f"ended.{outcome.failure.code if isinstance(outcome, Failed) else 'done'}")
        if client.entry is None:
            return  # over before its submission returned
        self.observer.over(client.entry.id)
        held = sum(getattr(body, "is_lease", False) for _, body in client.entry.outlet.events)
        if held:
            self.observer.wrong("lease", f"request {client.plan.tag} has ended and its outlet holds {held} leases")

    # ------------------------------------------------------------ faults

    def _fault(self, fault: Fault) -> None:
        node = self.children.nodes[fault.node]
        self.observer.note(f"fault {fault.node} {fault.kind.value} {fault.point.value}")
        if fault.point is FaultPoint.STEP:
            node.in_next_step(lambda: self._do(node, fault))
        else:
            self._do(node, fault)

    def _do(self, node: SimNode, fault: Fault) -> None:
        if fault.kind is FaultKind.CRASH:
            node.end("signal", 11)
        elif fault.kind is FaultKind.DEAF:
            node.deaf_to_pings = True
        else:
            node.stop(fault.for_ns if fault.kind is FaultKind.PAUSE else None)

    def _cross(self, process: str, record: Chunk) -> None:
        """The first output of a request leaves: another node that holds it dies within the same moment."""
        entry = self.head.orchestrator_actor()._entries.get(record.request)
        others = sorted(set(entry.nodes.values()) - {process}) if entry is not None else []
        if self._crossings and others and self.ground.random.random() < 0.3:
            self._crossings -= 1
            node = self.children.nodes[self.ground.random.choice(others)]
            self.clock.after(self.ground.data_ns(), lambda: node.end("signal", 11))

    def _may_strike(self, tag: int, lives: int) -> bool:
        """A request that kills does so `lives` times."""
        strikes = self._strikes.get(tag, 0)
        self._strikes[tag] = strikes + 1
        return strikes < lives

    def kills(self, client: Client) -> int:
        """How many processes it took with it."""
        return min(client.plan.lives, self._strikes.get(client.plan.tag, 0))

    def _strike(self, node: SimNode, tag: int, lives: int) -> None:
        if not node.is_dying and self._may_strike(tag, lives):
            node.kill_in_step()


def _bulky(plan: Plan) -> set[str]:
    found = {name for edge in plan.edges if not edge.stream for name in (edge.source, edge.target)}
    while more := {edge.target for edge in plan.edges if edge.source in found and edge.target not in found}:
        found |= more
    return found


def run(seed: int, shape: str = "") -> Report:
    return play(drawn(seed, shape))


def play(scenario: Scenario) -> Report:
    with _quiet():
        world = World(scenario)
        try:
            world.play()
        except Exception:  # noqa: BLE001  production code that raises into the loop is a finding like any other
            world.observer.wrong("raised", traceback.format_exc(limit=-6))
    observer = world.observer
    return Report(
        scenario.seed, tuple(observer.findings), observer.trace, world.clock.events, world.clock.now_ns() / 1e9,
        observer.counts, (observer.fullest[0], observer.fullest[1]),
    )  # fmt: skip


@contextmanager
def _quiet() -> Generator[None]:
    """Nothing is logged: worlds fail on purpose, thousands of times."""
    log = logging.getLogger("omnirt")
    before = log.level, log.propagate
    log.setLevel(logging.CRITICAL + 1)
    log.propagate = False
    try:
        yield
    finally:
        log.setLevel(before[0])
        log.propagate = before[1]
