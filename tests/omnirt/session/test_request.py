"""The machine of a plain request, as tables: (state, command) -> (state, effects)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from omnirt.errors import Cancelled, Failure, InvalidRequest, NotReady, Overloaded
from omnirt.ids import Fence
from omnirt.session import request as request_module
from omnirt.session.request import Deliver, Drop, Effect, Finish, RequestMachine, Restart, Route, Send, State
from omnirt.session.service import Done, Failed
from omnirt.wire.messages import Chunk, Credit, End
from omnirt.wire.payload import Latents, Payload, Text
from omnirt.wire.plan import EdgePlan

TEXT_IN = EdgePlan(0, "client", "text", "a", "text", credit=2)
TEXT_OUT = EdgePlan(1, "a", "text", "client", "text", credit=2)
AUDIO_OUT = EdgePlan(2, "b", "audio", "client", "audio", credit=4)
WHOLE_IN = EdgePlan(0, "client", "text", "a", "text", stream=False)
FENCE, NEXT = Fence(3, 7), Fence(3, 9)
ROUTE = Route(FENCE, {0: "a.0"}, {1: "a.0"})
BOTH = Route(FENCE, {0: "a.0"}, {1: "a.0", 2: "b.0"})


def make(*texts: str, is_open: bool = False, attempts_max: int = 3, edges: Any = None) -> RequestMachine:
    inputs: tuple[tuple[str, Payload], ...] = tuple(("text", Text(text)) for text in texts)
    return RequestMachine(9, edges or (TEXT_IN, TEXT_OUT, AUDIO_OUT), inputs, is_open, attempts_max)


def running(*texts: str, route: Route = ROUTE, **values: Any) -> RequestMachine:
    machine = make(*texts, **values)
    machine.started(route)
    return machine


def chunk(edge: int = 0, seq: int = 0, fence: Fence = FENCE) -> Chunk:
    return Chunk(edge, 9, fence, seq, b"")


def code(effects: list[Effect]) -> str:
    """`done`, or the code of the failure, of the only effect."""
    (finish,) = effects
    assert isinstance(finish, Finish)
    return finish.outcome.failure.code if isinstance(finish.outcome, Failed) else "done"


def a_state(state: State) -> RequestMachine:
    machine = make("x")
    if state is not State.QUEUED:
        machine.started(ROUTE)
    if state is State.LOST:
        machine.lost("a.0", "killed", False)
    if state is State.OVER:
        machine.cancel("enough")
    return machine


# ---------------------------------------------------------------- starting and input


def test_a_started_request_sends_its_input_and_ends_it() -> None:
    assert make("x").started(ROUTE) == [
        Send("a.0", chunk(0, 0), Text("x")),
        Send("a.0", End(0, 9, FENCE, 1), None),
    ]


def test_a_request_without_input_sends_the_end_alone() -> None:
    assert make().started(ROUTE) == [Send("a.0", End(0, 9, FENCE, 0), None)]


def test_input_beyond_the_credit_waits_for_it() -> None:
    machine = make("x", "y", "z")
    assert machine.started(ROUTE) == [Send("a.0", chunk(0, 0), Text("x")), Send("a.0", chunk(0, 1), Text("y"))]
    assert machine.record(Credit(0, 9, FENCE, 1), None) == [
        Send("a.0", chunk(0, 2), Text("z")),
        Send("a.0", End(0, 9, FENCE, 3), None),
    ]


def test_an_edge_that_does_not_stream_gets_the_input_whole_at_its_end() -> None:
    machine = running("x ", is_open=True, edges=(WHOLE_IN, TEXT_OUT))
    assert machine.extend("text", Text("y")) == []
    assert machine.end_input() == [
        Send("a.0", chunk(0, 0), Text("x y")),
        Send("a.0", End(0, 9, FENCE, 1), None),
    ]


def test_input_that_cannot_be_joined_fails_the_request_and_nothing_else() -> None:
    machine = RequestMachine(
        9, (WHOLE_IN, TEXT_OUT),
        (("text", Latents(np.zeros((1, 2)))), ("text", Latents(np.zeros((1, 3))))), True, 3,
    )  # fmt: skip
    machine.started(ROUTE)
    assert code(machine.end_input()) == "stage_failed"


def test_open_input_is_extended_until_it_is_ended() -> None:
    machine = running("x", is_open=True)
    assert machine.extend("text", Text("y")) == [Send("a.0", chunk(0, 1), Text("y"))]
    assert machine.end_input() == [Send("a.0", End(0, 9, FENCE, 2), None)]
    assert machine.end_input() == []
    with pytest.raises(Cancelled):
        machine.extend("text", Text("z"))


def test_input_given_before_the_start_is_sent_with_it() -> None:
    machine = make(is_open=True)
    assert machine.extend("text", Text("x")) == []
    assert machine.end_input() == []
    assert [type(effect) for effect in machine.started(ROUTE)] == [Send, Send]


def test_a_modality_the_pipeline_does_not_take_is_refused_by_name() -> None:
    machine = running(is_open=True)
    with pytest.raises(InvalidRequest, match="takes text, not audio"):
        machine.extend("audio", Text("x"))
    assert machine.state is State.RUNNING


def test_too_much_waiting_input_is_refused_and_the_request_lives_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_module, "HELD_INPUT_MAX", 3)
    machine = running("a", "b", is_open=True)
    machine.extend("text", Text("c"))
    with pytest.raises(Overloaded):
        machine.extend("text", Text("d"))
    assert machine.state is State.RUNNING


# ---------------------------------------------------------------- output


def test_outputs_are_delivered_and_the_end_of_all_is_done() -> None:
    machine = running("x", route=BOTH)
    assert machine.record(chunk(1), "body") == [Deliver(1, "body")]
    assert machine.record(End(1, 9, FENCE, 1), None) == []
    assert machine.record(End(2, 9, FENCE, 0), None) == [Finish(Done({}))]
    assert machine.state is State.OVER


def test_what_the_stages_reported_is_told_once_each_with_the_end() -> None:
    machine = running("x", route=BOTH)
    machine.record(End(1, 9, FENCE, 0, {"a": {"tokens": 3}}), None)
    both = {"a": {"tokens": 3}, "b": {"audio_s": 0.5}}
    assert machine.record(End(2, 9, FENCE, 0, both), None) == [Finish(Done(both))]


def test_reading_gives_credit_back_in_batches() -> None:
    machine = running("x", route=BOTH)
    for _ in range(2):
        machine.record(chunk(2), "body")
    assert machine.read(2) == []
    assert machine.read(2) == [Send("b.0", Credit(2, 9, FENCE, 2), None)]
    assert machine.read(5) == []


def test_an_end_that_counts_more_than_came_fails_the_request() -> None:
    machine = running("x")
    assert code(machine.record(End(1, 9, FENCE, 2), None)) == "stage_failed"


@pytest.mark.parametrize("state", list(State))
def test_only_a_running_request_takes_records_of_its_own_fence(state: State) -> None:
    machine = a_state(state)
    expected = [Deliver(1, "body")] if state is State.RUNNING else [Drop("body")]
    assert machine.record(chunk(1, fence=FENCE), "body") == expected


@pytest.mark.parametrize("fence", [Fence(3, 6), Fence(3, 8), Fence(2, 7)])
def test_a_record_of_another_fence_never_becomes_an_output(fence: Fence) -> None:
    machine = running("x")
    assert machine.record(chunk(1, fence=fence), "body") == [Drop("body")]
    assert machine.record(End(1, 9, fence, 0), None) == [Drop(None)]
    assert machine.record(Credit(0, 9, fence, 1), None) == [Drop(None)]


def test_reads_of_a_request_that_has_ended_send_nothing() -> None:
    machine = running("x")
    machine.record(chunk(1), "body")
    machine.cancel("enough")
    assert machine.read(1) == []


# ---------------------------------------------------------------- losses


def test_a_request_that_has_given_nothing_is_run_again_from_its_first_input() -> None:
    machine = running("x", "y", is_open=True)
    machine.extend("text", Text("z"))
    assert machine.lost("a.0", "killed", False) == [Restart(alone=False)]
    assert machine.state is State.LOST
    again = machine.started(Route(NEXT, {0: "a.1"}, {1: "a.1"}))
    assert again == [
        Send("a.1", chunk(0, 0, NEXT), Text("x")),
        Send("a.1", chunk(0, 1, NEXT), Text("y")),
    ]
    assert machine.record(Credit(0, 9, NEXT, 1), None) == [Send("a.1", chunk(0, 2, NEXT), Text("z"))]
    assert machine.record(chunk(1, fence=FENCE), "old") == [Drop("old")]
    assert machine.record(chunk(1, fence=NEXT), "new") == [Deliver(1, "new")]


@pytest.mark.parametrize("state", [State.QUEUED, State.LOST, State.OVER])
def test_a_loss_matters_only_to_a_running_request(state: State) -> None:
    assert a_state(state).lost("a.0", "killed", True) == []


LOSSES: dict[str, tuple[dict[str, Any], list[bool], list[str]]] = {
    "the attempts are used up": ({"attempts_max": 2}, [False, False], ["again", "stage_lost"]),
    "a stage that is not pure is never tried again": ({"attempts_max": 1}, [False], ["stage_lost"]),
    "in its step twice": ({"attempts_max": 9}, [True, True], ["again", "stage_lost"]),
    "in its step once": ({"attempts_max": 9}, [False, True, False], ["again", "again", "again"]),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses_are_ridden_out_as_far_as_is_right(name: str) -> None:
    values, suspects, expected = LOSSES[name]
    machine = make("x", **values)
    said: list[str] = []
    for attempt, suspect in enumerate(suspects):
        machine.started(Route(Fence(3, 7 + 2 * attempt), {0: "a.0"}, {1: "a.0"}))
        effects = machine.lost("a.0", "killed", suspect)
        said.append("again" if isinstance(effects[0], Restart) else code(effects))
    assert said == expected


def test_a_suspect_is_run_alone_from_then_on() -> None:
    machine = running("x", attempts_max=9)
    assert machine.lost("a.0", "killed", True) == [Restart(alone=True)]
    machine.started(Route(NEXT, {0: "a.1"}, {1: "a.1"}))
    assert machine.lost("a.1", "killed", False) == [Restart(alone=True)]


def test_deaths_in_steps_of_a_life_that_is_over_count_too() -> None:
    machine = running("a")
    assert machine.lost("a.0", "killed", True) == [Restart(alone=True)]
    assert code(machine.lost("b.0", "killed", True)) == "stage_lost"  # it waits to be run again
    machine = running("a")
    assert machine.lost("b.0", "killed", True, is_held=False) == []  # and this life goes on
    assert machine.state is State.RUNNING
    assert code(machine.lost("b.0", "killed", True, is_held=False)) == "stage_lost"


def test_a_request_that_has_given_output_is_not_run_again() -> None:
    machine = running("x")
    machine.record(chunk(1), "body")
    effects = machine.lost("a.0", "killed", False)
    assert code(effects) == "stage_lost"
    assert machine.state is State.OVER


# ---------------------------------------------------------------- ends

ENDS: dict[str, tuple[Any, str]] = {
    "cancel": (lambda machine: machine.cancel("enough"), "cancelled"),
    "deadline": (lambda machine: machine.deadline(), "timeout"),
    "refuse": (lambda machine: machine.refuse(NotReady("x", reason="engine_dead")), "not_ready"),
}


@pytest.mark.parametrize("state", [State.QUEUED, State.RUNNING, State.LOST])
@pytest.mark.parametrize("name", ENDS)
def test_an_end_can_come_in_every_state(name: str, state: State) -> None:
    end, expected = ENDS[name]
    machine = a_state(state)
    assert code(end(machine)) == expected
    assert machine.state is State.OVER


@pytest.mark.parametrize("name", ENDS)
def test_a_request_ends_once(name: str) -> None:
    end, _ = ENDS[name]
    machine = a_state(State.OVER)
    assert end(machine) == []
    assert machine.failed(FENCE, Failure("stage_failed", "late")) == []
    assert machine.started(Route(NEXT, {}, {})) == []
    assert machine.state is State.OVER


def test_a_failure_ends_only_the_attempt_it_belongs_to() -> None:
    machine = running("x")
    assert machine.failed(Fence(3, 6), Failure("stage_failed", "old")) == []
    assert code(machine.failed(FENCE, Failure("stage_failed", "now"))) == "stage_failed"


@pytest.mark.parametrize(
    ("state", "text"),
    [(State.QUEUED, "a place"), (State.RUNNING, "a.text (a.0)"), (State.LOST, "a stage to come back")],
)
def test_a_deadline_says_what_was_waited_for(state: State, text: str) -> None:
    (finish,) = a_state(state).deadline()
    assert isinstance(finish, Finish)
    assert isinstance(finish.outcome, Failed)
    assert text in finish.outcome.failure.message
