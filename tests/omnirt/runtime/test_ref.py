"""Questions, monitors and the far kind of ref."""

from __future__ import annotations

from typing import Any

import pytest

from omnirt.errors import DeadlineExceeded, StageLost
from omnirt.runtime.ref import Down, Monitors, Peer, Questions
from omnirt.testing.sim.clock import SimClock


@pytest.fixture
def clock() -> SimClock:
    return SimClock()


def make_peer(clock: SimClock) -> tuple[Peer, list[Any]]:
    sent: list[Any] = []
    return Peer("n.0", 3, clock, sent.append), sent


def test_a_question_is_answered_exactly_once(clock: SimClock) -> None:
    questions, answers = Questions(clock), []
    number = questions.open("x", 100, answers.append)
    assert questions.answer(number, "yes")
    assert not questions.answer(number, "late")
    clock.run()
    assert answers == ["yes"]
    assert len(questions) == 0


def test_a_question_without_an_answer_ends_at_its_deadline(clock: SimClock) -> None:
    questions, answers = Questions(clock), []
    number = questions.open("x", 100, answers.append)
    clock.run(until_ns=99)
    assert answers == []
    clock.run()
    assert [type(answer) for answer in answers] == [DeadlineExceeded]
    assert not questions.answer(number, "late")


def test_all_questions_can_be_failed_at_once(clock: SimClock) -> None:
    questions, answers = Questions(clock), []
    for _ in range(3):
        questions.open("x", 100, answers.append)
    questions.fail_all(StageLost("gone"))
    clock.run()
    assert [type(answer) for answer in answers] == [StageLost] * 3
    assert clock.events == 0


def test_a_question_asked_while_answering_another_stays_open(clock: SimClock) -> None:
    questions, answers = Questions(clock), []
    first = questions.open("x", 100, lambda _: answers.append(questions.open("x", 100, answers.append)))
    questions.answer(first, "go on")
    assert len(questions) == 1


def test_monitors_hear_the_first_end_once_and_late_ones_at_once() -> None:
    monitors, heard = Monitors(), []
    monitors.add(heard.append)
    monitors.fire(Down("x", 1, "first"))
    monitors.fire(Down("x", 1, "second"))
    monitors.add(heard.append)
    assert heard == [Down("x", 1, "first")] * 2


def test_a_peer_is_told_and_asked_through_its_channel(clock: SimClock) -> None:
    peer, sent = make_peer(clock)
    answers: list[Any] = []
    peer.tell("hello")
    peer.ask(lambda number: ("what?", number), 100, answers.append)
    assert sent == ["hello", ("what?", 1)]
    peer.answered(1, "this")
    peer.answered(1, "again")
    peer.answered(99, "to nothing")
    assert answers == ["this"]


def test_a_dead_peer_answers_all_tells_nobody_and_fires_once(clock: SimClock) -> None:
    peer, sent = make_peer(clock)
    answers: list[Any] = []
    downs: list[Down] = []
    peer.monitor(downs.append)
    peer.ask(lambda number: number, 100, answers.append)
    peer.down("killed")
    peer.down("again")
    peer.tell("to nobody")
    peer.ask(lambda number: number, 100, answers.append)
    peer.monitor(downs.append)
    assert sent == [1]
    assert [type(answer) for answer in answers] == [StageLost, StageLost]
    assert downs == [Down("n.0", 3, "killed")] * 2
    clock.run()
    assert clock.events == 0
