"""What must hold in every world: after each step, when a timer goes off, for each request, and at the end."""

# pyright: reportPrivateUsage=false
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from omnirt.clock import NS
from omnirt.session.request import SUSPICIONS_MAX
from omnirt.session.service import Done, Failed
from omnirt.testing.sim.client import Client
from omnirt.testing.sim.process import SimNode

if TYPE_CHECKING:
    from omnirt.testing.sim.world import World

WAITING_MAX = 12
"""Payloads one step of a simulated stage may emit on an edge, for three values and a window of four coming in order."""
DEADLINE_SLACK_NS = 20_000_000
"""Some turns of the head's loop."""
HUNG_FOR_NS = 6_000_000_000
"""A step limit of 1 s and a quarter, two looks, 3 s for an answer, and some."""


def check_rows(world: World, node: SimNode) -> None:
    """After a step: the bounds that credit promises."""
    assert node.cells is not None
    for name, cell in node.cells._cells.items():
        for row in cell._rows.values():
            for out in row.outs.values():
                if not 0 <= out.available <= out.spec.credit:
                    world.observer.wrong("credit", f"{name} holds {out.available} of {out.spec.credit} credit")
                if name not in world.bulky and len(out.waiting) > WAITING_MAX:
                    world.observer.wrong("bounds", f"{name} has {len(out.waiting)} payloads waiting for credit")
            for lane in (row.inbox, row.answers):
                limit = sum(edge.spec.credit for edge in row.sources.values())
                if len(lane) > limit:
                    world.observer.wrong("bounds", f"{name} has {len(lane)} chunks unread; it lent {limit}")


def check_idle(world: World, callback: Callable[[], object]) -> None:
    """A timer of production code goes off: somebody must still have a reason to wait."""
    if world.head._draining or world.escalated:
        return
    if any(not client.is_over for client in world.clients) or world.head._orchestrator is None:
        return
    orchestrator = world.head.orchestrator_actor()
    phases = [world.head._nodes.supervisor.phase(node.name) for node in world.pipeline.plan.nodes]
    restless = any(phase not in ("ready", "failed") for phase in phases)
    at_work = orchestrator._entries or orchestrator._places.closing or restless
    if not at_work and world.clock.quiet():
        world.observer.wrong("idle", f"a timer went off in an idle world: {callback}")


def check_kill(world: World, node: SimNode) -> None:
    """The head kills a process: for hanging, and in time."""
    now_ns = world.clock.now_ns()
    if node.hung_ns is not None and node.name in world.head.work_since:
        late_ns = now_ns - max(node.hung_ns, world.head.work_since[node.name])
        if late_ns > HUNG_FOR_NS:
            world.observer.wrong("hung", f"{node.name} was killed {late_ns / 1e9:.1f} s after it had work and hung")


# ---------------------------------------------------------------- requests


def check_client(world: World, client: Client) -> None:
    wrong = world.observer.wrong
    plan = client.plan
    if client.refusal is not None:
        if client.is_probe and not world.escalated:
            wrong("service", f"a request at the end was refused: {client.refusal}")
        return
    if client.entry is None:
        if world.scenario.drain_ns < 0:
            wrong("client", f"request {plan.tag} never arrived")
        return
    _check_ending(world, client)
    if client.is_over and isinstance(client.outcome, Done):
        _check_done(world, client)
    elif client.is_over and isinstance(client.outcome, Failed):
        _check_failed(world, client, client.outcome)
    if not plan.is_open:  # (the end may cut an open input short)
        _check_prefix(world, client)


def _check_ending(world: World, client: Client) -> None:
    """Exactly one, in time, and the client hears of it."""
    wrong, tag = world.observer.wrong, client.plan.tag
    if client.endings != 1:
        wrong("ending", f"request {tag} ended {client.endings} times")
    if not client.is_over:
        wrong("ending", f"the client of {tag} still waits")
    elif client.outcome is None and not client.left:
        wrong("ending", f"request {tag} gave its client no end")
    deadline_s = client.plan.deadline_s or world.pipeline.plan.limits.deadline_s
    if client.ended_ns > client.started_ns + int(deadline_s * NS) + DEADLINE_SLACK_NS:
        wrong("deadline", f"request {tag} ended at {client.ended_ns / NS:.3f} s, after its deadline")
    if world.kills(client) > SUSPICIONS_MAX:
        wrong("poison", f"request {tag} took {world.kills(client)} processes with it")


def _check_done(world: World, client: Client) -> None:
    plan = client.plan
    # (A guide may first be stepped when the request is over: at its end of input.)
    if plan.poison and _passes(world, client, plan.poison) and not plan.poison.endswith("guide"):
        world.observer.wrong("content", f"request {plan.tag} is done though {plan.poison} raised for it")
    for modality, expected in _expected(world, client).items():
        got = client.got[modality]
        if modality in world.pipeline.lossy:
            if not _is_sample(got, expected):
                text = f"{got[-3:]} is no sample of {expected[-3:]}"
                world.observer.wrong("content", f"request {plan.tag} {modality}: {text}")
        elif got != expected:
            text = f"{len(got)} of {len(expected)} values, the first difference at {_difference(got, expected)}"
            world.observer.wrong("content", f"request {plan.tag} {modality}: {text}")


def _check_prefix(world: World, client: Client) -> None:
    """Whatever the end, what was given is the beginning of the right answer."""
    for modality, expected in _expected(world, client).items():
        got = client.got[modality]
        if modality not in world.pipeline.lossy and got != expected[: len(got)]:
            world.observer.wrong("content", f"request {client.plan.tag} {modality} was given {len(got)} wrong values")


def _expected(world: World, client: Client) -> dict[str, list[Any]]:
    expected = world.pipeline.expected(client.plan.seed, client.given, client.plan.opens, client.plan.outputs)
    return {modality: expected[modality] for modality in client.plan.outputs}


def _check_failed(world: World, client: Client, outcome: Failed) -> None:
    failure = outcome.failure
    reason = _REASONS.get(failure.code)
    if reason is None or not reason(world, client):
        world.observer.wrong("failed", f"request {client.plan.tag}: {failure.code}: {failure.message}")


def _may_be_late(world: World, client: Client) -> bool:
    return client.plan.deadline_s is not None or client.plan.stops_reading_after >= 0


def _may_be_lost(world: World, client: Client) -> bool:
    """A lost stage ends a request only when it cannot be run again."""
    machine = client.machine
    may_not = machine._sent or machine.suspicions >= 2 or machine.attempts >= machine._attempts_max
    return may_not or world.escalated or world.head._draining


def _may_fail(world: World, client: Client) -> bool:
    return bool(client.plan.poison) and _passes(world, client, client.plan.poison)


def _may_be_cancelled(world: World, client: Client) -> bool:
    same = [other for other in world.clients if other.plan.public_id == client.plan.public_id]
    return any(other.cancelled for other in same)


def _may_be_stopped(world: World, client: Client) -> bool:
    """The drain limit passes over those whose client does not read, or hardly."""
    is_slow = client.plan.stops_reading_after >= 0 or client.plan.read_ns >= 100_000_000
    return world.head._draining and is_slow


_REASONS: dict[str, Callable[[World, Client], bool]] = {
    "timeout": _may_be_late,
    "stage_lost": _may_be_lost,
    "stage_failed": _may_fail,
    "cancelled": _may_be_cancelled,
    "not_ready": _may_be_stopped,
}


def _passes(world: World, client: Client, stage: str) -> bool:
    return stage in client.entry.way.stages


def _is_sample(got: list[Any], expected: list[Any]) -> bool:
    """Some of `expected`, in order, the last one included."""
    rest = iter(expected)
    return all(value in rest for value in got) and got[-1:] == expected[-1:]


def _difference(got: list[Any], expected: list[Any]) -> int:
    pairs = zip(got, expected, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(got), len(expected)))


# ---------------------------------------------------------------- the end


def check_end(world: World) -> None:
    """Nothing runs any more: everything that was lent is back."""
    _check_head(world)
    for node in world.children.nodes.values():
        if node.alive:
            _check_node(world, node)
    for client in world.clients:
        if client.entry is not None and client.entry.outlet.events:
            world.observer.wrong("leak", f"the outlet of {client.plan.tag} is not empty")


def _check_head(world: World) -> None:
    head, wrong = world.head, world.observer.wrong
    orchestrator = head.orchestrator_actor()
    slots = world.pipeline.plan.limits.requests_max
    if sorted(orchestrator._places._free) != list(range(slots)):
        wrong("leak", f"free slots: {sorted(orchestrator._places._free)} of {slots}")
    left = {
        "entries": orchestrator._entries, "waiting": orchestrator._line, "public ids": orchestrator._public,
        "load": {name: load for name, load in orchestrator._router._load.items() if load},
        "actors": [name for name in head._system._entries if name != "orchestrator"],
        "questions": head._system._questions._open,
    }  # fmt: skip
    for name, things in left.items():
        if things:
            wrong("leak", f"the head is left with {name}: {list(things)[:4]}")
    for link in world.ground.head_links:
        if link.held:
            wrong("leak", f"the head holds {len(link.held)} leases of {link.peer}")
    for state in head._nodes.supervisor.state():
        if state.ready < state.replicas and world.pipeline.plan.restart.intensity > 1:
            wrong("service", f"stage {state.name} has {state.ready} of {state.replicas} replicas: {state.detail}")
    if head._nodes.supervisor.deadline_ns is not None:
        wrong("idle", "the supervisor waits for something in an idle world")


def _check_node(world: World, node: SimNode) -> None:
    wrong = world.observer.wrong
    cells = node.cells
    assert cells is not None
    for name, cell in cells._cells.items():
        for what, things in (("rows", cell._rows), ("early records", cell._early), ("runnable rows", cell._runnable)):
            if things:
                wrong("leak", f"{node.name} {name} is left with {what}: {list(things)[:4]}")
        if cell._early_count:
            wrong("leak", f"{name} counts {cell._early_count} early records and has none")
        begun = getattr(cell.stage, "begun", None)
        if begun:
            wrong("forget", f"{name} was never told to forget {sorted(begun)[:4]}")
    held = sum(len(link.held) for link in (*node.links.values(), *node.old_links))
    if held:
        wrong("leak", f"{node.name} holds {held} leases")
