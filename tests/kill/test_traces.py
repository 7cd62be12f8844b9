"""One request can be followed through a whole server: by its id in every stage's log, and as a timeline in a file."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from pathlib import Path

import aiohttp
import pytest

from omnirt.testing.aftermath import until
from omnirt.testing.live import in_a_loop
from omnirt.testing.served import serving
from omnirt.trace_files import SUFFIX

FRAIL = str(Path(__file__).with_name("frail.toml"))
STAGES = {"fork", "walk", "guide", "square", "join", "bell"}
pytestmark = pytest.mark.kill


async def speak(http: aiohttp.ClientSession, url: str, request: str, text: str) -> int:
    body = {"input": text, "response_format": "pcm"}
    async with http.post(f"{url}/v1/audio/speech", json=body, headers={"X-Request-Id": request}) as answer:
        assert answer.headers["X-Request-Id"] == request
        await answer.read()
        return answer.status


def test_an_id_is_in_the_log_lines_of_every_stage_and_names_the_trace(tmp_path: Path) -> None:
    async def body() -> str:
        with serving("maze", options=["--log", "debug", "--trace", str(tmp_path)]) as server:
            url = await server.ready()
            async with aiohttp.ClientSession() as http:
                assert await speak(http, url, "call-7", "4 5 6") == 200
                async with http.get(f"{url}/v1/omnirt/requests/call-7/trace") as answer:
                    served = await answer.json()
            await until(lambda: len(list(tmp_path.glob(f"*{SUFFIX}"))) == 1, "the trace is written")
            server.signal(signal.SIGTERM)
            assert (await server.ended())[0] == 0
            file = tmp_path / f"call-7{SUFFIX}"
            assert json.loads(file.read_text()) == served
            tracks = {event["args"]["name"] for event in served["traceEvents"] if event["name"] == "thread_name"}
            assert tracks == {"gateway"} | STAGES - {"guide"}
            return server.said

    lines = [line for line in in_a_loop(body()).splitlines() if "request=call-7" in line]
    for said in ("opened", "ended"):
        assert {re.search(r"stage=(\w+)", line)[1] for line in lines if f"msg={said}" in line} == STAGES
    assert any("process=head" in line and "POST speech" in line for line in lines)


def test_a_failure_is_logged_by_its_stage_with_the_id_and_has_a_trace(tmp_path: Path) -> None:
    async def body() -> str:
        with serving(FRAIL, options=["--trace", str(tmp_path)]) as server:
            url = await server.ready()
            async with aiohttp.ClientSession() as http:
                assert await speak(http, url, "bad-1", "chunks=3 mill=raise at=0") == 500
            server.signal(signal.SIGTERM)
            assert (await server.ended())[0] == 0
            trace = json.loads((tmp_path / f"bad-1{SUFFIX}").read_text())
            assert trace["otherData"]["outcome"] == "stage_failed"
            return server.said

    lines = [line for line in in_a_loop(body()).splitlines() if "request=bad-1" in line]
    assert any("process=mill.0" in line and "stage=mill" in line for line in lines)
    assert any("process=head" in line and "stage=mill" in line for line in lines)


def test_clients_that_leave_have_a_trace_too(tmp_path: Path) -> None:
    async def body() -> None:
        with serving("tone", ["stage.tone.options.step_ms=5"], ["--trace", str(tmp_path)]) as server:
            url = await server.ready()
            async with aiohttp.ClientSession() as http:
                asked = asyncio.ensure_future(speak(http, url, "gone-1", "440 Hz for 60 s"))
                await asyncio.sleep(0.3)
                asked.cancel()
                await until(lambda: (tmp_path / f"gone-1{SUFFIX}").exists(), "the trace is written")
            trace = json.loads((tmp_path / f"gone-1{SUFFIX}").read_text())
            assert trace["otherData"]["outcome"] == "client_gone"

    in_a_loop(body())
