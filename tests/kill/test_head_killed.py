"""The head dies by SIGKILL at any moment: every descendant is gone, a stopped one too, and no shared memory is left."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from random import Random

import aiohttp
import numpy as np
import pytest

from omnirt.testing import processes
from omnirt.testing.aftermath import PATIENCE_S, until
from omnirt.testing.frail import expected
from omnirt.testing.live import in_a_loop
from omnirt.testing.served import Served, serving

FRAIL = str(Path(__file__).with_name("frail.toml"))
SETS = ["stage.spring.options.children=true", "stage.mill.options.children=true"]
CHILDREN = 2 * (1 + 3) + 1
"""Two nodes with three processes each, and the guard."""
GONE_S = 2.0
pytestmark = pytest.mark.kill


async def speak(http: aiohttp.ClientSession, url: str, orders: str, seed: int) -> aiohttp.ClientResponse:
    body = {"input": orders, "response_format": "pcm", "seed": seed}
    answer = await http.post(f"{url}/v1/audio/speech", json=body)
    assert answer.status == 200, await answer.text()
    return answer


async def is_right(http: aiohttp.ClientSession, url: str, seed: int) -> bool:
    answer = await speak(http, url, "chunks=20", seed)
    return np.array_equal(np.frombuffer(await answer.read(), np.int16), expected(seed, 20))


async def kill(server: Served, *, strict: bool) -> None:
    server.signal(signal.SIGKILL)
    server.process.wait(PATIENCE_S)
    took_s = await server.nothing_left()
    assert took_s < GONE_S or not strict, took_s
    sizes = {name: os.stat(f"/dev/shm/{name}").st_size for name in processes.segment_names(server.pid)}
    assert not any(sizes.values()), sizes


def test_a_running_head_takes_everything_with_it(soak: bool) -> None:
    async def one(http: aiohttp.ClientSession, moment: str) -> None:
        with serving(FRAIL, SETS) as server:
            url = await server.ready()
            assert len(server.family()) == CHILDREN
            assert len(processes.segments(server.pid)) == 5
            assert await is_right(http, url, 3)
            if moment in ("mid stream", "draining"):
                answer = await speak(http, url, "chunks=100000", 1)
                await answer.content.readexactly(100)
            if moment == "draining":
                server.signal(signal.SIGTERM)
                await until(lambda: "draining" in server.said, "it drains")
            if moment == "stopped":
                for pid in server.family():
                    if not processes.is_guard(pid):
                        os.kill(pid, signal.SIGSTOP)
            await kill(server, strict=soak)

    async def body() -> None:
        async with aiohttp.ClientSession() as http, asyncio.TaskGroup() as group:
            for moment in ("idle", "mid stream", "stopped", "draining"):
                group.create_task(one(http, moment))

    for _ in range(20 if soak else 1):
        in_a_loop(body())


def test_a_starting_head_takes_everything_with_it(soak: bool) -> None:
    chance = Random(1)

    async def body(wait_s: float) -> None:
        with serving(FRAIL, SETS) as server:
            await asyncio.sleep(wait_s)
            await kill(server, strict=soak)

    async def all_of_them() -> None:
        for _ in range(20 if soak else 2):
            async with asyncio.TaskGroup() as group:
                for _ in range(3):
                    group.create_task(body(chance.uniform(0.1, 1.5)))

    in_a_loop(all_of_them())


def test_servers_with_one_configuration_do_not_disturb_each_other() -> None:
    async def many(http: aiohttp.ClientSession, url: str) -> list[bool]:
        return await asyncio.gather(*(is_right(http, url, seed) for seed in range(8)))

    async def body() -> None:
        async with aiohttp.ClientSession() as http:
            with serving(FRAIL) as one, serving(FRAIL) as other:
                urls = await asyncio.gather(one.ready(), other.ready())
                for answers in await asyncio.gather(*(many(http, url) for url in urls)):
                    assert all(answers)
                family = other.family()
                stream = await speak(http, other.url, "chunks=200", 5)
                await kill(one, strict=False)
                assert np.array_equal(np.frombuffer(await stream.read(), np.int16), expected(5, 200))
                assert all(await many(http, other.url))
                assert other.family() == family

    in_a_loop(body())
