"""Is a node that has work alive? Pure: looks at progress words, says whom to ask and who is hung.

A node has one thread, so it cannot answer while a step runs. Its progress word is odd while stage code runs and even
otherwise, and every change is a sign of life:

    odd, unchanged for the step limit           hung
    even, unchanged from one look to the next   ask; no answer within ANSWER_LIMIT_S and still unchanged: hung

A parked node answers and is healthy. What was seen outlives `disarm`: callers that give up one after the other must
not reset the patience with a node that is stuck.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from omnirt.clock import NS

ANSWER_LIMIT_S = 3.0
LOOKS_PER_LIMIT = 4  # a hung step is found between 1 and 1 + 1/4 step limits after it began


class Verdict(Struct, frozen=True):
    """What a look found: ranks to ask, or the rank that hangs and how that was seen."""

    ask: tuple[int, ...] = ()
    hung: int = -1
    text: str = ""


class _Seen(Struct):
    value: int
    since_ns: int
    asked_ns: int | None = None


class HangWatch:
    """Watches the ranks of one incarnation of a node. `deadline_ns` is when to look next; None while not armed."""

    def __init__(self, step_limit_s: float, ranks: int, progress: Callable[[int], int]) -> None:
        self._limit_s = step_limit_s
        self._limit_ns = int(step_limit_s * NS)
        self._interval_ns = max(1, self._limit_ns // LOOKS_PER_LIMIT)
        self._answer_ns = int(ANSWER_LIMIT_S * NS)
        self._progress = progress
        self._seen = [_Seen(-1, 0) for _ in range(ranks)]
        self.deadline_ns: int | None = None

    def arm(self, now_ns: int) -> None:
        if self.deadline_ns is None:
            for rank, seen in enumerate(self._seen):
                self._refresh(rank, seen, now_ns)
            self._schedule(now_ns)

    def disarm(self) -> None:
        self.deadline_ns = None

    def answered(self, now_ns: int, rank: int) -> None:
        self._seen[rank].asked_ns = None
        if self.deadline_ns is not None:
            self._schedule(now_ns)

    def look(self, now_ns: int) -> Verdict:
        """To be called at `deadline_ns`."""
        ask: list[int] = []
        for rank, seen in enumerate(self._seen):
            if self._refresh(rank, seen, now_ns):
                continue
            quiet_ns = now_ns - seen.since_ns
            if seen.value % 2:
                if quiet_ns >= self._limit_ns:
                    return Verdict(hung=rank, text=f"one step has been running for more than {self._limit_s:g} s")
            elif seen.asked_ns is not None:
                if now_ns - seen.asked_ns >= self._answer_ns:
                    return Verdict(hung=rank, text=f"it did not answer within {ANSWER_LIMIT_S:g} s")
            elif quiet_ns >= self._interval_ns:
                seen.asked_ns = now_ns
                ask.append(rank)
        self._schedule(now_ns)
        return Verdict(ask=tuple(ask))

    def _refresh(self, rank: int, seen: _Seen, now_ns: int) -> bool:
        value = self._progress(rank)
        if value == seen.value:
            return False
        seen.value, seen.since_ns, seen.asked_ns = value, now_ns, None
        return True

    def _schedule(self, now_ns: int) -> None:
        due_ns = now_ns + self._interval_ns
        for seen in self._seen:
            if seen.value % 2:
                due_ns = min(due_ns, seen.since_ns + self._limit_ns)
            elif seen.asked_ns is not None:
                due_ns = min(due_ns, seen.asked_ns + self._answer_ns)
        self.deadline_ns = max(now_ns, due_ns)
