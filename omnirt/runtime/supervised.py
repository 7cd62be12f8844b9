"""What the supervisor says (effects) and what it knows of each node. Only data."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from omnirt.runtime.hang import HangWatch
from omnirt.runtime.restart import RestartBudget
from omnirt.wire.plan import NodePlan, Plan

Cause = Literal["exit", "signal", "spawn", "hung", "load_failed", "load_limit", "channel", "drained"]
Phase = Literal["new", "loading", "ready", "stopping", "ending", "waiting", "failed", "stopped"]
Facts = Mapping[str, dict[str, Any]]


class Spawn(Struct, frozen=True):
    node: str
    rank: int
    incarnation: int


class Kill(Struct, frozen=True):
    node: str
    rank: int
    incarnation: int
    why: str


class SendDrain(Struct, frozen=True):
    node: str
    rank: int
    incarnation: int


class Ping(Struct, frozen=True):
    node: str
    rank: int
    incarnation: int


class NodeUp(Struct, frozen=True):
    node: str
    incarnation: int
    facts: Facts


class NodeDown(Struct, frozen=True):
    node: str
    incarnation: int
    cause: Cause
    text: str


class Escalate(Struct, frozen=True):
    """A group is lost for good. Said once; nothing is started any more."""

    reason: str


class Drained(Struct, frozen=True):
    """Every process is gone (or, after EXIT_LIMIT_S, given up)."""


Effect = Spawn | Kill | SendDrain | Ping | NodeUp | NodeDown | Escalate | Drained
RUNNING: tuple[Phase, ...] = ("loading", "ready", "stopping")
OVER: tuple[Phase, ...] = ("new", "failed", "stopped")


class StageHealth(Struct, frozen=True):
    """How a stage is: `loading`, `ready`, `restarting` or `failed`; `ready` of its `replicas` nodes are ready."""

    name: str
    state: Literal["loading", "ready", "restarting", "failed"]
    ready: int
    replicas: int
    detail: str = ""
    restarts: int = 0


class SupervisedNode:
    """What the supervisor knows of one node.

    `due_ns` is the deadline of its phase, `notice_ns` that of an exit notice; `then` is what follows `ending`.
    `heard` is the last it said of its load, `trouble` the last thing that went wrong.
    """

    def __init__(self, plan: Plan, node: NodePlan, chance: random.Random, progress: Callable[[str, int], int]) -> None:
        stages = [plan.stage(name) for name in node.stages]
        self.name = node.name
        self.group = node.group
        self.ranks = node.ranks
        self.load_limit_s = max(stage.load_limit_s for stage in stages)
        self.step_limit_s = max(stage.step_limit_s for stage in stages)
        self.phase: Phase = "new"
        self.then: Phase = "stopped"
        self.incarnation = 0
        self.alive: set[int] = set()
        self.loaded: dict[int, Facts] = {}
        self.due_ns: int | None = None
        self.notice_ns: int | None = None
        self.restart_ns = 0
        self.at_work = False
        self.load_hangs = 0
        self.restarts = 0
        self.heard = ""
        self.trouble = ""
        self.budget = RestartBudget(plan.restart, chance)
        self._progress = progress
        self.watch = self.new_watch()

    def new_watch(self) -> HangWatch:
        return HangWatch(self.step_limit_s, self.ranks, lambda rank: self._progress(self.name, rank))

    def deadline_ns(self) -> int | None:
        due = [at for at in (self.due_ns, self.notice_ns, self.watch.deadline_ns) if at is not None]
        return min(due, default=None)

    def is_lost(self) -> bool:
        return self.phase == "failed" or (self.phase == "ending" and self.then == "failed")

    def detail(self) -> str:
        """For people: what it is doing, and why it does it again."""
        return " after: ".join(text for text in (self.heard, self.trouble) if text)

    def by_rank(self, rank: int, text: str) -> str:
        return f"rank {rank} {text}" if self.ranks > 1 else text


def health(stage: str, nodes: Sequence[SupervisedNode]) -> StageHealth:
    """How a stage is that lives on `nodes`, its replicas."""
    ready = sum(node.phase == "ready" for node in nodes)
    if ready:
        state = "ready"
    elif all(node.is_lost() or node.phase == "stopped" for node in nodes):
        state = "failed"
    else:
        state = "restarting" if any(node.trouble for node in nodes) else "loading"
    troubled = next((node for node in nodes if node.phase != "ready" and node.detail()), None)
    detail = f"{troubled.name}: {troubled.detail()}" if troubled else ""
    return StageHealth(stage, state, ready, len(nodes), detail, sum(node.restarts for node in nodes))
