"""How often a node may be restarted, and how long it waits. Pure.

A restart is forgotten after `window_s`, but only when the node became ready in between: a node that fails while it
loads never leaves the window by being slow at failing.
"""

from __future__ import annotations

import random
from collections import deque

from omnirt.clock import NS
from omnirt.wire.plan import RestartPlan

JITTER = 0.25  # of the delay, added, so that replicas that died together do not load together


class RestartBudget:
    def __init__(self, plan: RestartPlan, chance: random.Random) -> None:
        self._plan = plan
        self._chance = chance
        self._spent_ns: deque[int] = deque()

    def spend(self, now_ns: int, was_ready: bool) -> int | None:
        """The delay before the next start in ns, or None when the node has used up its restarts."""
        if was_ready:
            self._forget_before(now_ns - int(self._plan.window_s * NS))
        if len(self._spent_ns) >= self._plan.intensity:
            return None
        doublings = min(len(self._spent_ns), 60)
        self._spent_ns.append(now_ns)
        delay_s = min(self._plan.backoff_s * 2**doublings, self._plan.backoff_max_s)
        return int(delay_s * (1 + JITTER * self._chance.random()) * NS)

    def _forget_before(self, edge_ns: int) -> None:
        while self._spent_ns and self._spent_ns[0] <= edge_ns:
            self._spent_ns.popleft()
