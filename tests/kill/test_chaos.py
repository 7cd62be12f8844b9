"""Everything at once, from a seed: requests of all kinds, and processes that die, hang and pause under them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from omnirt.errors import NotReady, Overloaded
from omnirt.testing.aftermath import pid_of, ready, settled
from omnirt.testing.frail import expected
from omnirt.testing.live import ask, in_a_loop, read_all, running, text_request

FRAIL = str(Path(__file__).with_name("frail.toml"))
SETS = [
    "node.spring.replicas=2",
    "node.mill.replicas=2",
    "stage.spring.options.step_ms=2",
    "stage.spring.step_limit_s=1",
    "stage.mill.step_limit_s=1",
    "restart.intensity=10000",
    "restart.backoff_max_s=0.1",
]
CLIENTS = 24
ORDERS = {
    "good": "chunks={n}",
    "late": "chunks=100000",
    "left": "chunks=100000",
    "bad": "chunks={n} mill=raise at=1",
    "poison": "chunks={n} spring=kill at=1",
    "stuck": "chunks={n} mill=stop at=1",
}
ENDS = {
    "good": {"done", "stage_lost"},
    "late": {"timeout", "stage_lost"},
    "bad": {"stage_failed", "stage_lost"},
    "poison": {"stage_lost"},
    "stuck": {"stage_lost", "done"},  # somebody may wake it
}
pytestmark = pytest.mark.kill


class Chaos:
    def __init__(self, head: Any, chance: Random, seconds: float) -> None:
        self.head = head
        self.chance = chance
        self.until_s = asyncio.get_running_loop().time() + seconds
        self.codes: Counter[tuple[str, str]] = Counter()
        self.asked = 0

    async def run(self) -> None:
        striking = asyncio.ensure_future(self.strike())
        await asyncio.gather(*(self.client() for _ in range(CLIENTS)))
        await striking

    def goes_on(self) -> bool:
        return asyncio.get_running_loop().time() < self.until_s

    async def client(self) -> None:
        while self.goes_on():
            kind = self.chance.choices(list(ORDERS), weights=[40, 10, 20, 10, 1, 1])[0]
            count, seed = self.chance.randrange(1, 60), self.chance.randrange(1 << 20)
            deadline_s = self.chance.uniform(0.0, 0.5) if kind == "late" else 60.0
            orders = ORDERS[kind].format(n=max(count, 2))
            values = {"seed": seed, "deadline_s": deadline_s, "public_id": str(self.asked)}
            try:
                live = self.head.submit(text_request(orders, ("audio",), **values))
                self.asked += 1
            except (NotReady, Overloaded) as error:
                self.codes[kind, error.code] += 1
                await asyncio.sleep(0.05)
                continue
            if kind == "left":
                with contextlib.suppress(TimeoutError):
                    await read_all(live, self.chance.uniform(0.0, 0.3))
                continue
            answer = await read_all(live)
            self.codes[kind, answer.code] += 1
            assert answer.code in ENDS[kind], (kind, answer.end)
            whole = expected(seed, max(count, 2)) if kind == "good" else answer.samples
            assert np.array_equal(answer.samples, whole[: len(answer.samples)]), "foreign samples"
            assert answer.code != "done" or len(answer.samples) == len(whole)

    async def strike(self) -> None:
        while self.goes_on():
            await asyncio.sleep(self.chance.uniform(0.0, 1.0))
            living = sorted(self.head._nodes.processes)
            if not living:
                continue
            pid = pid_of(self.head, *living[self.chance.randrange(len(living))])
            how = self.chance.randrange(4)
            os.kill(pid, signal.SIGSTOP if how < 2 else signal.SIGKILL)
            if how == 0:
                await asyncio.sleep(self.chance.uniform(0.0, 0.5))
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)


def test_whatever_happens_every_request_ends_once_and_nothing_is_left(soak: bool) -> None:
    for seed in range(3 if soak else 1):
        run_once(seed, 120.0 if soak else 4.0)


def run_once(seed: int, seconds: float) -> None:
    ends: Counter[str] = Counter()

    async def body() -> Chaos:
        async with running(FRAIL, sets=SETS) as head:
            said = head.ended
            head.ended = lambda submit, *rest: (ends.update([submit.public_id]), said(submit, *rest))
            chaos = Chaos(head, Random(seed), seconds)
            await chaos.run()
            head.ended = said
            await ready(head)
            assert (await ask(head, text_request("chunks=3", ("audio",)))).code == "done"
            assert await settled(head) == []
        return chaos

    chaos = in_a_loop(body())
    assert chaos.codes["good", "done"]
    assert len(ends) == chaos.asked
    assert set(ends.values()) == {1}
