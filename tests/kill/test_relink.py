"""What may go wrong around a restart: no shared memory for the new links, and a pause that only looked like a death."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import numpy as np
import pytest

from omnirt.actors.head import Head
from omnirt.actors.nodes import Parts
from omnirt.connectors.ring import RingPair
from omnirt.pipeline.deploy import load_plan
from omnirt.shm.segment import SharedMemoryFull
from omnirt.testing.aftermath import pid_of, ready, settled, until
from omnirt.testing.frail import expected
from omnirt.testing.live import ask, in_a_loop, running, text_request
from omnirt.wire.plan import LinkPlan

FRAIL = str(Path(__file__).with_name("frail.toml"))
pytestmark = pytest.mark.kill


def test_a_restart_without_memory_for_its_links_is_tried_again() -> None:
    failures = 0

    def pair(plan: LinkPlan) -> RingPair:
        nonlocal failures
        if failures:
            failures -= 1
            raise SharedMemoryFull(1 << 20, 0)
        return RingPair.create(plan)

    async def body() -> None:
        nonlocal failures
        head = Head(load_plan(FRAIL), asyncio.get_running_loop(), Parts(pair=pair))
        try:
            head.start()
            await ready(head)
            failures = 2
            os.kill(pid_of(head, "mill.0"), signal.SIGKILL)
            answer = await ask(head, text_request("chunks=5", ("audio",), seed=1))
            assert np.array_equal(answer.samples, expected(1, 5))
            assert failures == 0
            await ready(head)
            assert await settled(head) == []
        finally:
            head.close()

    in_a_loop(body())


def test_a_start_without_memory_fails_at_once_and_leaves_nothing() -> None:
    def pair(plan: LinkPlan) -> RingPair:
        raise SharedMemoryFull(1 << 20, 0)

    async def body() -> None:
        head = Head(load_plan(FRAIL), asyncio.get_running_loop(), Parts(pair=pair))
        with pytest.raises(SharedMemoryFull):
            head.start()
        head.close()
        assert head._nodes.children.alive() == 0

    in_a_loop(body())


def test_a_node_that_only_paused_has_lost_nothing() -> None:
    async def body() -> None:
        async with running(FRAIL) as head:
            asking = [asyncio.ensure_future(ask(head, text_request("chunks=80", ("audio",), seed=n))) for n in range(4)]
            for node in ("spring.0", "mill.0"):
                await asyncio.sleep(0.1)
                os.kill(pid_of(head, node), signal.SIGSTOP)
                await asyncio.sleep(0.3)
                os.kill(pid_of(head, node), signal.SIGCONT)
            for seed, answer in enumerate(await asyncio.gather(*asking)):
                assert np.array_equal(answer.samples, expected(seed, 80)), answer.end
            assert not any(stage.restarts for stage in head.state().stages)
            assert await settled(head) == []

    in_a_loop(body())


def test_a_head_closed_while_a_node_waits_for_its_restart_starts_nothing_more() -> None:
    async def body() -> None:
        async with running(FRAIL, sets=["restart.backoff_s=0.2"]) as head:
            os.kill(pid_of(head, "mill.0"), signal.SIGKILL)
            await until(lambda: head._nodes.supervisor.phase("mill.0") == "waiting", "it waits for its restart")
        await asyncio.sleep(0.5)
        assert head._nodes.children.alive() == 0

    in_a_loop(body())
