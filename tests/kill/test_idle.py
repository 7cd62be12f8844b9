"""Nobody is woken while there is nothing to do: no poll, no timer, no heartbeat, in any process."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from omnirt.testing.live import in_a_loop
from omnirt.testing.processes import voluntary_switches
from omnirt.testing.served import serving

SWITCHES_MAX = 2
QUIET_S = 10.0
pytestmark = [pytest.mark.kill, pytest.mark.slow]


def test_an_idle_server_sleeps_in_all_its_processes() -> None:
    async def body() -> dict[int, int]:
        with serving("maze") as server:
            url = await server.ready()
            async with aiohttp.ClientSession() as http:
                answer = await http.post(f"{url}/v1/audio/speech", json={"input": "6 8 5", "response_format": "wav"})
                assert answer.status == 200
                await answer.read()
            await asyncio.sleep(2.0)  # the last words of start and request
            everybody = {server.pid, *server.family()}
            assert len(everybody) == 6  # head, guard and four nodes
            before = voluntary_switches(everybody)
            await asyncio.sleep(QUIET_S)
            after = voluntary_switches(everybody)
            return {pid: after[pid] - before[pid] for pid in everybody}

    switches = in_a_loop(body())
    assert sum(switches.values()) <= SWITCHES_MAX, switches
