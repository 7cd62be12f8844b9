"""Whose frames leave together, against players that start on their first packet, with rows that come and go."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from omnirt.actors.stages.chunking import SIZES, Chunks
from omnirt.actors.stages.talker_row import leaving_of
from omnirt.clock import NS

FRAME_S = 0.08


class Machine(NamedTuple):
    """`frame_s` of a step, `row_s` more for each row; `call_s` of the decoder, `code_s` more for each frame."""

    rows: int
    frame_s: float
    row_s: float
    call_s: float
    code_s: float


GPU = Machine(64, 0.006, 0.00008, 0.002, 0.00003)
FEW = Machine(16, 0.005, 0.0001, 0.002, 0.00003)
HARDLY = Machine(32, 0.04, 0.0005, 0.003, 0.0001)
"""Hardly faster than its players."""


class Row:
    def __init__(self, row: int, frames: int) -> None:
        self.chunks, self.sequence, self.left = Chunks(SIZES, FRAME_S), SimpleNamespace(row=row), frames
        self.ready, self.given_s, self.started = 0, 0.0, None

    def heard(self, now: float) -> float:
        """How late what is ready comes."""
        self.started = now if self.started is None else self.started
        late = now - self.started - self.given_s
        self.chunks.left(self.ready, int(now * NS))
        self.given_s += self.ready * FRAME_S
        self.ready = 0
        return late


def played(machine: Machine, seed: int, company: bool) -> tuple[float, int]:
    """The longest that any player waits, and the calls of the decoder."""
    chance, now, live, free = random.Random(seed), 1.0, list[Row](), list(range(machine.rows))
    worst, calls = 0.0, 0
    for _ in range(600):
        while free and chance.random() < 0.3:
            live.append(Row(free.pop(0), chance.randint(20, 250)))
        now += (machine.frame_s + machine.row_s * len(live)) * (1 + 0.3 * chance.random())
        now_ns = int(now * NS)
        for row in live:
            row.ready, row.left = row.ready + 1, row.left - 1
            row.chunks.made(now_ns)
        due = {row for row in live if row.chunks.is_due(row.ready, now_ns)}
        leaving = (leaving_of(live, now_ns) if company else due) | {row for row in live if not row.left}
        if leaving:
            calls += 1
            now += machine.call_s + machine.code_s * sum(row.ready for row in leaving)
            worst = max(worst, *(row.heard(now) for row in leaving), 0.0)
        free = sorted(free + [row.sequence.row for row in live if not row.left])
        live = [row for row in live if row.left]
    return worst, calls


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("machine", [GPU, FEW], ids=["64 rows", "16 rows"])
def test_leaving_in_company_makes_nobody_late(machine: Machine, seed: int) -> None:
    assert played(machine, seed, company=True)[0] <= 1e-9


@pytest.mark.parametrize("seed", range(4))
def test_a_machine_that_is_hardly_fast_enough_sends_as_before(seed: int) -> None:
    assert played(HARDLY, seed, company=True) == played(HARDLY, seed, company=False)


def test_leaving_in_company_saves_calls() -> None:
    assert 1.5 * played(FEW, 1, company=True)[1] < played(FEW, 1, company=False)[1]
