"""Twelve speakers on eight rows, most of whom leave in the middle, and once the process that speaks is killed: nobody
hears another one's frames, every answer that ends is whole, and no row, page or slot is left behind.

Each answer is compared with what the same request was answered when it was alone, but for the last bit of a sample: how
the decoder's pieces are cut depends on time.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
from pathlib import Path
from random import Random

import aiohttp
import numpy as np
import pytest

from omnirt.actors.models.qwen3_tts import random_checkpoint
from omnirt.clock import NS, monotonic_ns
from omnirt.testing.aftermath import PATIENCE_S
from omnirt.testing.live import in_a_loop
from omnirt.testing.served import Served, serving

SPEAKERS = 12
ROWS = 8
KINDS = 6
FRAMES = (4, 25, 9, 17, 40, 12)
SETS = [
    "node.speech.device=cpu",
    "node.speech.threads=1",
    f"stage.talker.options.rows={ROWS}",
    f"stage.decoder.options.rows={ROWS}",
    "limits.requests_max=16",
]
LEFTOVERS = ("omnirt_requests_running", "omnirt_stage_rows_used", "omnirt_stage_pages_used")
pytestmark = [pytest.mark.kill, pytest.mark.slow]


class Speakers:
    def __init__(self, server: Served, http: aiohttp.ClientSession) -> None:
        self.server, self.http = server, http
        self.whole: list[np.ndarray] = []
        self.chance = Random("speakers")
        self.left = self.stayed = self.lost = 0

    async def learn(self) -> None:
        for kind in range(KINDS):
            sound = bytearray()
            assert await self.listen(kind, sound)
            self.whole.append(samples(sound))
            assert len(self.whole[-1]) == FRAMES[kind] * 1920

    async def run(self, seconds: float, *, killing: bool) -> None:
        ends_ns = monotonic_ns() + int(seconds * NS)
        async with asyncio.TaskGroup() as group:
            for _ in range(SPEAKERS):
                group.create_task(self.speaker(ends_ns, killing))
            if killing:
                await asyncio.sleep(seconds / 3)
                os.kill(self.node(), signal.SIGKILL)

    def node(self) -> int:
        """The process that speaks."""
        return next(pid for pid in self.server.family() if b"runtime.node" in Path(f"/proc/{pid}/cmdline").read_bytes())

    async def speaker(self, ends_ns: int, may_be_lost: bool) -> None:
        while monotonic_ns() < ends_ns:
            kind = self.chance.randrange(KINDS)
            stays = self.chance.randrange(3) == 0
            sound = bytearray()
            try:
                async with asyncio.timeout(None if stays else self.chance.uniform(0.0, 1.0)):
                    whole = await self.listen(kind, sound)
                self.stayed += whole
                self.lost += not whole
                assert whole or may_be_lost
                assert not whole or len(sound) == 2 * len(self.whole[kind])
                await asyncio.sleep(0 if whole else 0.2)
            except TimeoutError:
                self.left += 1
            got = samples(sound)
            difference = np.abs(got - self.whole[kind][: len(got)])
            assert not len(got) or difference.max() <= 1, f"foreign sound in an answer of kind {kind}"

    async def listen(self, kind: int, sound: bytearray) -> bool:
        """False where the server says that it lost the request, or has to start again first."""
        body = {
            "input": f"This is the text of speaker number {kind}.", "voice": "vivian", "response_format": "pcm",
            "seed": kind, "max_new_tokens": FRAMES[kind], "ignore_eos": True,
        }  # fmt: skip
        try:
            async with self.http.post(f"{self.server.url}/v1/audio/speech", json=body) as answer:
                if answer.status in (500, 503):
                    return False
                assert answer.status == 200, await answer.text()
                async for part in answer.content.iter_any():
                    sound += part
        except aiohttp.ClientError:
            return False
        return True

    async def settled(self) -> None:
        """It serves, and all of it was given back."""
        ends_ns = monotonic_ns() + int(PATIENCE_S * NS)
        while not await self.listen(0, bytearray()):
            assert monotonic_ns() < ends_ns, "it never served again"
            await asyncio.sleep(0.2)
        while any(values := await self.figures()):
            assert monotonic_ns() < ends_ns, values
            await asyncio.sleep(0.05)

    async def figures(self) -> list[float]:
        async with self.http.get(f"{self.server.url}/metrics") as answer:
            text = await answer.text()
        return [float(v) for name in LEFTOVERS for v in re.findall(rf"^{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE)]


def samples(sound: bytearray) -> np.ndarray:
    return np.frombuffer(bytes(sound[: len(sound) // 2 * 2]), "<i2").astype(int)


@pytest.mark.parametrize("killing", [False, True], ids=["left alone", "killed once"])
def test_nobody_hears_another_and_nothing_is_left(killing: bool, tmp_path: Path, soak: bool) -> None:
    in_a_loop(speak_and_leave(random_checkpoint.write(tmp_path / "speaker", "custom_voice"), killing, soak))


async def speak_and_leave(folder: Path, killing: bool, soak: bool) -> None:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        with serving(str(folder), SETS, ["--log", "error"]) as server:
            await server.ready()
            speakers = Speakers(server, http)
            await speakers.learn()
            await speakers.run(300.0 if soak else 8.0, killing=killing)
            await speakers.settled()
            assert speakers.left
            assert speakers.stayed
            assert bool(speakers.lost) <= killing
