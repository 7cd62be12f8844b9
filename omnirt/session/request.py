"""A plain request as a pure machine: a session of one turn.

    queued --started--> running --every output ended--> done
                          |  ^
                    lost  |  | started (again, under a new fence, from the first input)
                          v  |
                         lost            failed, cancelled, deadline: from every state

Commands return effects; nothing here awaits, reads a clock or touches a socket. The machine is the last gate: a record
whose fence is not the request's present one never becomes an output. It ends exactly once.

A request may be run again while the client has been given nothing and every stage it uses is pure. Being in the step
of a process that dies counts against it: the second time, it is taken for the cause and fails.
"""

from __future__ import annotations

import enum
from typing import Any

from msgspec import Struct

from omnirt.errors import (
    Cancelled,
    DeadlineExceeded,
    Failure,
    InvalidRequest,
    OmnirtError,
    Overloaded,
    StageFailed,
    StageLost,
)
from omnirt.ids import CLIENT, Fence
from omnirt.runtime.credit import InEdge, OutEdge
from omnirt.session.service import Done, Failed
from omnirt.wire.messages import Chunk, Credit, End, Record
from omnirt.wire.payload import Payload
from omnirt.wire.plan import EdgePlan

SUSPICIONS_MAX = 2
"""Processes that may die with the request in their step before it is held to be the cause."""
HELD_INPUT_MAX = 256
"""Input payloads that may wait for credit."""


class State(enum.Enum):
    QUEUED = "queued"
    RUNNING = "running"
    LOST = "lost"
    OVER = "over"


class Route(Struct, frozen=True):
    """Where the client edges of a started request lead: edge index -> process."""

    fence: Fence
    inputs: dict[int, str]
    outputs: dict[int, str]


# ---------------------------------------------------------------- effects


class Send(Struct, frozen=True):
    process: str
    record: Record
    payload: Payload | None


class Deliver(Struct, frozen=True):
    """An output for the client; `read(edge)` follows when the client took it."""

    edge: int
    body: Any


class Drop(Struct, frozen=True):
    """A stale record's body: release it."""

    body: Any


class Restart(Struct, frozen=True):
    """Run the request again, under a new fence."""

    alone: bool


class Finish(Struct, frozen=True):
    outcome: Done | Failed


Effect = Send | Deliver | Drop | Restart | Finish


class RequestMachine:
    def __init__(
        self,
        request: int,
        edges: tuple[EdgePlan, ...],
        inputs: tuple[tuple[str, Payload], ...],
        input_open: bool,
        attempts_max: int,
    ) -> None:
        """`edges`: the client edges this request may use. `attempts_max`: 1 when a stage of its path is not pure."""
        self.state = State.QUEUED
        self.fence: Fence | None = None
        self.attempts = 0
        self.suspicions = 0
        self._request = request
        self._edges = {edge.index: edge for edge in edges}
        self._history = list(inputs)
        """Every input so far, to run the request again; dropped with the first output."""
        self._input_open = input_open
        self._attempts_max = attempts_max
        self._sent = False
        self._inputs: dict[int, OutEdge] = {}
        self._outputs: dict[int, InEdge] = {}
        self._closed_inputs = False
        self._reports: dict[str, dict[str, Any]] = {}

    # ------------------------------------------------------------ life

    def started(self, route: Route) -> list[Effect]:
        if self.state is State.OVER:
            return []
        self.state = State.RUNNING
        self.fence = route.fence
        self.attempts += 1
        self._inputs = {index: OutEdge(self._edges[index], process) for index, process in route.inputs.items()}
        self._outputs = {index: InEdge(self._edges[index], process) for index, process in route.outputs.items()}
        self._closed_inputs = False
        for modality, payload in self._history:
            self._offer(modality, payload)
        return self._flush()

    def lost(self, node: str, reason: str, suspect: bool, *, is_held: bool = True) -> list[Effect]:
        """A process died or hung that held the request, or (not `is_held`) that was still in a step of an earlier life
        of it: that counts against the request, too, but takes nothing from the life that it has."""
        if self.state not in (State.RUNNING, State.LOST):
            return []
        self.suspicions += suspect
        text = f"{node} was lost ({reason})"
        if self.state is State.LOST or not is_held:
            if self.suspicions < SUSPICIONS_MAX:
                return []
        elif self._sent:
            return self._fail(StageLost(f"{text} after output had been sent", stage=node))
        if self.suspicions >= SUSPICIONS_MAX:
            return self._fail(StageLost(f"{text}, the second time with this request in its step", stage=node))
        if self.attempts >= self._attempts_max:
            return self._fail(StageLost(f"{text}; attempt {self.attempts} of {self._attempts_max}", stage=node))
        self.state = State.LOST
        return [Restart(alone=suspect or self.suspicions > 0)]

    def failed(self, fence: Fence, failure: Failure) -> list[Effect]:
        if self.state is State.OVER or fence != self.fence:
            return []
        return self._finish(Failed(failure))

    def cancel(self, reason: str) -> list[Effect]:
        return [] if self.state is State.OVER else self._fail(Cancelled(reason))

    def deadline(self) -> list[Effect]:
        if self.state is State.OVER:
            return []
        text = {
            State.QUEUED: "waiting for a place",
            State.LOST: "waiting for a stage to come back",
            State.RUNNING: f"waiting for {self._awaited()}",
        }[self.state]
        return self._fail(DeadlineExceeded(f"the request's deadline passed while {text}"))

    def refuse(self, error: OmnirtError) -> list[Effect]:
        """The runtime cannot go on with it."""
        return [] if self.state is State.OVER else self._fail(error)

    # ------------------------------------------------------------ input

    def extend(self, modality: str, payload: Payload) -> list[Effect]:
        """More input. Raises Cancelled when the request or its input is over, Overloaded when too much waits,
        InvalidRequest for a modality the pipeline does not take."""
        if self.state is State.OVER or not self._input_open:
            raise Cancelled("the request takes no more input")
        known = {edge.port for edge in self._edges.values() if edge.source == CLIENT}
        if modality not in known:
            raise InvalidRequest(f"the pipeline takes {', '.join(sorted(known))}, not {modality}", param="input")
        if any(len(out.waiting) >= HELD_INPUT_MAX for out in self._inputs.values()):
            raise Overloaded(f"{HELD_INPUT_MAX} inputs are waiting already")
        if not self._sent:
            if len(self._history) >= HELD_INPUT_MAX:
                raise Overloaded(f"{HELD_INPUT_MAX} inputs are waiting already")
            self._history.append((modality, payload))
        self._offer(modality, payload)
        return self._flush()

    def end_input(self) -> list[Effect]:
        self._input_open = False
        return self._flush()

    # ------------------------------------------------------------ records

    def record(self, record: Record, body: Any) -> list[Effect]:
        if self.state is not State.RUNNING or record.fence != self.fence:
            return [Drop(body)]
        if isinstance(record, Credit):
            self._inputs[record.edge].grant(record.count)
            return self._flush()
        edge = self._outputs[record.edge]
        if isinstance(record, End):
            return self._output_ended(edge, record)
        edge.received += 1
        self._sent = True
        self._history.clear()
        return [Deliver(record.edge, body)]

    def read(self, edge: int) -> list[Effect]:
        """The client took one output of `edge`."""
        out = self._outputs.get(edge)
        if self.state is not State.RUNNING or out is None or self.fence is None:
            return []
        count = out.consumed()
        return [Send(out.process, Credit(edge, self._request, self.fence, count), None)] if count else []

    def _output_ended(self, edge: InEdge, record: End) -> list[Effect]:
        if edge.received != record.count:
            spec = edge.spec
            lost = f"{record.count - edge.received} of {record.count} chunks"
            return self._fail(StageFailed(f"edge {spec.source}.{spec.port} -> client lost {lost}", stage=spec.source))
        edge.ended = True
        self._reports.update(record.reports)
        if all(out.ended for out in self._outputs.values()):
            return self._finish(Done(self._reports))
        return []

    # ------------------------------------------------------------ inside

    def _offer(self, modality: str, payload: Payload) -> None:
        for out in self._inputs.values():
            if out.spec.port == modality:
                out.offer(payload)

    def _flush(self) -> list[Effect]:
        """Send what credit allows; after the last input, end every input edge."""
        try:
            return self._send_input()
        except OmnirtError as error:
            return self._fail(error)

    def _send_input(self) -> list[Effect]:
        if self.state is not State.RUNNING or self.fence is None:
            return []
        effects: list[Effect] = []
        for index, out in self._inputs.items():
            while (payload := out.take()) is not None:
                effects.append(Send(out.process, Chunk(index, self._request, self.fence, out.sent - 1, b""), payload))
        if self._input_open or self._closed_inputs or not all(out.clear for out in self._inputs.values()):
            return effects
        self._closed_inputs = True
        for index, out in self._inputs.items():
            payload = out.seal()
            if payload is not None:
                effects.append(Send(out.process, Chunk(index, self._request, self.fence, out.sent - 1, b""), payload))
            effects.append(Send(out.process, End(index, self._request, self.fence, out.sent), None))
        return effects

    def _awaited(self) -> str:
        late = [f"{out.spec.source}.{out.spec.port} ({out.process})" for out in self._outputs.values() if not out.ended]
        return ", ".join(late) or "its end"

    def _fail(self, error: OmnirtError) -> list[Effect]:
        return self._finish(Failed(error.failure()))

    def _finish(self, outcome: Done | Failed) -> list[Effect]:
        self.state = State.OVER
        self._history.clear()
        return [Finish(outcome)]
