"""Faults planted into production code are found: a few here, each with --soak (and by `scripts/sim planted`)."""

from __future__ import annotations

import pytest

from omnirt.testing.sim.planted import PLANTED, caught
from omnirt.testing.sim.world import run

SEEDS = 200
QUICK = (
    "no fence check at emit",
    "no last gate (and slots do not wait)",
    "credit not returned",
    "lease not released on a stale drop",
    "DOWN dropped",
    "retry without a new epoch",
    "deadline timer never armed",
    "view emitted after its release",
)


def test_there_are_more_than_twelve_planted_faults() -> None:
    assert len(PLANTED) > 12


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_caught(name: str, soak: bool) -> None:
    if not soak and name not in QUICK:
        pytest.skip("with --soak")
    assert caught(name, SEEDS) is not None


def test_a_plant_leaves_nothing_behind() -> None:
    caught("credit returned twice", 1)
    assert run(0).findings == ()
