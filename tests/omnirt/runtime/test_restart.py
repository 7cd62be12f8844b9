"""The restart budget: doubling, the cap, the window, jitter."""

from __future__ import annotations

import random

from omnirt.runtime.restart import JITTER, RestartBudget
from omnirt.wire.plan import RestartPlan

S = 1_000_000_000
PLAN = RestartPlan(intensity=4, window_s=60, backoff_s=0.5, backoff_max_s=3)


class Never(random.Random):
    """Chance that always says 0."""

    def random(self) -> float:
        return 0.0


def test_the_delay_doubles_up_to_its_cap_and_then_the_budget_is_spent() -> None:
    budget = RestartBudget(PLAN, Never())
    delays = [budget.spend(second * S, was_ready=True) for second in range(5)]
    assert delays == [S // 2, S, 2 * S, 3 * S, None]


def test_restarts_older_than_the_window_are_forgotten_and_the_delay_starts_over() -> None:
    budget = RestartBudget(PLAN, Never())
    assert [budget.spend(at * S, was_ready=True) for at in (0, 1, 2, 3)] == [S // 2, S, 2 * S, 3 * S]
    assert budget.spend(60 * S, was_ready=True) == 3 * S  # only the first has left the window
    assert budget.spend(1000 * S, was_ready=True) == S // 2


def test_failing_slowly_while_loading_does_not_escape_the_window() -> None:
    budget = RestartBudget(PLAN, Never())
    delays = [budget.spend(minute * 300 * S, was_ready=False) for minute in range(5)]
    assert delays[-1] is None


def test_jitter_only_adds_and_is_reproducible() -> None:
    def delays(seed: int) -> list[int | None]:
        budget = RestartBudget(PLAN, random.Random(seed))
        return [budget.spend(0, was_ready=True) for _ in range(4)]

    assert delays(1) == delays(1) != delays(2)
    for delay, base in zip(delays(1), (S // 2, S, 2 * S, 3 * S), strict=True):
        assert delay is not None
        assert base <= delay <= base * (1 + JITTER)


def test_an_intensity_of_zero_never_restarts() -> None:
    assert RestartBudget(RestartPlan(intensity=0), Never()).spend(0, was_ready=True) is None
