"""Actors of one process: order, questions, death."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from omnirt.errors import DeadlineExceeded, OmnirtError, StageLost, Unsupported
from omnirt.runtime.actor import Actor, NearRef, System
from omnirt.runtime.mailbox import MailboxFull
from omnirt.runtime.ref import Down
from omnirt.testing.sim.clock import SimClock


class Recorder(Actor):
    """Keeps what it hears; `act` is done for each message."""

    def __init__(self, act: Callable[[Any], None] = lambda message: None) -> None:
        self.heard: list[Any] = []
        self.late: list[Any] = []
        self.ends: list[str] = []
        self._act = act

    def receive(self, message: Any) -> None:
        self.heard.append(message)
        self._act(message)

    def answer(self, question: Any) -> Any:
        if question == "fail":
            raise Unsupported("no")
        if question == "crash":
            raise ZeroDivisionError
        return question * 2

    def unread(self, message: Any) -> None:
        self.late.append(message)

    def stopped(self, reason: str) -> None:
        self.ends.append(reason)


class World:
    def __init__(self) -> None:
        self.clock = SimClock()
        self.wakes = 0
        self.system = System(self.clock, self._wake)

    def _wake(self) -> None:
        self.wakes += 1

    def spawn(self, actor: Actor, name: str = "a", data_max: int = 10) -> NearRef:
        return self.system.spawn(name, actor, data_max)


@pytest.fixture
def world() -> World:
    return World()


def test_messages_are_handled_in_order_control_first(world: World) -> None:
    actor = Recorder()
    ref = world.spawn(actor)
    ref.data("d1")
    ref.tell("c1")
    ref.data("d2")
    ref.tell("c2")
    assert actor.heard == []
    world.system.run()
    assert actor.heard == ["c1", "c2", "d1", "d2"]


def test_one_wake_is_asked_for_a_batch_of_arrivals(world: World) -> None:
    ref = world.spawn(Recorder())
    for number in range(5):
        ref.tell(number)
    assert world.wakes == 1
    world.system.run()
    ref.tell("again")
    assert world.wakes == 2


def test_an_idle_system_asks_for_no_wake(world: World) -> None:
    world.spawn(Recorder())
    world.system.run()
    assert world.wakes == 0
    assert world.clock.quiet()
    world.clock.run()
    assert world.clock.events == 0


def test_what_actors_tell_each_other_is_handled_in_the_same_run(world: World) -> None:
    back = Recorder()
    back_ref = world.spawn(back, "back")
    ref = world.spawn(Recorder(lambda message: back_ref.tell(message + 1)), "front")
    ref.tell(1)
    world.system.run()
    assert back.heard == [2]
    assert world.wakes == 1


def test_actors_take_turns_so_that_none_starves(world: World) -> None:
    order: list[str] = []
    a = world.spawn(Recorder(lambda message: order.append(f"a{message}")), "a")
    b = world.spawn(Recorder(lambda message: order.append(f"b{message}")), "b")
    for number in (1, 2):
        a.tell(number)
    for number in (1, 2):
        b.tell(number)
    world.system.run()
    assert order == ["a1", "b1", "a2", "b2"]


def test_two_living_actors_cannot_share_a_name(world: World) -> None:
    world.spawn(Recorder())
    with pytest.raises(AssertionError):
        world.spawn(Recorder())


def test_a_full_data_lane_is_refused(world: World) -> None:
    ref = world.spawn(Recorder(), data_max=1)
    ref.data(1)
    with pytest.raises(MailboxFull):
        ref.data(2)


# ---------------------------------------------------------------- questions


def test_a_question_is_answered_once_and_its_timer_goes(world: World) -> None:
    ref = world.spawn(Recorder())
    answers: list[Any] = []
    ref.ask(21, 1000, answers.append)
    world.system.run()
    assert answers == [42]
    world.clock.run()
    assert answers == [42]
    assert world.clock.events == 0


def test_an_error_is_an_answer_and_the_actor_lives_on(world: World) -> None:
    ref = world.spawn(Recorder())
    answers: list[Any] = []
    ref.ask("fail", 1000, answers.append)
    ref.ask(1, 1000, answers.append)
    world.system.run()
    assert isinstance(answers[0], Unsupported)
    assert answers[1] == 2


def test_a_question_that_is_not_handled_in_time_is_answered_with_the_deadline(world: World) -> None:
    ref = world.spawn(Recorder())
    answers: list[Any] = []
    ref.ask(1, 1000, answers.append)
    world.clock.run()  # nobody ran the mailboxes
    assert [type(answer) for answer in answers] == [DeadlineExceeded]
    world.system.run()
    assert len(answers) == 1


def test_waiting_questions_are_answered_when_the_actor_stops(world: World) -> None:
    ref = world.spawn(Recorder())
    answers: list[Any] = []
    ref.ask(1, 1000, answers.append)
    world.system.stop("a")
    ref.ask(2, 1000, answers.append)
    assert [type(answer) for answer in answers] == [StageLost, StageLost]
    world.clock.run()
    assert len(answers) == 2


def test_the_question_that_crashes_an_actor_is_answered_and_so_are_those_behind_it(world: World) -> None:
    ref = world.spawn(Recorder())
    answers: list[Any] = []
    ref.ask("crash", 1000, answers.append)
    ref.ask(1, 1000, answers.append)
    world.system.run()
    assert [type(answer) for answer in answers] == [StageLost, StageLost]
    assert world.system.find("a") is None


def test_an_actor_that_answers_nothing_says_so(world: World) -> None:
    class Deaf(Actor):
        def receive(self, message: Any) -> None: ...

    answers: list[Any] = []
    world.spawn(Deaf()).ask(1, 1000, answers.append)
    world.system.run()
    assert isinstance(answers[0], OmnirtError)


def test_call_answers_at_once_after_what_was_told_before(world: World) -> None:
    actor = Recorder()
    ref = world.spawn(actor)
    ref.tell("first")
    assert world.system.call(ref, 4) == 8
    assert actor.heard == ["first"]
    assert world.clock.quiet()


def test_call_raises_what_the_actor_answers_with(world: World) -> None:
    ref = world.spawn(Recorder())
    with pytest.raises(Unsupported):
        world.system.call(ref, "fail")
    world.system.stop("a")
    with pytest.raises(StageLost):
        world.system.call(ref, 1)


def test_a_wake_is_asked_for_again_after_a_call(world: World) -> None:
    ref = world.spawn(Recorder())
    world.system.call(ref, 1)
    ref.tell("x")
    assert world.wakes == 1


# ---------------------------------------------------------------- death


def test_every_monitor_hears_one_down_also_when_it_comes_late(world: World) -> None:
    ref = world.spawn(Recorder())
    downs: list[Down] = []
    ref.monitor(downs.append)
    world.system.stop("a", "enough")
    world.system.stop("a", "twice")
    ref.monitor(downs.append)
    assert downs == [Down("a", ref.incarnation, "enough")] * 2


def test_a_crash_stops_the_actor_and_tells_why(world: World) -> None:
    def boom(message: Any) -> None:
        raise ValueError(message)

    actor = Recorder(boom)
    ref = world.spawn(actor)
    downs: list[Down] = []
    ref.monitor(downs.append)
    ref.tell("bang")
    ref.tell("never heard")
    world.system.run()
    assert actor.heard == ["bang"]
    assert actor.ends == ["crashed: ValueError('bang')"]
    assert [down.reason for down in downs] == ["crashed: ValueError('bang')"]


def test_a_crash_leaves_the_others_running(world: World) -> None:
    def boom(message: Any) -> None:
        raise ValueError

    other = Recorder()
    world.spawn(Recorder(boom), "bad").tell(1)
    world.spawn(other, "good").tell(2)
    world.system.run()
    assert other.heard == [2]


def test_messages_that_come_too_late_are_given_back(world: World) -> None:
    actor = Recorder()
    ref = world.spawn(actor)
    ref.data("unread")
    ref.tell("unread too")
    world.system.stop("a")
    assert actor.heard == []
    assert sorted(actor.late) == ["unread", "unread too"]
    assert ref.data("to nobody") == "to nobody"
    ref.tell("to nobody")
    world.system.run()
    assert actor.heard == []


def test_an_old_ref_does_not_reach_the_next_life(world: World) -> None:
    old = world.spawn(Recorder())
    world.system.stop("a")
    actor = Recorder()
    new = world.spawn(actor)
    old.tell("for the old one")
    new.tell("for the new one")
    world.system.run()
    assert actor.heard == ["for the new one"]
    assert new.incarnation > old.incarnation


def test_an_actor_can_stop_itself_and_others_while_it_handles_a_message(world: World) -> None:
    other = Recorder()
    world.spawn(other, "other").tell("unheard")
    actor = Recorder(lambda message: (world.system.stop("other"), world.system.stop("a")))  # type: ignore[arg-type]
    ref = world.spawn(actor)
    ref.tell("stop")
    ref.tell("unheard")
    world.system._ready.rotate(1)  # "a" first
    world.system.run()
    assert actor.heard == ["stop"]
    assert other.heard == []
