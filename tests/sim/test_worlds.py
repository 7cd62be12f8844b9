"""Whole pipelines over many seeds, in virtual time: 200 worlds here, 1,000 with --soak.

A failure names its seed; `scripts/sim seed N` plays it again.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from omnirt.testing.sim.world import Report, run

SEEDS = 200
SEEDS_SOAK = 1000
BLOCK = 20
REGRESSIONS = (387, 417, 442, 549, 645, 733, 1224, 1443, 206671)
"""Seeds beyond the first 200 that once found something."""


def problems(seeds: range | tuple[int, ...]) -> list[str]:
    return [f"seed {seed}: {finding}" for seed in seeds for finding in run(seed).findings]


@pytest.mark.parametrize("first", range(0, SEEDS, BLOCK))
def test_worlds_come_to_a_good_end(first: int) -> None:
    assert problems(range(first, first + BLOCK)) == []


@pytest.mark.parametrize("first", range(SEEDS, SEEDS_SOAK, BLOCK))
def test_many_more_worlds_come_to_a_good_end(first: int, soak: bool) -> None:
    if not soak:
        pytest.skip("with --soak")
    assert problems(range(first, first + BLOCK)) == []


def test_seeds_that_once_found_something_find_nothing_now() -> None:
    assert problems(REGRESSIONS) == []


def test_chains_without_faults_come_to_a_good_end() -> None:
    reports = [run(seed, "chain") for seed in range(10)]
    assert [report.findings for report in reports] == [()] * 10


def test_worlds_are_not_empty() -> None:
    """Two hundred worlds that do nothing would find nothing, too."""
    reports = [run(seed) for seed in range(40)]
    totals: dict[str, int] = {}
    for report in reports:
        for name, count in report.counts.items():
            totals[name] = totals.get(name, 0) + count
    for name in ("done", "cancelled", "timeout", "stage_lost", "stage_failed"):
        assert totals[f"ended.{name}"] > 0, name
    assert totals["refused"] > 0
    assert totals["exits"] > 40
    assert totals["outputs"] > 1000
    assert max(report.fullest[1] for report in reports) == 1.0  # every slot of a slab in use, and never one more


def same(report: Report) -> tuple[int, int, float]:
    return report.trace, report.events, report.virtual_s


def test_a_seed_gives_one_history_and_seeds_differ() -> None:
    first, again, other = run(7), run(7), run(8)
    assert same(first) == same(again)
    assert first.trace != other.trace


def test_a_history_does_not_depend_on_the_order_of_sets() -> None:
    code = "from omnirt.testing.sim.world import run; print([run(seed).trace for seed in (3, 5, 11)])"
    said = {
        subprocess.run(
            [sys.executable, "-P", "-c", code],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            timeout=120,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1
