"""The simulated parts themselves: time, queues, links, generated pipelines."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from omnirt.connectors.base import LinkClosed, LinkFull
from omnirt.ids import Fence
from omnirt.pipeline.check import Check
from omnirt.pipeline.findings import errors
from omnirt.pipeline.layers import Tree
from omnirt.testing.sim.clock import SimClock
from omnirt.testing.sim.links import SimPair
from omnirt.testing.sim.observer import Observer
from omnirt.testing.sim.pipe import Pipe
from omnirt.testing.sim.pipelines import generated
from omnirt.wire.codec import Packing
from omnirt.wire.messages import Chunk, End
from omnirt.wire.payload import Latents
from omnirt.wire.plan import LimitsPlan, LinkPlan, Plan


def test_events_happen_in_order_of_time_then_of_asking() -> None:
    clock, seen = SimClock(), []
    for name, when_ns in (("c", 20), ("a", 10), ("b", 10)):
        clock.call_at(when_ns, lambda name=name: seen.append((name, clock.now_ns())))
    clock.run()
    assert seen == [("a", 10), ("b", 10), ("c", 20)]


def test_a_cancelled_timer_is_no_event() -> None:
    clock = SimClock()
    clock.call_at(10, lambda: pytest.fail("cancelled")).cancel()
    clock.run()
    assert (clock.now_ns(), clock.events) == (0, 0)


def test_a_world_that_never_rests_is_stopped() -> None:
    clock = SimClock()

    def again() -> None:
        clock.after(1, again)

    again()
    assert not clock.run(events_max=100)


def test_a_pipe_delays_each_item_and_keeps_their_order() -> None:
    clock, random, got = SimClock(), Random(1), []
    pipe = Pipe(clock, lambda: random.randrange(100))
    pipe.readable = lambda: got.extend(pipe.arrived())
    for number in range(50):
        clock.after(number, lambda number=number: pipe.put(number))
    clock.run()
    assert got == list(range(50))


def test_what_nobody_takes_waits_in_its_pipe() -> None:
    clock = SimClock()
    pipe = Pipe(clock, lambda: 5)
    pipe.readable = lambda: None
    pipe.put("x")
    clock.run()
    assert pipe.has_arrived()
    assert list(pipe.arrived()) == ["x"]


class Links:
    def __init__(self, slots: int = 2, ring_bytes: int = 4096) -> None:
        self.clock = SimClock()
        plan = Plan("p", (), (), (), (), (), (), limits=LimitsPlan(requests_max=1))
        self.observer = Observer(self.clock, plan)
        pipes = (Pipe(self.clock, lambda: 1), Pipe(self.clock, lambda: 1))
        pair = SimPair(LinkPlan("a", "b", ring_bytes, 1 << 20, slots), pipes, self.observer)
        self.a, self.b = pair.side("a")[1][0], pair.side("b")[1][0]
        self.got: list[Any] = []
        self.b.watch(lambda: self.b.pump(lambda record, body: self.got.append(body)))

    def send(self, size: int) -> None:
        packing = Packing(Latents(np.arange(size)))
        self.a.send(Chunk(0, 1, Fence(0, 0), 0, packing.header), packing)


def test_a_large_payload_is_leased_and_overwritten_when_released() -> None:
    links = Links()
    links.send(100)
    links.clock.run()
    (body,) = links.got
    view = body.unpack(Latents).latents
    assert view.tolist() == list(range(100))
    assert links.b.held == {body}
    body.release()
    assert view.tolist() != list(range(100))
    assert not links.b.held
    body.release()
    assert links.observer.findings[0].startswith("lease:")


def test_an_owned_payload_outlives_its_lease() -> None:
    links = Links()
    links.send(100)
    links.clock.run()
    (body,) = links.got
    body.own()
    assert not links.b.held
    body.release()
    assert body.unpack(Latents).latents.tolist() == list(range(100))
    assert not links.observer.findings


def test_a_full_link_is_a_finding() -> None:
    links = Links(slots=1)
    links.send(100)
    with pytest.raises(LinkFull):
        links.send(100)
    assert links.observer.findings[0].startswith("full:")


def test_a_closed_link_sends_nothing_and_drops_what_was_unread() -> None:
    links = Links()
    links.send(1)
    links.b.close()
    links.clock.run()
    assert links.got == []
    links.a.close()
    with pytest.raises(LinkClosed):
        links.a.send(End(0, 1, Fence(0, 0), 0))


@pytest.mark.parametrize("seed", range(0, 60, 3))
def test_generated_pipelines_pass_the_checks_of_pipeline_files(seed: int) -> None:
    made = generated(Random(seed))
    findings = Check(made.spec, made.classes, Tree()).run()
    assert errors(findings) == []
