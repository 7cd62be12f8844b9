"""The hang watch: in a step and outside one, and what survives a pause in the work."""

from __future__ import annotations

import pytest

from omnirt.runtime.hang import ANSWER_LIMIT_S, LOOKS_PER_LIMIT, HangWatch, Verdict

S = 1_000_000_000
LIMIT_S = 40
LOOK = LIMIT_S * S // LOOKS_PER_LIMIT
ANSWER = int(ANSWER_LIMIT_S * S)


class Watched:
    """A watch over words the test sets."""

    def __init__(self, *words: int) -> None:
        self.words = list(words)
        self.watch = HangWatch(LIMIT_S, len(words), lambda rank: self.words[rank])

    def look_until(self, end_ns: int) -> list[tuple[int, Verdict]]:
        """Look whenever due; what was found, without the looks that found nothing."""
        found: list[tuple[int, Verdict]] = []
        while (at := self.watch.deadline_ns) is not None and at <= end_ns:
            verdict = self.watch.look(at)
            if verdict != Verdict():
                found.append((at, verdict))
            if verdict.hung >= 0:
                break
        return found


def test_a_watch_that_is_not_armed_has_no_deadline() -> None:
    world = Watched(0)
    assert world.watch.deadline_ns is None
    world.watch.arm(0)
    assert world.watch.deadline_ns == LOOK
    world.watch.disarm()
    assert world.watch.deadline_ns is None


def test_a_step_is_hung_after_its_limit_and_not_before() -> None:
    world = Watched(1)
    world.watch.arm(5 * S)
    ((at, verdict),) = world.look_until(1000 * S)
    assert at == 5 * S + LIMIT_S * S
    assert verdict.hung == 0
    assert "more than 40 s" in verdict.text


def test_a_step_that_began_unseen_is_found_within_a_look_of_its_limit() -> None:
    world = Watched(0)
    world.watch.arm(0)
    world.words[0] = 1  # begins right after time 0, is first seen at the first look
    ((at, verdict),) = world.look_until(1000 * S)
    assert at == LOOK + LIMIT_S * S
    assert verdict.hung == 0


def test_steps_that_go_on_keep_a_node_alive() -> None:
    world = Watched(1)
    world.watch.arm(0)
    for _ in range(100):
        at = world.watch.deadline_ns
        assert at is not None
        assert world.watch.look(at) == Verdict()
        world.words[0] += 2


def test_a_parked_node_is_asked_and_is_healthy_when_it_answers() -> None:
    world = Watched(0)
    world.watch.arm(0)
    for _ in range(10):
        asked_at = world.watch.deadline_ns
        assert asked_at is not None
        assert world.watch.look(asked_at) == Verdict(ask=(0,))
        assert world.watch.deadline_ns == asked_at + ANSWER
        world.watch.answered(asked_at + S, 0)
        assert world.watch.deadline_ns == asked_at + S + LOOK


def test_a_node_that_neither_works_nor_answers_is_hung() -> None:
    world = Watched(0)
    world.watch.arm(0)
    (asked, hung) = world.look_until(1000 * S)
    assert asked == (LOOK, Verdict(ask=(0,)))
    assert hung[0] == LOOK + ANSWER
    assert "did not answer" in hung[1].text


def test_a_node_that_was_asked_and_went_into_a_step_need_not_answer() -> None:
    world = Watched(0)
    world.watch.arm(0)
    assert world.watch.look(LOOK) == Verdict(ask=(0,))
    world.words[0] = 1
    assert world.watch.look(LOOK + ANSWER) == Verdict()
    assert world.watch.deadline_ns == LOOK + ANSWER + LOOK


def test_a_question_is_forgotten_when_the_node_has_worked_since() -> None:
    world = Watched(0)
    world.watch.arm(0)
    assert world.watch.look(LOOK) == Verdict(ask=(0,))
    world.words[0] = 2  # a whole step, and its answer still on the way
    assert world.watch.look(LOOK + ANSWER) == Verdict()
    assert world.watch.look(LOOK + ANSWER + LOOK) == Verdict(ask=(0,))


@pytest.mark.parametrize(("word", "end_ns"), [(1, LIMIT_S * S), (0, LOOK + ANSWER)])
def test_callers_that_give_up_one_after_the_other_do_not_reset_the_patience(word: int, end_ns: int) -> None:
    """Each caller holds the node at work for little more than one look: less than the limit of a step."""
    world = Watched(word)
    found: list[tuple[int, Verdict]] = []
    now = 0
    while not (found and found[-1][1].hung >= 0):
        world.watch.arm(now)
        found += world.look_until(now + LOOK)
        now += LOOK
        world.watch.disarm()
        assert now <= 2 * end_ns
    assert found[-1][0] >= end_ns


def test_one_rank_that_hangs_is_enough() -> None:
    world = Watched(0, 1)
    world.watch.arm(0)
    while True:
        at = world.watch.deadline_ns
        assert at is not None
        verdict = world.watch.look(at)
        if verdict.hung >= 0:
            break
        for rank in verdict.ask:
            world.watch.answered(at, rank)
    assert (at, verdict.hung) == (LIMIT_S * S, 1)
