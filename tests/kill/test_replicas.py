"""With two replicas, whoever has been given nothing yet is answered by the other one, as if nothing had happened."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from omnirt.session.service import Output
from omnirt.testing.aftermath import pid_of, ready, settled
from omnirt.testing.frail import expected
from omnirt.testing.live import Answer, ask, in_a_loop, running, text_request

FRAIL = str(Path(__file__).with_name("frail.toml"))
SETS = ["node.spring.replicas=2", "node.mill.replicas=2"]
REQUESTS = 12
CHUNKS = 20
pytestmark = pytest.mark.kill


async def followed(live: Any, given: dict[int, int], seed: int) -> Answer:
    """Read to the end, counting in `given` what came."""
    answer = Answer()
    async with asyncio.timeout(60), live:
        while isinstance(event := await live.next(), Output):
            given[seed] += 1
            answer.add(event.payload)
        answer.end = event
        return answer


@pytest.mark.parametrize(("number", "strikes"), [(signal.SIGKILL, 3), (signal.SIGSTOP, 1)])
def test_who_was_given_nothing_gets_the_same_answer_from_the_other_replica(
    number: signal.Signals, strikes: int, soak: bool
) -> None:
    chance = Random(number)

    async def strike(head: Any, group: str) -> None:
        given = dict.fromkeys(range(REQUESTS), 0)
        tasks = []
        for seed in given:
            orders = f"chunks={CHUNKS} hold={chance.randrange(60)}"
            live = head.submit(text_request(orders, ("audio",), seed=seed))
            tasks.append(asyncio.ensure_future(followed(live, given, seed)))
        await asyncio.sleep(chance.uniform(0.01, 0.3))
        os.kill(pid_of(head, f"{group}.{chance.randrange(2)}"), number)
        for seed, answer in enumerate(await asyncio.gather(*tasks)):
            right = answer.code == "done" and np.array_equal(answer.samples, expected(seed, CHUNKS))
            assert right or (answer.code == "stage_lost" and given[seed]), (seed, given[seed], answer.end)
        await ready(head)
        assert await settled(head) == []

    async def body() -> None:
        async with running(FRAIL, sets=SETS) as head:
            for _ in range(20 if soak else strikes):
                for group in ("spring", "mill"):
                    await strike(head, group)

    in_a_loop(body())


@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_the_first_request_and_twenty_more_complete_with_any_number_of_replicas(replicas: int) -> None:
    async def body() -> None:
        sets = [f"node.spring.replicas={replicas}", f"node.mill.replicas={1 + replicas % 3}"]
        async with running(FRAIL, sets=[*sets, "stage.spring.options.step_ms=1"]) as head:
            for seed in range(21):
                answer = await ask(head, text_request("chunks=3", ("audio",), seed=seed))
                assert np.array_equal(answer.samples, expected(seed, 3))
            many = (ask(head, text_request("chunks=3", ("audio",), seed=seed)) for seed in range(16))
            assert [answer.code for answer in await asyncio.gather(*many)] == ["done"] * 16

    in_a_loop(body())
