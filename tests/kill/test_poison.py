"""What one request does to a process is that request's end, not its neighbours'."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from omnirt.session.service import Failed
from omnirt.testing.aftermath import pid_of, ready, settled, until
from omnirt.testing.frail import expected
from omnirt.testing.live import Answer, ask, in_a_loop, read_all, running, text_request
from omnirt.testing.processes import exists

FRAIL = str(Path(__file__).with_name("frail.toml"))
CHUNKS = 5
pytestmark = pytest.mark.kill


def is_right(answer: Answer, seed: int) -> bool:
    return answer.code == "done" and np.array_equal(answer.samples, expected(seed, CHUNKS))


async def with_mates(head: Any, orders: str) -> tuple[Answer, list[Answer]]:
    """The answer to a request with these orders, and to six others that are in its steps."""
    mates = [ask(head, text_request(f"chunks={CHUNKS} hold=150", ("audio",), seed=seed)) for seed in range(6)]
    culprit, *answers = await asyncio.gather(ask(head, text_request(orders, ("audio",), seed=66)), *mates)
    return culprit, answers


def restarts(head: Any) -> dict[str, int]:
    return {stage.name: stage.restarts for stage in head.state().stages}


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_request_that_kills_two_processes_is_lost_and_its_mates_are_done(replicas: int) -> None:
    async def body() -> None:
        async with running(FRAIL, sets=[f"node.spring.replicas={replicas}", "stage.spring.options.step_ms=1"]) as head:
            culprit, mates = await with_mates(head, "chunks=5 hold=40 at=20 spring=kill")
            assert culprit.code == "stage_lost", culprit.end
            assert all(is_right(answer, seed) for seed, answer in enumerate(mates)), [mate.end for mate in mates]
            await ready(head)
            assert restarts(head) == {"spring": 2, "mill": 0}
            assert await settled(head) == []

    in_a_loop(body())


def test_a_request_that_hangs_two_processes_is_lost_and_its_mates_are_done() -> None:
    async def body() -> None:
        async with running(FRAIL, sets=["stage.mill.step_limit_s=0.5"]) as head:
            culprit, mates = await with_mates(head, "chunks=5 hold=20 at=0 mill=stop")
            assert culprit.code == "stage_lost", culprit.end
            assert all(is_right(answer, seed) for seed, answer in enumerate(mates)), [mate.end for mate in mates]
            await ready(head)
            assert restarts(head) == {"spring": 0, "mill": 2}
            assert await settled(head) == []

    in_a_loop(body())


def test_an_exception_in_a_step_fails_only_the_request_that_caused_it() -> None:
    async def body() -> None:
        async with running(FRAIL) as head:
            for orders in ("at=20 spring=raise", "at=2 mill=raise"):
                culprit, mates = await with_mates(head, f"chunks=5 hold=40 {orders}")
                assert culprit.code == "stage_failed", culprit.end
                assert isinstance(culprit.end, Failed)
                assert "the request asked for it" in culprit.end.failure.message
                assert all(is_right(answer, seed) for seed, answer in enumerate(mates)), [mate.end for mate in mates]
            assert restarts(head) == {"spring": 0, "mill": 0}
            assert await settled(head) == []

    in_a_loop(body())


def test_one_lost_rank_ends_the_replica_which_comes_back_whole() -> None:
    async def strike(head: Any, rank: int, number: signal.Signals) -> None:
        before = [pid_of(head, "spring.0", each) for each in range(2)]
        live = head.submit(text_request("chunks=100000", ("audio",)))
        await live.next()
        os.kill(before[rank], number)
        assert (await read_all(live)).code == "stage_lost"
        await until(lambda: not any(exists(pid) for pid in before), "both ranks are gone")
        await ready(head)
        assert is_right(await ask(head, text_request(f"chunks={CHUNKS}", ("audio",), seed=2)), 2)
        assert await settled(head) == []

    async def body() -> None:
        async with running(FRAIL, sets=["node.spring.ranks=2"]) as head:
            for rank, number in ((0, signal.SIGKILL), (1, signal.SIGKILL), (1, signal.SIGSTOP)):
                await strike(head, rank, number)

    in_a_loop(body())
