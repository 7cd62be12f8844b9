"""Admission, replicas, fences, retries and ends, with scripted nodes."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from omnirt.actors.orchestrator import (
    Admit,
    Admitted,
    CancelPublic,
    Counts,
    GiveUp,
    NodeClosed,
    NodeDown,
    NodeUp,
    Orchestrator,
    StopAdmitting,
)
from omnirt.actors.session import Cancel
from omnirt.errors import Failure, InvalidRequest, NotReady, OmnirtError, Overloaded, Unsupported
from omnirt.runtime.actor import System
from omnirt.runtime.ref import Peer
from omnirt.session.service import Done, Failed, Submit
from omnirt.testing.sim.clock import SimClock
from omnirt.wire.messages import Chunk, Close, End, Open, Opens, RequestFailed
from omnirt.wire.payload import Text
from omnirt.wire.plan import EdgePlan, LimitsPlan, NodePlan, Plan, StagePlan

EDGES = (
    EdgePlan(0, "client", "text", "llm", "text"),
    EdgePlan(1, "llm", "hidden", "tts", "hidden"),
    EdgePlan(2, "llm", "text", "client", "text"),
    EdgePlan(3, "tts", "audio", "client", "audio"),
)


def make_plan(replicas: int = 1, pure: bool = True, **limits: Any) -> Plan:
    return Plan(
        name="p",
        inputs=("text",),
        outputs=("text", "audio"),
        stages=(StagePlan("llm", "m:S", "g", final="text", pure=pure), StagePlan("tts", "m:S", "h", final="audio")),
        edges=EDGES,
        nodes=tuple(
            NodePlan(f"{group}.{number}", group, number, (stage,))
            for group, stage in (("g", "llm"), ("h", "tts"))
            for number in range(replicas)
        ),
        links=(),
        limits=LimitsPlan(**{"requests_max": 2, "queue_max": 1, **limits}),
    )


class World:
    """A head without processes. `told`: what each node was told."""

    def __init__(self, plan: Plan | None = None, up: bool = True) -> None:
        self.plan = plan or make_plan()
        self.clock = SimClock()
        self.random = Random(1)
        self.system = System(self.clock, lambda: None)
        self.epochs = [0] * self.plan.limits.requests_max
        self.told: dict[str, list[Any]] = {node.name: [] for node in self.plan.nodes}
        self.sent: list[tuple[str, Any]] = []
        self.work: dict[str, bool] = {}
        self.ends: list[tuple[str, str, int]] = []
        self.drains = 0
        self.actor = Orchestrator(self.plan, self.system, self)
        self.ref = self.actor.ref = self.system.spawn("orchestrator", self.actor)
        if up:
            for node in self.plan.nodes:
                self.up(node.name)

    # ------------------------------------------------------------ the orchestrator's world

    def raise_epoch(self, slot: int) -> int:
        self.epochs[slot] += 1
        return self.epochs[slot]

    def send(self, process: str, record: Any, payload: Any) -> None:
        self.sent.append((process, record))

    def outstanding(self, node: str, has_work: bool) -> None:
        self.work[node] = has_work

    def ended(self, submit: Submit, outcome: Done | Failed, started_ns: int, attempts: int) -> None:
        code = outcome.failure.code if isinstance(outcome, Failed) else "done"
        self.ends.append((submit.public_id, code, attempts))

    def drained(self) -> None:
        self.drains += 1

    # ------------------------------------------------------------ what tests do

    def up(self, node: str) -> None:
        self.tell(NodeUp(node, Peer(node, 1, self.clock, self.told[node].append)))

    def down(self, node: str, in_step: tuple[int, ...] = ()) -> None:
        self.tell(NodeDown(node, "killed", in_step))

    def tell(self, message: Any) -> None:
        self.ref.tell(message)
        self.system.run()

    def submit(self, public_id: str = "r", outputs: tuple[str, ...] = ("text",), **values: Any) -> Admitted:
        inputs = values.pop("inputs", (("text", Text("hello")),))
        return self.system.call(self.ref, Admit(Submit(inputs, outputs, public_id=public_id, **values)))

    def opens(self, node: str) -> list[Open]:
        return [each for message in self.told[node] if isinstance(message, Opens) for each in message.opens]

    def closes(self, node: str) -> list[Close]:
        return [message for message in self.told[node] if isinstance(message, Close)]

    def confirm(self, *nodes: str) -> None:
        """The nodes confirm every Close they were told so far."""
        for node in nodes or tuple(self.told):
            for message in self.closes(node):
                self.tell(NodeClosed(node, message.fence))

    def finish(self, admitted: Admitted, node: str = "g.0") -> None:
        """The stage gives no output and ends."""
        opening = next(message for message in self.opens(node) if message.request == admitted.request)
        self.system.find(f"session/{admitted.request}").data((End(2, admitted.request, opening.fence, 0), None))  # type: ignore[union-attr]
        self.system.run()

    def count(self) -> tuple[int, int]:
        counts: Counts = self.system.call(self.ref, "count")
        return counts.running, counts.waiting


@pytest.fixture
def world() -> World:
    return World()


def check_everything_is_free(world: World) -> None:
    assert world.count() == (0, 0)
    assert world.actor._places.free == world.plan.limits.requests_max
    assert not any(world.actor._router.load(node.name) for node in world.plan.nodes)
    assert not any(world.work.values())
    world.clock.run()
    assert world.clock.events == 0


# ---------------------------------------------------------------- a request's way


def test_only_the_stages_of_the_wanted_outputs_are_opened(world: World) -> None:
    world.submit(outputs=("text",))
    (opening,) = world.opens("g.0")
    assert (opening.sources, opening.targets) == ({0: "head"}, {2: "head"})
    assert world.opens("h.0") == []


def test_every_stage_on_the_way_is_opened_with_its_own_edges(world: World) -> None:
    world.submit(outputs=("audio",), seed=42, params={"voice": "x"})
    (llm,), (tts,) = world.opens("g.0"), world.opens("h.0")
    assert llm.targets == {1: "h.0"}
    assert (tts.sources, tts.targets) == ({1: "g.0"}, {3: "head"})
    assert llm.fence == tts.fence
    assert (llm.seed, llm.params) == (42, {"voice": "x"})


def test_the_session_sends_the_input_once_the_stages_are_open(world: World) -> None:
    world.submit()
    assert [(process, type(record)) for process, record in world.sent] == [("g.0", Chunk), ("g.0", End)]


def test_a_request_that_is_done_frees_everything(world: World) -> None:
    world.finish(world.submit())
    assert world.ends == [("r", "done", 1)]
    assert [message.request for message in world.closes("g.0")] == [1]
    world.confirm()
    check_everything_is_free(world)


def test_a_start_and_an_end_each_raise_the_epoch(world: World) -> None:
    admitted = world.submit()
    fence = world.opens("g.0")[0].fence
    assert world.epochs[fence.slot] == fence.epoch
    world.finish(admitted)
    assert world.epochs[fence.slot] > fence.epoch


def test_the_internal_id_is_never_the_clients(world: World) -> None:
    first, second = world.submit("same"), world.submit("same")
    assert first.request != second.request


# ---------------------------------------------------------------- admission


def test_a_full_server_queues_then_refuses(world: World) -> None:
    for _ in range(3):
        world.submit()
    assert world.count() == (2, 1)
    with pytest.raises(Overloaded):
        world.submit()
    assert world.count() == (2, 1)


def test_who_waits_starts_when_a_slot_is_given_up_not_before(world: World) -> None:
    first, _, third = (world.submit(name) for name in "abc")
    world.finish(first)
    assert [message.request for message in world.opens("g.0")] == [1, 2]
    world.confirm("g.0")
    assert [message.request for message in world.opens("g.0")] == [1, 2, third.request]
    fences = [message.fence for message in world.opens("g.0")]
    assert fences[2].slot == fences[0].slot
    assert fences[2].epoch > fences[0].epoch


def test_a_place_that_is_being_given_up_does_not_refuse_the_next_request() -> None:
    world = World(make_plan(requests_max=1, queue_max=0))
    world.finish(world.submit("a"))
    world.submit("b")
    with pytest.raises(Overloaded):
        world.submit("c")
    world.confirm()
    assert [message.public_id for message in world.opens("g.0")] == ["a", "b"]


def test_the_lost_keep_their_order_and_do_not_wait_behind_those_without_a_place() -> None:
    world = World(make_plan(replicas=2, requests_max=2, queue_max=4))
    for name in "abcd":
        world.submit(name, outputs=("audio",))
    tts = [node for node in ("h.0", "h.1") if world.opens(node)]
    for node in tts:
        world.down(node)
    for node in tts:
        world.up(node)
    world.confirm()
    again = [message.public_id for node in ("g.0", "g.1") for message in world.opens(node)]
    assert sorted(again) == ["a", "a", "b", "b"]


def test_keys_have_a_limit_of_their_own() -> None:
    world = World(make_plan(per_key_max=1))
    world.submit(key="k")
    with pytest.raises(Overloaded, match="key"):
        world.submit(key="k")
    world.submit(key="other")
    world.submit()


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"outputs": ()}, InvalidRequest),
        ({"params": {"style": "x" * 2_000_000}}, InvalidRequest),
        ({"params": {"style": 1 << 70}}, InvalidRequest),
        ({"params": {"style": object()}}, InvalidRequest),
        ({"outputs": ("smell",)}, Unsupported),
        ({"inputs": (("audio", Text("x")),)}, InvalidRequest),
    ],
)
def test_a_request_that_cannot_be_is_refused_at_once(world: World, values: Any, error: type[OmnirtError]) -> None:
    with pytest.raises(error):
        world.submit(**values)
    assert world.count() == (0, 0)


def test_before_its_stages_are_up_a_request_is_refused_and_told_why() -> None:
    world = World(up=False)
    world.up("g.0")
    with pytest.raises(NotReady) as error:
        world.submit(outputs=("audio",))
    assert (error.value.reason, error.value.stage) == ("model_loading", "tts")
    world.submit(outputs=("text",))
    world.up("h.0")
    world.down("h.0")
    with pytest.raises(NotReady) as error:
        world.submit(outputs=("audio",))
    assert error.value.reason == "engine_dead"


# ---------------------------------------------------------------- replicas


def test_requests_go_to_the_least_loaded_replica() -> None:
    world = World(make_plan(replicas=2, requests_max=4))
    for _ in range(4):
        world.submit()
    assert [len(world.opens(node)) for node in ("g.0", "g.1")] == [2, 2]


def test_a_replica_that_still_holds_a_cancelled_request_counts_as_loaded() -> None:
    world = World(make_plan(replicas=2, requests_max=4))
    first = world.submit()
    busy = "g.0" if world.opens("g.0") else "g.1"
    world.submit(), world.submit()
    first.session.tell(Cancel("enough"))
    world.system.run()
    assert world.work[busy]
    assert world.actor._router.load(busy) >= 1


def test_work_is_reported_when_it_begins_and_when_it_ends(world: World) -> None:
    admitted = world.submit()
    assert world.work == {"g.0": True}
    world.finish(admitted)
    assert world.work == {"g.0": True}
    world.confirm()
    assert world.work == {"g.0": False}


# ---------------------------------------------------------------- losses


def test_a_request_moves_to_another_replica_when_its_own_dies() -> None:
    world = World(make_plan(replicas=2))
    world.submit()
    first = "g.0" if world.opens("g.0") else "g.1"
    second = "g.1" if first == "g.0" else "g.0"
    old = world.opens(first)[0].fence
    world.down(first)
    (again,) = world.opens(second)
    assert again.fence.slot == old.slot
    assert again.fence.epoch > old.epoch
    assert not again.alone
    assert world.ends == []


def test_a_retry_waits_until_the_survivors_have_given_the_old_attempt_up() -> None:
    world = World(make_plan(replicas=2))
    world.submit(outputs=("audio",))
    llm = next(node for node in ("g.0", "g.1") if world.opens(node))
    tts = next(node for node in ("h.0", "h.1") if world.opens(node))
    world.down(llm)
    assert len(world.closes(tts)) == 1
    assert sum(len(world.opens(node)) for node in ("h.0", "h.1")) == 1
    world.confirm(tts)
    assert sum(len(world.opens(node)) for node in ("h.0", "h.1")) == 2


def test_without_a_replica_a_request_waits_for_the_restart(world: World) -> None:
    admitted = world.submit()
    world.down("g.0")
    assert world.count() == (0, 1)
    world.up("g.0")
    assert world.count() == (1, 0)
    assert len(world.opens("g.0")) == 2
    world.finish(admitted)
    assert world.ends == []  # that was the end of the first attempt
    session = world.system.find("session/1")
    assert session is not None
    session.data((End(2, 1, world.opens("g.0")[1].fence, 0), None))
    world.system.run()
    assert world.ends == [("r", "done", 2)]
    world.confirm()
    check_everything_is_free(world)


def test_who_was_in_the_step_is_run_alone(world: World) -> None:
    world.submit("a")
    world.submit("b")
    slot = world.opens("g.0")[1].fence.slot
    world.down("g.0", in_step=(slot,))
    world.up("g.0")
    assert [message.alone for message in world.opens("g.0")[2:]] == [False, True]


def test_the_lost_go_first_when_the_node_is_back() -> None:
    world = World(make_plan(requests_max=1, queue_max=2))
    world.submit("a")
    world.submit("b")
    world.down("g.0")
    world.up("g.0")
    assert [message.request for message in world.opens("g.0")] == [1, 1]


def test_one_that_waits_for_a_replica_lets_others_pass(world: World) -> None:
    world.submit("a", outputs=("audio",))
    world.down("h.0")
    world.confirm("g.0")
    world.submit("b", outputs=("text",))
    assert world.opens("g.0")[-1].public_id == "b"


def test_a_stage_that_is_not_pure_is_never_run_again() -> None:
    world = World(make_plan(pure=False))
    world.submit()
    world.down("g.0")
    assert world.ends == [("r", "stage_lost", 1)]


def test_the_death_of_a_node_frees_what_it_had_not_confirmed(world: World) -> None:
    world.finish(world.submit())
    world.down("g.0")
    check_everything_is_free(world)


def test_a_stage_that_fails_ends_the_request_it_names(world: World) -> None:
    world.submit()
    fence = world.opens("g.0")[0].fence
    world.tell(RequestFailed(1, fence, Failure("stage_failed", "no", "llm")))
    world.tell(RequestFailed(1, fence, Failure("stage_failed", "again", "llm")))
    world.tell(RequestFailed(77, fence, Failure("stage_failed", "unknown", "llm")))
    assert world.ends == [("r", "stage_failed", 1)]


def test_a_deadline_in_the_queue_ends_the_request_there(world: World) -> None:
    world.submit("a")
    world.submit("b")
    world.submit("c", deadline_s=1.0)
    world.clock.run(until_ns=2_000_000_000)
    world.system.run()
    assert world.ends == [("c", "timeout", 0)]
    assert world.count() == (2, 0)


def test_giving_up_ends_everything_and_admits_nothing(world: World) -> None:
    for name in "abc":
        world.submit(name)
    world.tell(GiveUp("the weights are gone"))
    assert sorted(world.ends) == [("a", "stage_lost", 1), ("b", "stage_lost", 1), ("c", "stage_lost", 0)]
    with pytest.raises(NotReady) as error:
        world.submit()
    assert error.value.reason == "engine_dead"


def test_a_session_that_crashes_ends_its_request_all_the_same(world: World) -> None:
    admitted = world.submit()
    admitted.session.tell("what no session takes")
    world.system.run()
    assert world.ends == [("r", "stage_lost", 1)]
    assert len(admitted.outlet.events) == 1
    world.confirm()
    check_everything_is_free(world)


# ---------------------------------------------------------------- cancelling by id, drain


def test_cancelling_ends_every_request_of_that_id_and_knows_the_others(world: World) -> None:
    world.submit("same")
    world.submit("same")
    world.submit("other")
    assert world.system.call(world.ref, CancelPublic("same")) == "cancelled"
    assert sorted(world.ends) == [("same", "cancelled", 1)] * 2
    assert world.system.call(world.ref, CancelPublic("same")) == "finished"
    assert world.system.call(world.ref, CancelPublic("never")) == "unknown"


def test_a_drain_refuses_what_comes_and_ends_with_the_last_confirmation(world: World) -> None:
    admitted = world.submit()
    world.tell(StopAdmitting())
    with pytest.raises(NotReady) as error:
        world.submit()
    assert error.value.reason == "shutting_down"
    world.finish(admitted)
    assert world.drains == 0
    world.confirm()
    world.tell(StopAdmitting())
    assert world.drains == 1


def test_an_idle_server_drains_at_once(world: World) -> None:
    world.tell(StopAdmitting())
    assert world.drains == 1
