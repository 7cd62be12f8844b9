"""What must hold once a fault is over: the service is back, every request ended, and nothing of it is left anywhere."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any

from omnirt.ids import HEAD
from omnirt.testing import processes

PATIENCE_S = 60.0
LOOK_S = 0.01
SETTLE_LOOKS = 200


async def until(holds: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
    """Wait for what no event announces."""
    try:
        async with asyncio.timeout(patience_s):
            while not holds():  # noqa: ASYNC110 - see above
                await asyncio.sleep(LOOK_S)
    except TimeoutError:
        raise AssertionError(f"not within {patience_s:g} s: {what}") from None


async def ready(head: Any) -> None:
    """Every replica of every stage serves."""
    await until(lambda: head.state().state == "ready", "the pipeline is ready again")


def pid_of(head: Any, node: str, rank: int = 0) -> int:
    return head._nodes.processes[node, rank].child.pid


def processes_of(head: Any) -> set[int]:
    """All that belong to this head, one of perhaps several in this process."""
    return processes.family(os.getpid(), head._nodes.children.guard.run)


def segments_of(head: Any) -> dict[int, int]:
    """The shared memory that the nodes of this head hold."""
    return processes.segments(os.getpid(), among=processes_of(head))


async def settled(head: Any) -> list[str]:
    """What remains once the last messages on their way have been read; empty when all is well."""
    left: list[str] = []
    for _ in range(SETTLE_LOOKS):
        left = await remains(head)
        if not left:
            break
        await asyncio.sleep(LOOK_S)
    return left


async def remains(head: Any) -> list[str]:
    """What is left of ended requests and dead processes, in words; empty when all is well. The head must be quiet."""
    found = [f"{text}: {value}" for text, value in _of_requests(head).items() if value]
    nodes = {process.child.pid for process in head._nodes.processes.values()}
    strays = processes_of(head) - nodes - {head._nodes.children.guard.pid} - _grandchildren(head)
    found += [f"process {pid} is nobody's" for pid in strays]
    found += [f"{name} is visible in /dev/shm" for name in processes.segment_names(os.getpid())]
    linked = len(head.plan.links)
    mapped = len(segments_of(head))
    if mapped != linked + 2:  # the fence page and the board
        found.append(f"nodes hold {mapped} segments; {linked} links, a fence page and a board are {linked + 2}")
    for process, values in (await head.stats()).items():
        ends = ("_slots",) if process == HEAD else (".rows", ".waiting")
        found += [f"{process}: {name} is {value:g}" for name, value in values.items() if name.endswith(ends) and value]
    return found


def _of_requests(head: Any) -> dict[str, object]:
    orchestrator = head._system._entries["orchestrator"].actor
    router, plan = orchestrator._router, head.plan
    state = head.state()
    return {
        "running": state.running,
        "waiting": state.waiting,
        "requests kept": orchestrator._entries,
        "slots lost": plan.limits.requests_max - orchestrator._places.free,
        "public ids kept": orchestrator._public,
        "loads": {node.name: router.load(node.name) for node in plan.nodes if router.load(node.name)},
        "sessions": [name for name in head._system._entries if name.startswith("session/")],
        "at work": [node.name for node in head._nodes.supervisor._nodes.values() if node.at_work],
        "deadline armed": head._nodes.supervisor.deadline_ns,
    }


def _grandchildren(head: Any) -> set[int]:
    """Those of a stage that has processes of its own; they go with their node."""
    if not any(stage.options.get("children") for stage in head.plan.stages):
        return set()
    nodes = [process.child.pid for process in head._nodes.processes.values()]
    return {pid for pid in processes_of(head) if processes.parent(pid) in nodes}
