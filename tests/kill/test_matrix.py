"""Each node x {SIGKILL, SIGSTOP} x {idle, loading, mid-stream, draining}, in real processes.

One head goes through the four phases for one node and one signal (a tour). Whatever happens, every request ends before
its deadline, done or with a typed error, the service comes back by itself, and nothing is left behind.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from omnirt.session.service import Failed
from omnirt.testing.aftermath import PATIENCE_S, pid_of, ready, settled, until
from omnirt.testing.frail import expected
from omnirt.testing.live import Answer, ask, in_a_loop, read_all, running, text_request
from omnirt.testing.processes import descriptors, segments

FRAIL = str(Path(__file__).with_name("frail.toml"))
CHUNKS = 60
HOLD = 150
"""Steps a request keeps silent: longer than it takes to strike."""
TOURS_AT_ONCE = 12
"""They mostly wait, for limits to pass."""
pytestmark = pytest.mark.kill


def request(seed: int, orders: str = f"chunks={CHUNKS}") -> Any:
    return text_request(orders, ("audio",), seed=seed)


def is_right(answer: Answer, seed: int, chunks: int = CHUNKS) -> bool:
    return answer.code == "done" and np.array_equal(answer.samples, expected(seed, chunks))


class Tour:
    def __init__(self, head: Any, node: str, number: signal.Signals, turn: int) -> None:
        self.head = head
        self.node = node
        self.number = number
        self.turn = turn

    def strike(self) -> None:
        os.kill(pid_of(self.head, self.node), self.number)

    async def run(self) -> None:
        for phase in (self.idle, self.loading, self.mid_stream):
            await phase()
            await ready(self.head)
            assert is_right(await ask(self.head, request(99)), 99), "the service is not what it was"
            assert await settled(self.head) == []
        await self.draining()

    async def idle(self) -> None:
        """Asked before its death is known."""
        self.strike()
        lives = [self.head.submit(request(seed)) for seed in range(3)]
        answers = await asyncio.gather(*(read_all(live) for live in lives))
        assert all(is_right(answer, seed) for seed, answer in enumerate(answers)), [each.end for each in answers]

    async def loading(self) -> None:
        """Struck as soon as it exists, while it starts, or in the load of its stage."""
        supervised = self.head._nodes.supervisor._nodes[self.node]
        life = supervised.incarnation
        os.kill(pid_of(self.head, self.node), signal.SIGKILL)
        wanted = "half way" if self.turn % 3 == 2 else ""
        await until(
            lambda: supervised.incarnation > life and self.is_running() and supervised.heard.endswith(wanted),
            f"{self.node} loads again",
        )
        await asyncio.sleep(0.2 * (self.turn % 3 == 1))
        self.strike()
        assert self.head.state().state == "unavailable"

    def is_running(self) -> bool:
        return (self.node, 0) in self.head._nodes.processes

    async def mid_stream(self) -> None:
        """Those that gave output end typed, those that did not are answered all the same; some do not wait for it."""
        asked = await self.start(3)
        quiet = [asyncio.ensure_future(ask(self.head, request(seed, f"chunks=5 hold={HOLD}"))) for seed in range(3)]
        await asyncio.sleep(0.02)
        leaving = [self.head.submit(request(seed)) for seed in range(2)]
        self.strike()
        for live in leaving:
            async with live:
                pass
        for answer in await asyncio.gather(*asked):
            assert isinstance(answer.end, Failed)
            assert (answer.code, answer.end.failure.stage) == ("stage_lost", self.node)
        for seed, answer in enumerate(await asyncio.gather(*quiet)):
            assert is_right(answer, seed, 5), answer.end

    async def draining(self) -> None:
        """The drain goes on to its end; who waits for the lost node is served by the next one, if anybody does."""
        streams = 2 if self.turn % 3 < 2 else 0
        asked = await self.start(streams)
        quiet = (
            [asyncio.ensure_future(ask(self.head, request(7, f"chunks=5 hold={HOLD}")))] if self.turn % 3 == 1 else []
        )
        await asyncio.sleep(0.02)
        self.head.drain()
        assert self.head.state().state == "draining"
        self.strike()
        for answer in await asyncio.gather(*asked):
            assert answer.code == "stage_lost", answer.end
        for answer in await asyncio.gather(*quiet):
            assert is_right(answer, 7, 5), answer.end
        assert await asyncio.wait_for(self.head.finished, PATIENCE_S) == 0
        assert self.head._nodes.children.alive() == 0

    async def start(self, count: int) -> list[asyncio.Task[Answer]]:
        """Streams that have begun to give output."""
        lives = [self.head.submit(request(seed, "chunks=100000")) for seed in range(count)]
        for live in lives:
            await asyncio.wait_for(live.next(), PATIENCE_S)
        return [asyncio.ensure_future(read_all(live)) for live in lives]


def test_every_node_survives_every_signal_in_every_phase(soak: bool) -> None:
    turns = 20 if soak else 3
    places = asyncio.Semaphore(TOURS_AT_ONCE)

    async def tour(node: str, number: signal.Signals, turn: int) -> None:
        try:
            async with places, running(FRAIL, sets=["stage.mill.options.children=true"]) as head:
                await Tour(head, node, number, turn).run()
        except Exception as error:
            error.add_note(f"{node}, {number.name}, turn {turn}")
            raise

    async def body() -> None:
        cases = itertools.product((signal.SIGSTOP, signal.SIGKILL), range(turns), ("spring.0", "mill.0"))
        async with asyncio.TaskGroup() as group:
            for number, turn, node in cases:
                group.create_task(tour(node, number, turn))

    in_a_loop(asyncio.sleep(0))  # the first loop of a process keeps a pipe
    before, held = descriptors(), segments(os.getpid())
    in_a_loop(body())
    gc.collect()  # a mapping holds a descriptor for as long as somebody looks at it
    assert descriptors() <= before
    assert segments(os.getpid()).keys() <= held.keys()
