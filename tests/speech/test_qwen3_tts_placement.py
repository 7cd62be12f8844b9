"""Where the stages of Qwen3-TTS run changes nothing that could be heard: one process, two, or two of everything."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from omnirt.actors.models.qwen3_tts import random_checkpoint
from omnirt.loader import resolve
from omnirt.pipeline.deploy import load_plan
from omnirt.testing.live_gateway import LiveGateway

START_S = 300.0
CPU = ["node.speech.device=cpu", "node.speech.threads=1"]
PLACEMENTS = {
    "fused": ([], CPU),
    "split": (["qwen3-tts-split"], [*CPU, "node.decoder.device=cpu", "node.decoder.threads=1"]),
    "replicas": (["qwen3-tts-replicas"], CPU),
}
BODY = {"voice": "vivian", "response_format": "pcm", "max_new_tokens": 14, "ignore_eos": True}


@contextmanager
def served(folder: Path, overlays: list[str], sets: list[str]) -> Iterator[LiveGateway]:
    plan = load_plan(str(folder), overlays, sets)
    ready = threading.Event()

    def start() -> Any:
        head = resolve("omnirt.actors.head:Head")(plan, asyncio.get_running_loop())
        head.on_ready(ready.set)
        head.start()
        return head

    with LiveGateway(start, close=lambda head: head.close()) as gateway:
        assert ready.wait(START_S), gateway.call(gateway.service.state)
        yield gateway


def said(gateway: LiveGateway) -> list[bytes]:
    def say(at: int) -> bytes:
        answer = gateway.ask("POST", "/v1/audio/speech", BODY | {"input": f"This is text number {at}.", "seed": at})
        assert answer.status == 200, answer.body
        return answer.body

    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(say, range(4)))


@pytest.mark.slow
def test_fused_split_and_replicated_stages_say_the_same(tmp_path: Path):
    folder = random_checkpoint.write(tmp_path / "speaker", "custom_voice")
    heard = {}
    for name, (overlays, sets) in PLACEMENTS.items():
        with served(folder, overlays, sets) as gateway:
            heard[name] = said(gateway)
    for name in ("split", "replicas"):
        for one, other in zip(heard["fused"], heard[name], strict=True):
            # Codes are equal; how the decoder's pieces are cut depends on time, and its sums round with the cut.
            left, right = (np.frombuffer(data, "<i2").astype(int) for data in (one, other))
            assert len(left) == len(right) == 14 * 1920
            assert np.abs(left - right).max() <= 1
