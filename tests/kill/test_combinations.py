"""The same maze however its stages are multiplied and however little may be under way: every request is answered."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from omnirt.actors.stages.maze import expected
from omnirt.pipeline.deploy import load_plan
from omnirt.testing.live import ask, in_a_loop, running, text_request

TEXTS = ("6 8 5", "1", "2 4 6 8 10 27 97", "3 5 7 9")
REQUESTS = 21
ALL = tuple(itertools.product((1, 2, 3), repeat=3))
EACH_PAIR = tuple((hub, path, (hub + path) % 3 + 1) for hub in (1, 2, 3) for path in (1, 2, 3))
"""Each number of replicas beside each other one, in a third of the combinations."""
pytestmark = pytest.mark.kill


async def all_are_answered(sets: list[str], overlays: tuple[str, ...] = ()) -> None:
    async def one(head: Any, number: int) -> None:
        text = TEXTS[number % len(TEXTS)]
        answer = await ask(head, text_request(text, ("text", "audio") if number % 3 == 0 else ("text",)))
        assert (answer.code, answer.text) == ("done", expected(text)), (sets, number)

    async with running("maze", overlays, sets) as head:
        await one(head, 0)
        await asyncio.gather(*(one(head, number) for number in range(1, REQUESTS)))


def test_with_any_number_of_replicas(soak: bool) -> None:
    for hub, path, guide in ALL if soak else EACH_PAIR:
        sets = [f"node.hub.replicas={hub}", f"node.path.replicas={path}", f"node.guide.replicas={guide}"]
        in_a_loop(all_are_answered(sets))


@pytest.mark.parametrize("overlays", [(), ("maze-fused",), ("maze-replicas",)])
def test_one_at_a_time_everywhere(overlays: tuple[str, ...]) -> None:
    plan = load_plan("maze")
    sets = [f"edge.{edge.source}.{edge.port}.credit=1" for edge in plan.edges if edge.source != "client"]
    sets += [f"stage.{stage.name}.batch=1" for stage in plan.stages] + ["edge.walk.ask.window=1"]
    in_a_loop(all_are_answered(sets, overlays))
