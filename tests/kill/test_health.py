"""Health tells the truth about a server that lost something, and a server that cannot work does not pretend to."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import aiohttp
import pytest

from omnirt.testing.aftermath import LOOK_S, PATIENCE_S, until
from omnirt.testing.live import in_a_loop
from omnirt.testing.processes import node_pid
from omnirt.testing.served import serving

FRAIL = str(Path(__file__).with_name("frail.toml"))
pytestmark = pytest.mark.kill


async def health(http: aiohttp.ClientSession, url: str, wanted: int) -> dict:
    """The report, once its status is the wanted one."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            async with http.get(f"{url}/health") as answer:
                if answer.status == wanted:
                    return await answer.json()
            await asyncio.sleep(LOOK_S)


def test_health_names_the_lost_stage_and_recovers_with_it() -> None:
    async def body() -> None:
        async with aiohttp.ClientSession() as http:
            with serving(FRAIL, ["stage.mill.options.load_s=1"]) as server:
                url = await server.ready()
                assert (await health(http, url, 200))["status"] == "healthy"
                os.kill(node_pid(server.pid, "mill.0"), signal.SIGKILL)
                report = await health(http, url, 503)
                assert report["status"] == "unhealthy"
                assert "stage mill is restarting" in report["reason"]
                body = {"input": "chunks=3", "response_format": "pcm"}
                async with http.post(f"{url}/v1/audio/speech", json=body) as refused:
                    assert refused.status == 503
                    assert int(refused.headers["Retry-After"]) >= 1
                    assert (await refused.json())["error"]["stage"] == "mill"
                await health(http, url, 200)
                async with http.post(f"{url}/v1/audio/speech", json=body) as answer:
                    assert answer.status == 200
                    assert len(await answer.read()) == 3 * 960

    in_a_loop(body())


def test_a_stage_that_is_never_ready_fails_the_start_and_is_named() -> None:
    async def body() -> None:
        with serving(FRAIL, ["stage.mill.options.load_s=1000", "stage.mill.load_limit_s=0.5"]) as server:
            status, _ = await server.ended()
            assert status == 1
            assert "mill.0 is lost" in server.said
            assert "is ready after" not in server.said
            await server.nothing_left()

    in_a_loop(body())


def test_a_stage_lost_for_good_ends_the_server_and_its_requests_typed() -> None:
    async def body() -> None:
        async with aiohttp.ClientSession() as http:
            with serving(FRAIL, ["restart.intensity=1"]) as server:
                url = await server.ready()
                first = node_pid(server.pid, "spring.0")
                os.kill(first, signal.SIGKILL)
                await until(lambda: node_pid(server.pid, "spring.0") not in (0, first), "it is started again")
                await health(http, url, 200)
                body = {"input": "chunks=5 hold=100000", "response_format": "pcm"}
                asking = asyncio.ensure_future(http.post(f"{url}/v1/audio/speech", json=body))
                await asyncio.sleep(0.1)
                os.kill(node_pid(server.pid, "spring.0"), signal.SIGKILL)
                answer = await asking
                assert answer.status == 500
                assert (await answer.json())["error"]["code"] == "stage_lost"
                status, _ = await server.ended()
                assert status == 1
                await server.nothing_left()

    in_a_loop(body())
