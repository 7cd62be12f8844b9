"""The maze while its nodes are killed at random: every request ends once, and whatever is done is right."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from random import Random
from typing import Any

import numpy as np
import pytest

from omnirt.actors.stages.maze import expected
from omnirt.actors.stages.tone import sine
from omnirt.testing.aftermath import pid_of, ready, settled
from omnirt.testing.live import Answer, ask, in_a_loop, running, text_request

SETS = ["restart.intensity=1000", "restart.backoff_s=0.01", "restart.backoff_max_s=0.05"]
IN_FLIGHT = 16
BELL = sine(440, 0, 4800, 24000)
pytestmark = pytest.mark.kill


def is_right(answer: Answer, text: str, outputs: tuple[str, ...]) -> bool:
    heard = "audio" not in outputs or np.array_equal(answer.samples, BELL)
    return heard and ("text" not in outputs or answer.text == expected(text))


@pytest.mark.parametrize("overlays", [(), ("maze-replicas",)])
def test_every_request_ends_once_and_right_while_nodes_are_killed(overlays: tuple[str, ...], soak: bool) -> None:
    chance = Random("maze")
    codes: Counter[str] = Counter()
    ends: Counter[str] = Counter()

    async def walk(head: Any, number: int) -> None:
        text = " ".join(str(chance.randrange(1, 100)) for _ in range(chance.randrange(1, 20)))
        outputs = chance.choice([("text",), ("text", "audio"), ("audio",)])
        answer = await ask(head, text_request(text, outputs, deadline_s=30.0, public_id=str(number)))
        codes[answer.code] += 1
        assert answer.code in ("done", "stage_lost"), answer.end
        assert answer.code != "done" or is_right(answer, text, outputs), (text, answer.text)

    async def killer(head: Any) -> None:
        """Now and then one more before the last one is back."""
        while True:
            await asyncio.sleep(chance.uniform(0.0, 0.3))
            living = sorted(head._nodes.processes)
            if living:
                node, rank = living[chance.randrange(len(living))]
                os.kill(pid_of(head, node, rank), signal.SIGKILL)
            if chance.random() < 0.7:
                await ready(head)

    async def body() -> None:
        async with running("maze", overlays, SETS) as head:
            said = head.ended
            head.ended = lambda submit, *rest: (ends.update([submit.public_id]), said(submit, *rest))
            numbers = iter(range(2000 if soak else 40))
            killing = asyncio.ensure_future(killer(head))
            await asyncio.gather(*(waiting(head, numbers) for _ in range(IN_FLIGHT)))
            killing.cancel()
            await ready(head)
            assert sum(stage.restarts for stage in head.state().stages)
            assert is_right(await ask(head, text_request("6 8 5")), "6 8 5", ("text",))
            assert await settled(head) == []

    async def waiting(head: Any, numbers: Any) -> None:
        """Walks on for as long as there are numbers; while a stage has no replica there is nothing to ask."""
        for number in numbers:
            while head.state().state == "unavailable":  # noqa: ASYNC110 - a client's retry
                await asyncio.sleep(0.02)
            await walk(head, number)

    in_a_loop(body())
    assert codes["done"]
    assert set(ends.values()) == {1}
