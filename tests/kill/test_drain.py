"""SIGTERM: what runs is finished, what comes is refused, and the end comes in time, whatever still holds on."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import numpy as np
import pytest

from omnirt.actors.stages.tone import sine
from omnirt.testing.aftermath import until
from omnirt.testing.live import in_a_loop
from omnirt.testing.served import Served, serving

RATE = 24000
SETS = ["stage.tone.options.step_ms=10"]
STREAMS = 4
pytestmark = pytest.mark.kill


async def speak(http: aiohttp.ClientSession, server: Served, text: str, **fields: object) -> aiohttp.ClientResponse:
    body = {"input": text, "response_format": "pcm", **fields}
    return await http.post(f"{server.url}/v1/audio/speech", json=body)


@asynccontextmanager
async def with_streams(seconds: float, *sets: str, **fields: object) -> AsyncIterator[tuple]:
    """A server with four streams under way, all of them past their first bytes."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as http:
        with serving("tone", [*SETS, *sets]) as server:
            await server.ready()
            answers = [await speak(http, server, f"{400 + n} Hz for {seconds} s", **fields) for n in range(STREAMS)]
            for answer in answers:
                assert answer.status == 200
                await answer.content.read(1)
            yield http, server, answers


async def gone(server: Served) -> None:
    """No process, no shared memory, and no complaint of either."""
    await server.nothing_left()
    assert "leaked" not in server.said
    assert "Traceback" not in server.said


def reading(answers: list[aiohttp.ClientResponse]) -> list[asyncio.Task[bytes]]:
    return [asyncio.ensure_future(read_broken(answer)) for answer in answers]


async def read_broken(answer: aiohttp.ClientResponse) -> bytes:
    """All of an answer that breaks off. To be read while it comes: what is unread at the break is lost here."""
    got = b""
    try:
        async for part in answer.content.iter_any():
            got += part
    except aiohttp.ClientPayloadError:
        return got
    raise AssertionError("a stream that was broken off looks complete")


def test_sigterm_finishes_what_runs_and_refuses_what_comes() -> None:
    async def body() -> None:
        async with with_streams(2.0) as (http, server, answers), aiohttp.ClientSession() as kept:
            async with kept.get(f"{server.url}/health") as health:
                assert health.status == 200  # its connection stays open and idle
            idle = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
            server.signal(signal.SIGTERM)
            await until(lambda: "draining" in server.said, "it drains")
            for client in (kept, http):
                refused = await speak(client, server, "440 Hz for 1 s")
                assert refused.status == 503
                assert refused.headers["Connection"] == "close"
                assert (await refused.json())["error"]["code"] == "shutting_down"
            async with kept.get(f"{server.url}/health") as health:
                assert health.status == 503
                assert (await health.json())["status"] == "draining"
            for n, answer in enumerate(answers):
                rest = np.frombuffer(b"\0" + await answer.read(), np.int16)
                assert np.array_equal(rest[1:], sine(400 + n, 0, 2 * RATE, RATE)[1:])
            status, _ = await server.ended()
            assert status == 0
            await gone(server)
            idle[1].close()

    in_a_loop(body())


def test_a_second_signal_ends_it_at_once_and_no_stream_looks_complete() -> None:
    async def body() -> None:
        async with with_streams(600.0) as (_, server, answers):
            broken = reading(answers)
            server.signal(signal.SIGTERM)
            await until(lambda: "draining" in server.said, "it drains")
            server.signal(signal.SIGTERM)
            status, _ = await server.ended()
            assert status == 1
            await asyncio.gather(*broken)
            await gone(server)

    in_a_loop(body())


def test_what_runs_past_the_drain_limit_ends_typed() -> None:
    async def body() -> None:
        async with with_streams(600.0, "limits.drain_s=0.5", stream_format="sse") as (_, server, answers):
            broken = reading(answers)
            server.signal(signal.SIGTERM)
            for got in await asyncio.gather(*broken):
                events = got.decode().strip().split("\n\n")
                last = json.loads(events[-1].removeprefix("data: "))
                assert last["type"] == "speech.audio.error"
                assert last["error"]["code"] == "shutting_down"
            status, _ = await server.ended()
            assert status == 0
            await gone(server)

    in_a_loop(body())


def test_a_client_that_does_not_read_holds_up_no_exit() -> None:
    async def body() -> None:
        async with with_streams(600.0, "limits.drain_s=0.2") as (_, server, answers):
            for answer in answers:
                answer.connection.transport.pause_reading()  # type: ignore[union-attr]
            server.signal(signal.SIGTERM)
            status, _ = await server.ended()
            assert status == 0
            await gone(server)

    in_a_loop(body())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_it_loads_ends_it_cleanly(number: int) -> None:
    async def body() -> None:
        with serving("tone") as server:
            await until(lambda: len(server.family()) == 2, "it has started its node")
            server.signal(number)
            status, _ = await server.ended()
            assert status == 0, server.said
            await gone(server)

    in_a_loop(body())
