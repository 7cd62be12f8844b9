"""Which node processes should run. A pure machine: events and the time in, effects out.

    new -> loading -> ready -> stopping -> stopped          one incarnation of a node; it ends at the first sign of
              |         |         |                         trouble, with all its ranks (one_for_all), and only when
              +---------+---------+--> ending               the last of them has exited the next one may start
                                         |-> waiting -> loading (the next incarnation)
                                         |-> failed          given up: its restarts are used up
                                         `-> stopped         nothing is restarted while the pipeline stops

Replicas of a group are restarted one_for_one. A group without a replica that runs or will run again is an `Escalate`.

Invariants
* Exactly one NodeDown for each incarnation that was spawned, however many signs of its end there are; NodeUp at most
  once and before it. Events of other incarnations change nothing.
* Every phase that waits for the world has a deadline; with nothing loading, ending or at work there is none
  (`deadline_ns` is None), so an idle pipeline wakes nobody.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from omnirt.clock import NS
from omnirt.errors import Failure
from omnirt.runtime.exits import ExitReason
from omnirt.runtime.supervised import (
    OVER,
    RUNNING,
    Cause,
    Drained,
    Effect,
    Escalate,
    Facts,
    Kill,
    NodeDown,
    NodeUp,
    Phase,
    Ping,
    SendDrain,
    Spawn,
    StageHealth,
    SupervisedNode,
    health,
)
from omnirt.wire.plan import Plan

EXIT_LIMIT_S = 30.0  # from SIGKILL to the end of a process; one stuck in the kernel keeps its device, so we give it up
EXIT_NOTICE_S = 1.0  # from the end of its channel to the end of the process, which says why
STOP_LIMIT_S = 10.0  # from Drain to the end of a process
FIRST_LOAD_HANGS_MAX = 2  # loads over the limit before a group has ever been ready; then the start fails


class Supervisor:
    """`progress(node, rank)` is that process's progress word: odd while stage code runs, even otherwise."""

    def __init__(self, plan: Plan, chance: random.Random, progress: Callable[[str, int], int]) -> None:
        self._plan = plan
        self._nodes = {node.name: SupervisedNode(plan, node, chance, progress) for node in plan.nodes}
        self._groups = list(dict.fromkeys(node.group for node in plan.nodes))  # in start order
        self._served: set[str] = set()  # groups that have been ready
        self._draining = False
        self._drain_ns: int | None = None
        self._drained = False
        self._escalated = False
        self._effects: list[Effect] = []

    # ------------------------------------------------------------ what can be asked

    @property
    def deadline_ns(self) -> int | None:
        """When `timer` has something to do; None when never."""
        due = [at for node in self._nodes.values() if (at := node.deadline_ns()) is not None]
        if self._drain_ns is not None:
            due.append(self._drain_ns)
        return min(due, default=None)

    def phase(self, node: str) -> Phase:
        return self._nodes[node].phase

    def incarnation(self, node: str) -> int:
        return self._nodes[node].incarnation

    def state(self) -> tuple[StageHealth, ...]:
        return tuple(health(stage.name, self._members(stage.group)) for stage in self._plan.stages)

    def _members(self, group: str) -> list[SupervisedNode]:
        return [node for node in self._nodes.values() if node.group == group]

    # ------------------------------------------------------------ what can happen

    def start(self, now_ns: int) -> list[Effect]:
        for node in self._nodes.values():
            self._spawn(node, now_ns)
        return self._flush()

    def hello(self, now_ns: int, node: str, rank: int, incarnation: int) -> list[Effect]:
        return self.loading(now_ns, node, incarnation, "loading")

    def loading(self, now_ns: int, node: str, incarnation: int, text: str) -> list[Effect]:
        """Progress of a load, for people to read. It does not extend the load's limit."""
        known = self._nodes[node]
        if known.incarnation == incarnation and known.phase == "loading":
            known.heard = text
        return self._flush()

    def ready(self, now_ns: int, node: str, rank: int, incarnation: int, facts: Facts) -> list[Effect]:
        known = self._nodes[node]
        if self._is_current(known, rank, incarnation) and known.phase == "loading":
            known.loaded[rank] = facts
            if len(known.loaded) == known.ranks:
                self._up(known, now_ns)
        return self._flush()

    def load_failed(self, now_ns: int, node: str, rank: int, incarnation: int, failure: Failure) -> list[Effect]:
        known = self._nodes[node]
        if self._is_current(known, rank, incarnation) and known.phase == "loading":
            text = f"{failure.stage}: {failure.message}" if failure.stage else failure.message
            # Before it has ever worked, what a stage refuses to load is a mistake to show, not a fault to ride out.
            self._down(known, now_ns, "load_failed", text, hopeless=known.group not in self._served)
        return self._flush()

    def exited(self, now_ns: int, node: str, rank: int, incarnation: int, reason: ExitReason) -> list[Effect]:
        known = self._nodes[node]
        if known.incarnation != incarnation or rank not in known.alive:
            return self._flush()
        known.alive.discard(rank)
        if known.phase == "stopping" and reason.kind == "exit" and reason.code == 0:
            if not known.alive:
                self._down(known, now_ns, "drained", "stopped")
        elif known.phase in RUNNING:
            hopeless = reason.kind == "spawn" and known.group not in self._served
            self._down(known, now_ns, reason.kind, known.by_rank(rank, reason.describe()), hopeless=hopeless)
        elif known.phase == "ending" and not known.alive:
            self._gone(known, now_ns)
        return self._flush()

    def channel_closed(self, now_ns: int, node: str, rank: int, incarnation: int, text: str) -> list[Effect]:
        """Mostly the first sign of an exit, whose notice brings the reason; without one the process is killed."""
        known = self._nodes[node]
        expected = known.phase == "stopping"  # it may close its channel before it ends
        if self._is_current(known, rank, incarnation) and known.notice_ns is None and not expected:
            known.notice_ns = now_ns + int(EXIT_NOTICE_S * NS)
            known.trouble = known.by_rank(rank, text)
        return self._flush()

    def work(self, now_ns: int, node: str, outstanding: bool) -> list[Effect]:
        """Whether the node holds requests now. To be called when that changes."""
        known = self._nodes[node]
        known.at_work = outstanding
        self._watch_if_needed(known, now_ns)
        return self._flush()

    def pong(self, now_ns: int, node: str, rank: int, incarnation: int) -> list[Effect]:
        known = self._nodes[node]
        if self._is_current(known, rank, incarnation) and known.phase == "ready":
            known.watch.answered(now_ns, rank)
        return self._flush()

    def timer(self, now_ns: int) -> list[Effect]:
        """To be called at `deadline_ns`; early and late calls do no harm."""
        for node in self._nodes.values():
            if _is_due(node.due_ns, now_ns):
                self._phase_due(node, now_ns)
            if _is_due(node.notice_ns, now_ns):
                self._down(node, now_ns, "channel", node.trouble)
            if _is_due(node.watch.deadline_ns, now_ns):
                self._look(node, now_ns)
        if _is_due(self._drain_ns, now_ns):
            self._drain_over(now_ns)
        return self._flush()

    def drain(self, now_ns: int, deadline_ns: int) -> list[Effect]:
        """Stop everything, in reverse start order, by `deadline_ns`. A second call may bring that nearer."""
        if not self._draining:
            self._draining = True
            self._drain_ns = deadline_ns
            for node in self._nodes.values():
                self._stop_idle(node, now_ns)
        elif self._drain_ns is not None:
            self._drain_ns = min(self._drain_ns, deadline_ns)
        if _is_due(self._drain_ns, now_ns):
            self._drain_over(now_ns)
        self._drain_on(now_ns)
        return self._flush()

    # ------------------------------------------------------------ phases

    def _spawn(self, node: SupervisedNode, now_ns: int) -> None:
        node.incarnation += 1
        node.phase = "loading"
        node.alive = set(range(node.ranks))
        node.loaded = {}
        node.watch = node.new_watch()
        node.due_ns = now_ns + int(node.load_limit_s * NS)
        for rank in range(node.ranks):
            self._effects.append(Spawn(node.name, rank, node.incarnation))

    def _up(self, node: SupervisedNode, now_ns: int) -> None:
        node.phase = "ready"
        node.due_ns = None
        node.heard = node.trouble = ""
        node.load_hangs = 0
        self._served.add(node.group)
        self._effects.append(NodeUp(node.name, node.incarnation, node.loaded[0]))
        self._watch_if_needed(node, now_ns)

    def _down(self, node: SupervisedNode, now_ns: int, cause: Cause, text: str, hopeless: bool = False) -> None:
        """The one place where an incarnation ends."""
        assert node.phase in RUNNING, node.phase
        was_ready = node.phase != "loading"
        for rank in sorted(node.alive):
            self._effects.append(Kill(node.name, rank, node.incarnation, text))
        self._effects.append(NodeDown(node.name, node.incarnation, cause, text))
        node.trouble = text
        node.heard = ""
        node.watch.disarm()
        node.notice_ns = None
        node.phase = "ending"
        node.due_ns = now_ns + int(EXIT_LIMIT_S * NS)
        self._decide(node, now_ns, was_ready, hopeless)
        if not node.alive:
            self._gone(node, now_ns)

    def _decide(self, node: SupervisedNode, now_ns: int, was_ready: bool, hopeless: bool) -> None:
        """What follows the end of this incarnation."""
        if self._is_stopping():
            node.then = "stopped"
            return
        delay_ns = None if hopeless else node.budget.spend(now_ns, was_ready)
        if delay_ns is None:
            self._give_up(node)
        else:
            node.then = "waiting"
            node.restart_ns = now_ns + delay_ns

    def _give_up(self, node: SupervisedNode) -> None:
        node.then = "failed"
        if all(member.is_lost() for member in self._members(node.group)) and not self._is_stopping():
            self._escalated = True
            self._effects.append(Escalate(f"{node.name} is lost and no replica of it is left: {node.trouble}"))

    def _gone(self, node: SupervisedNode, now_ns: int) -> None:
        """The last process of the incarnation has exited."""
        node.phase = "stopped" if self._is_stopping() and node.then == "waiting" else node.then
        node.due_ns = max(now_ns, node.restart_ns) if node.phase == "waiting" else None
        self._drain_on(now_ns)

    def _phase_due(self, node: SupervisedNode, now_ns: int) -> None:
        if node.phase == "loading":
            node.load_hangs += 1
            hopeless = node.group not in self._served and node.load_hangs >= FIRST_LOAD_HANGS_MAX
            text = f"it was not ready after {node.load_limit_s:g} s"
            text = f"{text} (last heard: {node.heard})" if node.heard else text
            self._down(node, now_ns, "load_limit", text, hopeless=hopeless)
        elif node.phase == "stopping":
            self._down(node, now_ns, "drained", f"it did not stop within {STOP_LIMIT_S:g} s")
        elif node.phase == "waiting":
            if self._is_stopping():
                node.phase, node.due_ns = "stopped", None
                return
            node.restarts += 1
            self._spawn(node, now_ns)
        elif node.phase == "ending":
            node.trouble = f"{node.trouble}; it did not end within {EXIT_LIMIT_S:g} s of being killed"
            node.then = "stopped" if self._is_stopping() else "failed"
            if node.then == "failed":
                self._give_up(node)
            self._gone(node, now_ns)

    def _is_stopping(self) -> bool:
        return self._draining or self._escalated

    # ------------------------------------------------------------ hangs

    def _watch_if_needed(self, node: SupervisedNode, now_ns: int) -> None:
        if node.at_work and node.phase == "ready":
            node.watch.arm(now_ns)
        else:
            node.watch.disarm()

    def _look(self, node: SupervisedNode, now_ns: int) -> None:
        verdict = node.watch.look(now_ns)
        if verdict.hung >= 0:
            self._down(node, now_ns, "hung", node.by_rank(verdict.hung, verdict.text))
            return
        for rank in verdict.ask:
            self._effects.append(Ping(node.name, rank, node.incarnation))

    # ------------------------------------------------------------ the ordered end

    def _stop_idle(self, node: SupervisedNode, now_ns: int) -> None:
        """What holds no work is stopped without ceremony: a node that loads cannot listen anyway."""
        if node.phase == "loading":
            self._down(node, now_ns, "drained", "the pipeline stops")
        elif node.phase in ("waiting", "new"):
            node.phase, node.due_ns = "stopped", None

    def _drain_on(self, now_ns: int) -> None:
        """Ask the last group that still runs to stop; the one before it follows when it has."""
        if not self._draining or self._drained:
            return
        for group in reversed(self._groups):
            left = [node for node in self._members(group) if node.phase not in OVER]
            for node in left:
                if node.phase == "ready":
                    self._ask_to_stop(node, now_ns)
            if left:
                return
        self._drained = True
        self._drain_ns = None
        self._effects.append(Drained())

    def _ask_to_stop(self, node: SupervisedNode, now_ns: int) -> None:
        node.phase = "stopping"
        node.due_ns = now_ns + int(STOP_LIMIT_S * NS)
        node.watch.disarm()
        for rank in sorted(node.alive):
            self._effects.append(SendDrain(node.name, rank, node.incarnation))

    def _drain_over(self, now_ns: int) -> None:
        for node in self._nodes.values():
            if node.phase in RUNNING:
                self._down(node, now_ns, "drained", "it had not stopped when the time to stop was over")
        self._drain_ns = None

    def _is_current(self, node: SupervisedNode, rank: int, incarnation: int) -> bool:
        return node.incarnation == incarnation and rank in node.alive and node.phase in RUNNING

    def _flush(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects


def _is_due(at_ns: int | None, now_ns: int) -> bool:
    return at_ns is not None and at_ns <= now_ns
