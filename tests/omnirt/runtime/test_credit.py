"""Credit of one edge, both ends: literal cases, and a model with messages under way."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnirt.errors import StageFailed
from omnirt.runtime.credit import InEdge, OutEdge
from omnirt.wire.payload import Latents, Text
from omnirt.wire.plan import EdgePlan


def edge(**values: object) -> EdgePlan:
    return EdgePlan(0, "a", "out", "b", "in", **values)  # type: ignore[arg-type]


def texts(out: OutEdge) -> list[str]:
    taken = []
    while (payload := out.take()) is not None:
        taken.append(payload.text)  # type: ignore[attr-defined]
    return taken


def offer(out: OutEdge, words: str) -> None:
    for word in words.split():
        out.offer(Text(word))


def test_a_new_edge_may_carry_as_many_chunks_as_it_lends() -> None:
    out = OutEdge(edge(credit=2), "n")
    assert out.may_write()
    offer(out, "a b c")
    assert texts(out) == ["a", "b"]
    assert not out.may_write()
    assert not out.clear
    out.grant(1)
    assert texts(out) == ["c"]
    assert out.clear
    assert not out.may_write()
    out.grant(1)
    assert out.may_write()
    assert out.sent == 3


def test_more_credit_than_was_lent_is_a_broken_promise() -> None:
    out = OutEdge(edge(credit=2), "n")
    with pytest.raises(AssertionError):
        out.grant(1)


def test_an_edge_with_something_waiting_may_not_be_written() -> None:
    out = OutEdge(edge(credit=4), "n")
    offer(out, "a")
    assert not out.may_write()
    texts(out)
    assert out.may_write()


@pytest.mark.parametrize(("credit", "batch"), [(1, 1), (2, 1), (3, 1), (4, 2), (5, 2), (8, 4)])
def test_credit_comes_back_in_batches_of_half(credit: int, batch: int) -> None:
    into = InEdge(edge(credit=credit), "n")
    returned = [into.consumed() for _ in range(4 * batch)]
    assert returned == ([0] * (batch - 1) + [batch]) * 4


def test_no_credit_is_returned_once_the_edge_has_ended() -> None:
    into = InEdge(edge(credit=2), "n")
    into.ended = True
    assert [into.consumed() for _ in range(4)] == [0, 0, 0, 0]


# ---------------------------------------------------------------- windows


def test_a_window_bounds_the_unanswered_not_only_the_unconsumed() -> None:
    out = OutEdge(edge(credit=8, window=2), "n")
    offer(out, "q1 q2 q3")
    assert texts(out) == ["q1", "q2"]
    out.grant(2)
    assert texts(out) == []
    out.answered()
    assert texts(out) == ["q3"]


def test_a_full_window_lets_the_step_take_an_answer() -> None:
    out = OutEdge(edge(credit=8, window=1), "n")
    offer(out, "q1")
    texts(out)
    assert not out.may_write()
    assert out.may_write(answering=0)


def test_a_waiting_question_does_not_hold_up_the_answers_that_free_it() -> None:
    out = OutEdge(edge(credit=1, window=1), "n")
    offer(out, "q1 q2")
    texts(out)
    assert out.waiting
    assert out.available == 0
    assert out.may_write(answering=0)
    assert not out.may_write()


def test_an_answer_of_another_loop_makes_no_room_here() -> None:
    out = OutEdge(edge(credit=8, window=1), "n")
    offer(out, "q1")
    texts(out)
    assert not out.may_write(answering=5)


# ---------------------------------------------------------------- edges that do not stream, edges that drop


def test_a_collecting_edge_keeps_all_to_its_end_and_sends_one() -> None:
    out = OutEdge(edge(stream=False, credit=1), "n")
    offer(out, "one two three")
    assert out.may_write()
    assert out.take() is None
    assert out.clear
    sealed = out.seal()
    assert isinstance(sealed, Text)
    assert sealed.text == "onetwothree"
    assert out.sent == 1
    assert out.seal() is None


def test_an_empty_collecting_edge_sends_nothing() -> None:
    assert OutEdge(edge(stream=False), "n").seal() is None
    assert OutEdge(edge(), "n").seal() is None


def test_a_collection_that_exceeds_the_plan_is_refused() -> None:
    out = OutEdge(edge(stream=False, chunk_bytes_max=100), "n")
    for _ in range(2):
        out.offer(Latents(np.zeros(8, np.float64)))
    with pytest.raises(StageFailed, match="collected 128 bytes"):
        out.seal()


def test_a_collection_that_does_not_join_is_the_stages_fault() -> None:
    out = OutEdge(edge(stream=False), "n")
    out.offer(Latents(np.zeros((1, 2))))
    out.offer(Latents(np.zeros((1, 3))))
    with pytest.raises(StageFailed, match="does not join") as error:
        out.seal()
    assert error.value.stage == "a"


def test_a_live_edge_keeps_the_newest_and_counts_the_others() -> None:
    out = OutEdge(edge(overflow="drop_oldest", credit=1), "n")
    offer(out, "a")
    assert texts(out) == ["a"]
    offer(out, "b c d")
    assert out.may_write()
    assert texts(out) == []
    assert out.dropped == 2
    out.grant(1)
    assert texts(out) == ["d"]


# ---------------------------------------------------------------- both ends together


@given(st.integers(1, 9), st.integers(0, 4), st.lists(st.integers(0, 3), max_size=120))
def test_credit_is_conserved_and_the_stream_never_stalls(credit: int, burst: int, moves: list[int]) -> None:
    spec = edge(credit=credit)
    out, into = OutEdge(spec, "b"), InEdge(spec, "a")
    forth: deque[str] = deque()
    back: deque[int] = deque()
    inbox: deque[str] = deque()
    made = eaten = 0

    def make() -> None:
        nonlocal made
        if out.may_write():
            for _ in range(burst):
                out.offer(Text(str(made)))
                made += 1
            forth.extend(texts(out))

    def eat() -> None:
        nonlocal eaten
        if inbox:
            assert inbox.popleft() == str(eaten)
            eaten += 1
            if count := into.consumed():
                back.append(count)

    def deliver() -> None:
        if forth:
            inbox.append(forth.popleft())

    def pay() -> None:
        if back:
            out.grant(back.popleft())
            forth.extend(texts(out))

    def check() -> None:
        assert 0 <= out.available <= credit
        assert out.available + len(forth) + len(inbox) + into._owed + sum(back) == credit
        assert len(out.waiting) <= burst

    for move in moves:
        (make, eat, deliver, pay)[move]()
        check()
    while forth or inbox or back:  # no more input: everything made arrives
        deliver()
        eat()
        pay()
        check()
    assert eaten == made
    assert out.may_write()
