"""The cells of one node: which cell gets what, one step a turn, and what happens when links are gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from omnirt.connectors.base import LinkClosed, LinkFull
from omnirt.errors import StageFailed
from omnirt.ids import Fence
from omnirt.runtime.cells import Cells, send
from omnirt.runtime.stage import Chunk as StageChunk
from omnirt.runtime.stage import Context, Emission, NoOptions, Stage
from omnirt.testing.sim.clock import SimClock
from omnirt.wire.codec import Packing, unpack
from omnirt.wire.messages import (
    Answer,
    Ask,
    Boot,
    Chunk,
    Close,
    Closed,
    End,
    Open,
    Opens,
    Record,
    RequestFailed,
    ToHead,
)
from omnirt.wire.payload import Latents, Text
from omnirt.wire.plan import EdgePlan, NodePlan, StagePlan

STAGES = (StagePlan("one", "m:S", "g"), StagePlan("two", "m:S", "g"))
EDGES = (
    EdgePlan(0, "client", "text", "one", "text", credit=4),
    EdgePlan(1, "one", "text", "two", "text", credit=4),
    EdgePlan(2, "two", "text", "client", "text", credit=4),
)
FENCE = Fence(0, 1)


class Relay(Stage):
    accepts = {"text": Text}
    emits = {"text": Text}

    def step(self, ctx: Context, chunks: list[StageChunk]) -> list[Emission]:
        return [chunk.reply("text", chunk.payload) for chunk in chunks]


class Link:
    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.sent: list[tuple[Record, Packing | None]] = []

    def send(self, record: Record, packing: Packing | None) -> None:
        if self.error is not None:
            raise self.error
        self.sent.append((record, packing))


class World:
    clock = SimClock()

    def __init__(self) -> None:
        self.links: dict[str, Link] = {"head": Link()}
        self.told: list[ToHead] = []
        self.log: list[str] = []
        self.wakes = 0
        self.arrived: list[tuple[Record, Any]] = []
        boot = Boot(NodePlan("g.0", "g", 0, ("one", "two")), 0, STAGES, EDGES, 1, 4, 0, 1)
        self.cells = Cells(boot, self)
        for plan in STAGES:
            self.cells.add(plan, Relay(NoOptions()), Context(plan.name, "cpu", 0, 1, lambda text: None))

    def is_stale(self, fence: Fence) -> bool:
        return fence.epoch != 1

    def now_ns(self) -> int:
        return 7

    def link(self, process: str) -> Link | None:
        return self.links.get(process)

    def drain(self) -> None:
        self.log.append("drain")
        for record, body in self.arrived:
            self.cells.record(record, body)

    def tell_head(self, message: ToHead) -> None:
        self.log.append(type(message).__name__)
        self.told.append(message)

    def execute(self, slots: list[int], work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self.log.append("step")
        done(work())

    def wake(self) -> None:
        self.wakes += 1

    def die(self, reason: str) -> None:
        raise SystemExit(reason)

    def open(self, request: int = 1) -> None:
        peers = {0: "head", 1: "g.0", 2: "head"}
        opens = tuple(
            Open(
                stage=stage, request=request, fence=FENCE, seed=0, deadline_ns=0, public_id="r", params={},
                sources={into: peers[into]}, targets={out: peers[out]},
            )
            for stage, into, out in (("one", 0, 1), ("two", 1, 2))
        )  # fmt: skip
        self.cells.open(Opens(opens))

    def run(self) -> None:
        while self.cells._ready:
            self.cells.turn()


@pytest.fixture
def world() -> World:
    return World()


def test_a_payload_for_a_stage_of_this_node_is_handed_over_as_it_is(world: World) -> None:
    world.open()
    world.cells.record(Chunk(0, 1, FENCE, 0, b""), Text("hello"))
    world.cells.record(End(0, 1, FENCE, 1), None)
    world.run()
    record, packing = world.links["head"].sent[-2]
    assert isinstance(record, Chunk)
    assert packing is not None
    assert unpack(Text, record.header, b"") == Text("hello")
    end = world.links["head"].sent[-1][0]
    assert isinstance(end, End)
    assert (end.edge, end.count, list(end.reports)) == (2, 1, ["one", "two"])


def test_a_turn_runs_one_step_and_asks_to_come_back_for_the_next(world: World) -> None:
    for request in (1, 2):
        world.open(request)
    world.cells.record(Chunk(0, 1, FENCE, 0, b""), Text("a"))
    world.cells.record(Chunk(1, 2, FENCE, 0, b""), Text("b"))
    world.wakes = 0
    world.cells.turn()
    assert world.log == ["step"]
    assert world.wakes == 1
    world.run()
    assert world.log == ["step", "step"]  # the second stage does both in one


def test_one_wake_is_asked_for_however_many_cells_have_work(world: World) -> None:
    world.open()
    assert world.wakes == 1


def test_what_goes_to_a_process_that_is_gone_is_dropped(world: World) -> None:
    del world.links["head"]
    world.open()
    world.cells.record(Chunk(0, 1, FENCE, 0, b""), Text("a"))
    world.run()
    assert world.told == []
    world.links["head"] = Link(LinkClosed("closed", peer="head"))
    world.cells.record(Chunk(0, 1, FENCE, 1, b""), Text("b"))
    world.run()
    assert world.told == []


def test_a_full_link_fails_the_request(world: World) -> None:
    world.links["head"].error = LinkFull("full", peer="head")
    world.open()
    world.cells.record(Chunk(0, 1, FENCE, 0, b""), Text("a"))
    world.run()
    (failed,) = world.told
    assert isinstance(failed, RequestFailed)
    assert failed.failure.code == "link_full"


def test_a_close_reads_what_has_arrived_before_it_is_confirmed(world: World) -> None:
    class Body:
        released = 0

        def release(self) -> None:
            self.released += 1

    world.open()
    body = Body()
    world.arrived = [(Chunk(0, 1, Fence(0, 0), 0, b""), body)]
    world.cells.close(Close(1, FENCE))
    assert world.log == ["drain", "Closed"]
    assert world.told == [Closed(1, FENCE)]
    assert body.released == 1
    assert world.cells.stats()["one.rows"] == 0


def test_a_close_of_an_unknown_request_is_confirmed_all_the_same(world: World) -> None:
    world.cells.close(Close(9, FENCE))
    assert world.told == [Closed(9, FENCE)]


def test_a_ping_is_answered_with_nothing_and_stats_with_numbers(world: World) -> None:
    world.cells.ask(Ask(1, "ping"))
    world.cells.ask(Ask(2, "stats"), {"link.t.0.out_bytes": 5})
    ping, stats = world.told
    assert ping == Answer(1, {})
    assert isinstance(stats, Answer)
    assert stats.value["one.steps"] == 0
    assert stats.value["link.t.0.out_bytes"] == 5


def test_a_record_for_a_stage_of_another_node_is_a_broken_promise(world: World) -> None:
    with pytest.raises(AssertionError):
        world.cells.record(Chunk(2, 1, FENCE, 0, b""), Text("a"))


def test_a_payload_that_cannot_travel_is_the_stages_failure() -> None:
    with pytest.raises(StageFailed, match="cannot travel"):
        send(Link(), Chunk(0, 1, FENCE, 0, b""), Latents(np.array([object()])))
