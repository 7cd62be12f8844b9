"""The shell around the request machine: effects carried out, leases given back, one end."""

from __future__ import annotations

from typing import Any

import pytest

from omnirt.actors.session import (
    Again,
    Cancel,
    EndInput,
    Extend,
    Lost,
    Outlet,
    Over,
    Read,
    Refuse,
    SessionActor,
    StageSaid,
    Started,
    deadline_from,
)
from omnirt.connectors.base import LinkFull
from omnirt.errors import Cancelled, Failure, StageLost
from omnirt.ids import Fence
from omnirt.runtime.actor import System
from omnirt.session.request import RequestMachine, Route
from omnirt.session.service import Done, Failed
from omnirt.testing.sim.clock import SimClock
from omnirt.wire.messages import Chunk, Credit, End, Record
from omnirt.wire.payload import Payload, Text
from omnirt.wire.plan import EdgePlan

EDGES = (EdgePlan(0, "client", "text", "a", "text", credit=2), EdgePlan(1, "a", "text", "client", "text", credit=2))
FENCE = Fence(0, 1)
ROUTE = Route(FENCE, {0: "a.0"}, {1: "a.0"})


class Body:
    """A payload under a lease."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def own(self) -> None:
        self.log.append("own")

    def release(self) -> None:
        self.log.append("release")


class World:
    def __init__(self, is_open: bool = False, deadline_ns: int = 1000) -> None:
        self.clock = SimClock()
        self.system = System(self.clock, lambda: None)
        self.outlet = Outlet()
        self.sent: list[tuple[str, Record, Payload | None]] = []
        self.told: list[Over | Again] = []
        self.refuses: Exception | None = None
        machine = RequestMachine(5, EDGES, (("text", Text("x")),), is_open, 3)
        actor = SessionActor(5, machine, self.outlet, self, self.told.append, deadline_ns)
        self.ref = self.system.spawn("session/5", actor, data_max=8)

    def send(self, process: str, record: Record, payload: Payload | None) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.sent.append((process, record, payload))

    def tell(self, *messages: Any) -> None:
        for message in messages:
            self.ref.tell(message)
        self.system.run()

    def arrive(self, record: Record, body: Any = None) -> None:
        self.ref.data((record, body))
        self.system.run()

    def output(self, body: Any) -> None:
        self.arrive(Chunk(1, 5, FENCE, 0, b""), body)

    def ends(self) -> list[Any]:
        return [event for edge, event in self.outlet.events if edge == -1]


@pytest.fixture
def world() -> World:
    return World()


def test_a_started_session_sends_its_input(world: World) -> None:
    world.tell(Started(ROUTE))
    assert [type(record) for _, record, _ in world.sent] == [Chunk, End]


def test_outputs_and_the_end_reach_the_outlet_in_order(world: World) -> None:
    world.tell(Started(ROUTE))
    body = Body()
    world.output(body)
    world.arrive(End(1, 5, FENCE, 1))
    assert [event for _, event in world.outlet.events] == [body, Done({})]
    assert world.told == [Over(5, Done({}))]


def test_what_is_unread_at_the_end_holds_no_lease(world: World) -> None:
    world.tell(Started(ROUTE))
    body = Body()
    world.output(body)
    assert body.log == []
    world.arrive(End(1, 5, FENCE, 1))
    assert body.log == ["own"]


def test_a_stale_record_is_released_and_goes_nowhere(world: World) -> None:
    world.tell(Started(ROUTE))
    body = Body()
    world.arrive(Chunk(1, 5, Fence(0, 0), 0, b""), body)
    assert body.log == ["release"]
    assert not world.outlet.events


def test_a_read_gives_the_credit_back(world: World) -> None:
    world.tell(Started(ROUTE))
    world.output(Body())
    world.tell(Read(1))
    assert world.sent[-1] == ("a.0", Credit(1, 5, FENCE, 1), None)


def test_the_deadline_ends_the_session_and_its_timer_goes_with_any_end() -> None:
    world = World(deadline_ns=50)
    world.clock.run()
    (end,) = world.ends()
    assert isinstance(end, Failed)
    assert end.failure.code == "timeout"

    world = World(deadline_ns=50)
    world.tell(Cancel("enough"))
    world.clock.run()
    assert world.clock.events == 0
    assert len(world.ends()) == 1


def test_a_session_that_is_stopped_leaves_no_timer_and_no_lease(world: World) -> None:
    world.tell(Started(ROUTE))
    body = Body()
    world.ref.data((Chunk(1, 5, FENCE, 0, b""), body))
    world.system.stop("session/5")
    world.clock.run()
    assert world.clock.events == 0
    assert body.log == ["release"]


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (Cancel("enough"), "cancelled"),
        (Refuse(StageLost("given up")), "stage_lost"),
        (StageSaid(FENCE, Failure("stage_failed", "no")), "stage_failed"),
    ],
)
def test_each_way_to_fail_ends_the_session_once(world: World, message: Any, code: str) -> None:
    world.tell(Started(ROUTE), message, message)
    (end,) = world.ends()
    assert isinstance(end, Failed)
    assert end.failure.code == code
    assert world.told == [Over(5, end)]


def test_a_lost_session_asks_to_be_run_again(world: World) -> None:
    world.tell(Started(ROUTE), Lost("a.0", "killed", True))
    assert world.told == [Again(5, alone=True)]
    assert world.ends() == []


def test_a_full_link_ends_the_session() -> None:
    world = World()
    world.refuses = LinkFull("full", peer="a.0")
    world.tell(Started(ROUTE))
    (end,) = world.ends()
    assert isinstance(end, Failed)
    assert end.failure.code == "link_full"


def test_input_is_asked_so_that_its_refusal_is_heard() -> None:
    world = World(is_open=True)
    world.tell(Started(ROUTE))
    world.system.call(world.ref, Extend("text", Text("y")))
    world.system.call(world.ref, EndInput())
    assert [type(record) for _, record, _ in world.sent] == [Chunk, Chunk, End]
    with pytest.raises(Cancelled):
        world.system.call(world.ref, Extend("text", Text("z")))


def test_an_abandoned_outlet_releases_what_it_has_and_what_still_comes(world: World) -> None:
    world.tell(Started(ROUTE))
    first, second = Body(), Body()
    world.output(first)
    world.outlet.abandon()
    world.output(second)
    assert (first.log, second.log) == (["release"], ["release"])
    assert not world.outlet.events


def test_the_outlet_wakes_its_reader_for_each_event() -> None:
    outlet = Outlet()
    wakes: list[int] = []
    outlet.wake = lambda: wakes.append(len(outlet.events))
    outlet.put(1, "a")
    outlet.end(Done({}))
    assert wakes == [1, 2]


def test_a_deadline_is_so_many_seconds_from_now() -> None:
    assert deadline_from(5, 1.5) == 1_500_000_005
