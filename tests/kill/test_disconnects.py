"""Clients that leave whenever they like: nothing they asked for goes on, and nobody hears another one's sound."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import numpy as np
import pytest

from omnirt.actors.stages.tone import sine
from omnirt.clock import NS, monotonic_ns
from omnirt.session.service import Output
from omnirt.testing.aftermath import PATIENCE_S, settled
from omnirt.testing.frail import expected
from omnirt.testing.live import ask, in_a_loop, read_all, running, text_request
from omnirt.testing.processes import heap_bytes
from omnirt.testing.served import Served, serving

FRAIL = str(Path(__file__).with_name("frail.toml"))
RATE = 24000
CLIENTS = 8
QUIET_S = 0.1
"""After the last client has left, no step begins any more."""
SLOPE_BYTES_MAX = 1 << 20
"""Per minute, after the first two."""
pytestmark = pytest.mark.kill


class Soak:
    def __init__(self, server: Served, http: aiohttp.ClientSession, seconds: float, *, strict: bool) -> None:
        self.strict = strict
        self.server = server
        self.http = http
        self.chance = Random("disconnects")
        self.ends_ns = monotonic_ns() + int(seconds * NS)
        self.heaps: dict[int, list[tuple[float, int]]] = {pid: [] for pid in (server.pid, *server.family())}
        self.left = self.stayed = 0

    async def run(self) -> None:
        started_ns = monotonic_ns()
        while monotonic_ns() < self.ends_ns:
            await asyncio.gather(*(self.client() for _ in range(CLIENTS)))
            await self.check_quiet()
            at_s = (monotonic_ns() - started_ns) / NS
            for pid, heap in self.heaps.items():
                heap.append((at_s, heap_bytes(pid)))

    async def client(self) -> None:
        """One that stays to the end, or leaves after a while, politely or not; sometimes before any sound."""
        hertz, leaves = self.chance.randrange(100, 4000), self.chance.randrange(4)
        body = {"input": f"{hertz} Hz for 0.6 s", "response_format": "pcm"}
        heard = b""
        try:
            async with asyncio.timeout(None if leaves == 0 else self.chance.uniform(0.0, 0.3)):
                answer = await self.http.post(f"{self.server.url}/v1/audio/speech", json=body)
                assert answer.status == 200, await answer.text()
                try:
                    async for part in answer.content.iter_any():
                        heard += part
                finally:
                    self.leave(answer, rude=leaves == 1)
            self.stayed += 1
            assert len(heard) == 2 * round(0.6 * RATE)
        except TimeoutError:
            self.left += 1
        whole = np.frombuffer(heard[: len(heard) // 2 * 2], np.int16)
        assert np.array_equal(whole, sine(hertz, 0, len(whole), RATE)), f"foreign sound in a stream of {hertz} Hz"

    def leave(self, answer: aiohttp.ClientResponse, *, rude: bool) -> None:
        if rude and answer.connection is not None and answer.connection.transport is not None:
            answer.connection.transport.abort()
        answer.close()

    async def check_quiet(self) -> None:
        await asyncio.sleep(QUIET_S)
        before = await self.figures()
        while before["requests_running"] and not self.strict:  # this machine may be busy with other things
            assert monotonic_ns() < self.ends_ns + int(PATIENCE_S * NS)
            before = await self.figures()
        await asyncio.sleep(QUIET_S)
        after = await self.figures()
        assert before["requests_running"] == before["requests_waiting"] == 0
        assert 0 < before["steps"] == after["steps"], "a step began after everybody had left"

    async def figures(self) -> dict[str, float]:
        async with self.http.get(f"{self.server.url}/metrics") as answer:
            text = await answer.text()
        return {
            name: float(re.search(rf"^omnirt_\w*{name}\S* (\S+)$", text, re.MULTILINE)[1])  # type: ignore[index]
            for name in ("requests_running", "requests_waiting", "steps")
        }

    def slopes(self) -> dict[int, float]:
        """Bytes a minute of each process, after minute two."""
        late = {pid: [point for point in heap if point[0] > 120] for pid, heap in self.heaps.items()}
        return {pid: 60 * np.polyfit(*zip(*points, strict=True), 1)[0] for pid, points in late.items() if points}


def test_nothing_goes_on_for_clients_that_left_and_no_sound_is_foreign(soak: bool) -> None:
    async def body() -> Soak:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as http:
            with serving("tone", ["stage.tone.options.step_ms=8"], ["--log", "error"]) as server:
                await server.ready()
                soaking = Soak(server, http, 300.0 if soak else 5.0, strict=soak)
                await soaking.run()
                async with http.get(f"{server.url}/health") as health:
                    assert not any(stage["restarts"] for stage in (await health.json())["stages"])
                return soaking

    soaking = in_a_loop(body())
    assert soaking.left
    assert soaking.stayed
    slopes = soaking.slopes()
    assert all(slope < SLOPE_BYTES_MAX for slope in slopes.values()), slopes


def test_five_hundred_requests_closed_at_once_leave_none_running() -> None:
    async def knock(port: int, wait_s: float) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        text = '{"input": "440 Hz for 600 s", "response_format": "pcm"}'
        fields = f"Host: x\r\nContent-Type: application/json\r\nContent-Length: {len(text)}"
        writer.write(f"POST /v1/audio/speech HTTP/1.1\r\n{fields}\r\n\r\n{text}".encode())
        await asyncio.sleep(wait_s)
        writer.transport.abort()

    async def body() -> None:
        chance = Random("knock")
        async with aiohttp.ClientSession() as http:
            with serving("tone", ["stage.tone.options.step_ms=8"], ["--log", "error"]) as server:
                url = await server.ready()
                port = int(url.rpartition(":")[2])
                await asyncio.gather(*(knock(port, chance.uniform(0, 0.005)) for _ in range(500)))
                soaking = Soak(server, http, 0.0, strict=False)
                await soaking.check_quiet()
                await soaking.client()

    in_a_loop(body())


def test_requests_left_at_random_disturb_nobody_and_leave_nothing(soak: bool) -> None:
    """In the middle of transfers too large for a record, so that slots of links must come back."""
    chance = Random("abort")

    async def leaver(head: Any) -> None:
        async with head.submit(text_request("chunks=100000", ("audio",))) as live:
            try:
                async with asyncio.timeout(chance.uniform(0.0, 1.0 if soak else 0.2)):
                    while True:
                        assert isinstance(await live.next(), Output)
            except TimeoutError:
                return

    async def many(head: Any, count: int) -> None:
        for _ in range(count):
            await leaver(head)

    async def body() -> None:
        # The first stage is the faster one: there is always something unread when somebody leaves.
        sets = ["stage.spring.options.step_ms=0", "stage.mill.options.step_ms=1"]
        async with running(FRAIL, sets=sets) as head:
            staying = asyncio.ensure_future(ask(head, text_request("chunks=400", ("audio",), seed=4)))
            await asyncio.gather(*(many(head, 100 if soak else 25) for _ in range(10)))
            assert np.array_equal((await staying).samples, expected(4, 400))
            assert not any(stage.restarts for stage in head.state().stages)
            assert await settled(head) == []
            assert (await ask(head, text_request("chunks=3", ("audio",)))).code == "done"

    in_a_loop(body())


def test_one_abort_of_five_harms_neither_the_others_nor_the_next_fifty() -> None:
    async def body() -> None:
        async with running(FRAIL, sets=["stage.spring.options.step_ms=1"]) as head:
            lives = [head.submit(text_request("chunks=50", ("audio",), seed=seed)) for seed in range(5)]
            for live in lives:
                await live.next()
            lives[2].cancel("enough")
            answers = await asyncio.gather(*(read_all(live) for live in lives))
            assert [answer.code for answer in answers] == ["done", "done", "cancelled", "done", "done"]
            for seed in range(50):
                answer = await ask(head, text_request("chunks=2", ("audio",), seed=seed))
                assert np.array_equal(answer.samples, expected(seed, 2))
            assert await settled(head) == []

    in_a_loop(body())


def test_a_pool_of_four_places_is_whole_after_every_kind_of_end(soak: bool) -> None:
    orders = {"done": "chunks=2", "stage_failed": "chunks=2 mill=raise at=1", "timeout": "chunks=100000"}

    async def one(head: Any, kind: str) -> None:
        deadline_s = 0.02 if kind == "timeout" else 60.0
        live = head.submit(text_request(orders.get(kind, "chunks=100000"), ("audio",), deadline_s=deadline_s))
        if kind == "left":
            async with live:
                await live.next()
        else:
            assert (await read_all(live)).code == kind

    async def many(head: Any, count: int, chance: Random) -> None:
        for _ in range(count):
            await one(head, ("done", "left", "stage_failed", "timeout")[chance.randrange(4)])

    async def body() -> None:
        sets = ["limits.requests_max=4", "limits.queue_max=16", "stage.spring.options.step_ms=1"]
        async with running(FRAIL, sets=[*sets, "stage.mill.options.step_ms=0"]) as head:
            await asyncio.gather(*(many(head, 125 if soak else 20, Random(seed)) for seed in range(8)))
            assert await settled(head) == []
            assert (await ask(head, text_request("chunks=3", ("audio",)))).code == "done"

    in_a_loop(body())
