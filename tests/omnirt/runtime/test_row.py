"""Rows: what a request may do next at a stage."""

from __future__ import annotations

from typing import Any

import pytest

from omnirt.ids import Fence
from omnirt.runtime.row import Arrived, Row, Work
from omnirt.wire.messages import Open
from omnirt.wire.payload import Text
from omnirt.wire.plan import EdgePlan

EDGES = (
    EdgePlan(0, "client", "text", "s", "text", credit=2),
    EdgePlan(1, "s", "out", "t", "in", credit=1),
    EdgePlan(2, "s", "ask", "g", "ask", credit=4, window=1),
    EdgePlan(3, "g", "answer", "s", "answer", credit=4, answers=2),
    EdgePlan(4, "u", "more", "s", "more", credit=2),
)


def make_row(sources: tuple[int, ...] = (0,), targets: tuple[int, ...] = (1,), engine: bool = False) -> Row:
    opening = Open(
        stage="s", request=7, fence=Fence(0, 1), seed=1, deadline_ns=0, public_id="r", params={},
        sources=dict.fromkeys(sources, "x"), targets=dict.fromkeys(targets, "y"),
    )  # fmt: skip
    return Row(opening, EDGES, engine, 0)


class Body:
    def __init__(self) -> None:
        self.released = 0

    def release(self) -> None:
        self.released += 1


def arrive(row: Row, edge: int, body: Any = None) -> Any:
    body = body or Text("x")
    row.arrive(Arrived(row.sources[edge], 0, body))
    return body


def test_a_row_without_input_has_nothing_to_do() -> None:
    assert make_row().work() is Work.NONE


def test_input_makes_a_step_and_its_end_makes_the_finish() -> None:
    row = make_row()
    arrive(row, 0)
    assert row.work() is Work.STEP
    row.source_ended(row.sources[0])
    assert row.work() is Work.STEP
    row.take()
    assert row.work() is Work.FINISH


def test_a_row_finishes_after_the_last_of_its_sources() -> None:
    row = make_row(sources=(0, 4))
    row.source_ended(row.sources[0])
    assert row.work() is Work.NONE
    row.source_ended(row.sources[0])  # said twice
    assert row.work() is Work.NONE
    row.source_ended(row.sources[4])
    assert row.work() is Work.FINISH


def test_a_row_without_sources_finishes_at_once() -> None:
    assert make_row(sources=()).work() is Work.FINISH


def test_a_row_without_credit_on_any_of_its_edges_is_parked() -> None:
    row = make_row(targets=(1, 2))
    arrive(row, 0)
    row.outs[1].available = 0
    assert row.work() is Work.NONE
    row.outs[1].available = 1
    assert row.work() is Work.STEP


@pytest.mark.parametrize("state", ["dead", "stepping", "output_over"])
def test_a_row_that_cannot_go_on_has_no_work(state: str) -> None:
    row = make_row()
    arrive(row, 0)
    setattr(row, state, True)
    assert row.work() is Work.NONE


def test_answers_are_taken_before_input_and_make_room_in_the_window() -> None:
    row = make_row(sources=(0, 3), targets=(1, 2))
    ask = row.outs[2]
    ask.offer(Text("q"))
    assert ask.take() is not None
    arrive(row, 0)
    assert row.work() is Work.NONE  # the window is full
    answer = arrive(row, 3)
    assert row.work() is Work.STEP
    assert row.take().body is answer
    assert ask.unanswered == 0
    assert row.work() is Work.STEP  # now the input


def test_an_open_question_keeps_the_row_from_finishing() -> None:
    row = make_row(sources=(0, 3), targets=(1, 2))
    row.outs[2].offer(Text("q"))
    row.outs[2].take()
    row.source_ended(row.sources[0])
    assert not row.input_over
    arrive(row, 3)
    row.take()
    assert row.work() is Work.FINISH


def test_the_end_of_an_answering_edge_is_not_waited_for() -> None:
    row = make_row(sources=(0, 3), targets=(2,))
    row.source_ended(row.sources[0])
    assert row.work() is Work.FINISH
    row.source_ended(row.sources[3])
    assert row.unfinished == 0


def test_arrivals_are_counted_per_edge_until_they_are_taken() -> None:
    row = make_row(sources=(0, 4))
    arrive(row, 0)
    arrive(row, 4)
    arrive(row, 4)
    assert [(e.received, e.waiting) for e in row.sources.values()] == [(1, 1), (2, 2)]
    for _ in range(3):
        row.take()
    assert [e.waiting for e in row.sources.values()] == [0, 0]


def test_what_is_dropped_is_released_once() -> None:
    row = make_row(sources=(0, 3), targets=(2,))
    bodies = [arrive(row, 0, Body()), arrive(row, 3, Body()), arrive(row, 0)]
    assert row.drop_input() == 3
    assert row.drop_input() == 0
    assert [body.released for body in bodies[:2]] == [1, 1]


# ---------------------------------------------------------------- engines


def test_an_engines_row_is_stepped_while_it_is_awake() -> None:
    row = make_row(engine=True)
    assert row.work() is Work.NONE
    row.awake = True
    assert row.work() is Work.STEP
    row.outs[1].available = 0
    assert row.work() is Work.NONE


def test_an_engine_is_stepped_once_more_to_be_told_that_its_input_is_over() -> None:
    row = make_row(engine=True)
    row.source_ended(row.sources[0])
    assert row.work() is Work.STEP
    row.closed = True
    assert row.work() is Work.NONE
