"""One request at one stage: what came in, what waits to go out, and what it may do next."""

from __future__ import annotations

import enum
from collections import deque
from typing import Any

from omnirt.ids import RequestId
from omnirt.runtime.credit import InEdge, OutEdge
from omnirt.runtime.stage import Request
from omnirt.wire.messages import Open
from omnirt.wire.plan import EdgePlan


class Work(enum.Enum):
    NONE = 0
    STEP = 1
    """A chunk waits (or an engine's row is alive)."""
    FINISH = 2
    """The input is complete and used up."""


class Times:
    """When what happened to a request at one stage, on the machine's monotonic clock; 0 for what did not happen."""

    __slots__ = ("busy_ns", "first_out_ns", "first_step_ns", "opened_ns", "steps")

    def __init__(self, now_ns: int) -> None:
        self.opened_ns = now_ns
        self.first_step_ns = 0
        self.first_out_ns = 0
        self.busy_ns = 0
        """In steps that the request took part in, whoever else did."""
        self.steps = 0

    def stepped(self, began_ns: int, ended_ns: int) -> None:
        self.first_step_ns = self.first_step_ns or began_ns
        self.busy_ns += ended_ns - began_ns
        self.steps += 1

    def report(self, now_ns: int) -> dict[str, int]:
        return {**{name: getattr(self, name) for name in self.__slots__}, "ended_ns": now_ns}


class Arrived:
    """A chunk in a row's inbox. `body` is a payload (handed over in process) or a received one (a view of a ring)."""

    __slots__ = ("body", "edge", "seq")

    def __init__(self, edge: InEdge, seq: int, body: Any) -> None:
        self.edge = edge
        self.seq = seq
        self.body = body

    def release(self) -> None:
        release = getattr(self.body, "release", None)
        if release is not None:
            release()


class Row:
    __slots__ = (
        "_engine", "alone", "answers", "awake", "closed", "dead", "ended", "fence", "inbox", "output_over", "outs",
        "reports", "request", "sources", "started", "stepping", "times", "unfinished", "woken",
    )  # fmt: skip

    def __init__(self, opening: Open, edges: tuple[EdgePlan, ...], engine: bool, now_ns: int) -> None:
        self.times = Times(now_ns)
        self.reports: dict[str, dict[str, Any]] = {}
        """What the stages before this one have said."""
        self.fence = opening.fence
        self.request = Request(
            RequestId(opening.request), opening.public_id, opening.seed, opening.params, opening.deadline_ns
        )
        self.alone = opening.alone
        self.sources = {index: InEdge(edges[index], process) for index, process in opening.sources.items()}
        self.outs = {index: OutEdge(edges[index], process) for index, process in opening.targets.items()}
        self.inbox: deque[Arrived] = deque()
        self.answers: deque[Arrived] = deque()
        """Answers of a loop are taken before new input, or input could hold up the answers that free it."""
        self._engine = engine
        self.awake = False
        """Engines: the row wants to be stepped though no input waits."""
        self.woken = False
        """The stage asked for that since the row was last put into a step."""
        self.closed = False
        """Engines: told that the input is complete."""
        self.stepping = False
        self.started = False
        self.output_over = False
        self.ended = False
        self.dead = False
        """Failed or stale: it waits for its Close and does nothing."""
        self.unfinished = sum(1 for edge in self.sources.values() if edge.spec.answers < 0)

    def work(self) -> Work:
        """What a step could do for this row now, credit included."""
        if self.dead or self.stepping or self.output_over:
            return Work.NONE
        answering = self.answers[0].edge.spec.answers if self.answers else -1
        for out in self.outs.values():
            if not out.may_write(answering):
                return Work.NONE
        if self.answers or self.inbox:
            return Work.STEP
        if self._engine:
            return Work.STEP if self.awake or (not self.closed and self.input_over) else Work.NONE
        return Work.FINISH if self.input_over else Work.NONE

    @property
    def has_input(self) -> bool:
        """Engines: whether a step would tell the stage something."""
        return bool(self.answers or self.inbox) or (not self.closed and self.input_over)

    @property
    def input_over(self) -> bool:
        """Every source ended, everything is used up and no loop owes an answer."""
        if self.unfinished or self.inbox or self.answers:
            return False
        return not any(out.unanswered for out in self.outs.values())

    def arrive(self, arrived: Arrived) -> None:
        arrived.edge.received += 1
        arrived.edge.waiting += 1
        (self.answers if arrived.edge.spec.answers >= 0 else self.inbox).append(arrived)

    def source_ended(self, edge: InEdge) -> None:
        if not edge.ended:
            edge.ended = True
            if edge.spec.answers < 0:
                self.unfinished -= 1

    def take(self) -> Arrived:
        """The next chunk to work on."""
        if self.answers:
            arrived = self.answers.popleft()
            self.outs[arrived.edge.spec.answers].answered()
        else:
            arrived = self.inbox.popleft()
        arrived.edge.waiting -= 1
        return arrived

    def drop_input(self) -> int:
        """Release everything unread; returns how many chunks that were."""
        count = len(self.inbox) + len(self.answers)
        for lane in (self.inbox, self.answers):
            while lane:
                lane.popleft().release()
        return count
