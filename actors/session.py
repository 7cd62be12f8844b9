"""The shell around a session machine: an actor that carries out the machine's effects.

The client's end is an `Outlet`: a bounded queue of events that whoever serves the client takes from. Taking an output
gives its credit back, so an outlet never holds more than the credit of the request's output edges. A request that has
ended holds no lease: its place is given to the next one, and a client may leave the rest unread for ever.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from msgspec import Struct

from omnirt.clock import NS, Clock, Timer
from omnirt.errors import Failure, OmnirtError
from omnirt.ids import Fence
from omnirt.runtime.actor import Actor
from omnirt.session.request import Deliver, Drop, Effect, Finish, RequestMachine, Restart, Route, Send
from omnirt.session.service import Done, Failed
from omnirt.wire.messages import Record
from omnirt.wire.payload import Payload

log = logging.getLogger("omnirt.session")

# ---------------------------------------------------------------- messages


class Started(Struct, frozen=True):
    route: Route


class Lost(Struct, frozen=True):
    """`is_held`: the request had a place there; else only a step of an earlier life of it went on."""

    node: str
    reason: str
    suspect: bool
    is_held: bool = True


class StageSaid(Struct, frozen=True):
    """A stage could not serve the request."""

    fence: Fence
    failure: Failure


class Cancel(Struct, frozen=True):
    reason: str


class Refuse(Struct, frozen=True):
    error: OmnirtError


class Read(Struct, frozen=True):
    """The client took one output of this edge."""

    edge: int


class Extend(Struct, frozen=True):
    modality: str
    payload: Payload


class EndInput(Struct, frozen=True):
    pass


class Over(Struct, frozen=True):
    """To the orchestrator: the session ended."""

    request: int
    outcome: Done | Failed


class Again(Struct, frozen=True):
    """To the orchestrator: start the request again."""

    request: int
    alone: bool


# ---------------------------------------------------------------- the actor


class SessionWorld(Protocol):
    clock: Clock

    def send(self, process: str, record: Record, payload: Payload | None) -> None:
        """Raises LinkFull."""
        ...


class Outlet:
    """Events on their way to one client. `wake` is called when something was put; the reader takes from `events`."""

    def __init__(self) -> None:
        self.events: deque[tuple[int, Any]] = deque()
        """(edge, body), or (-1, Done | Failed) which is always the last."""
        self.wake: Callable[[], None] = lambda: None
        self.abandoned = False

    def put(self, edge: int, event: Any) -> None:
        if self.abandoned:
            _release(event)
            return
        self.events.append((edge, event))
        self.wake()

    def end(self, outcome: Done | Failed) -> None:
        """The last event. What the client has not taken yet is copied out of the links."""
        for _, body in self.events:
            own = getattr(body, "own", None)
            if own is not None:
                own()
        self.put(-1, outcome)

    def abandon(self) -> None:
        """The client is gone: whatever waits, and whatever comes, is released."""
        self.abandoned = True
        while self.events:
            _release(self.events.popleft()[1])


class SessionActor(Actor):
    def __init__(
        self,
        request: int,
        machine: RequestMachine,
        outlet: Outlet,
        world: SessionWorld,
        tell_orchestrator: Callable[[Over | Again], None],
        deadline_ns: int,
    ) -> None:
        self._request = request
        self._machine = machine
        self._outlet = outlet
        self._world = world
        self._tell_orchestrator = tell_orchestrator
        self._late = False
        self._deadline: Timer = world.clock.call_at(deadline_ns, self._on_deadline)
        self.started_ns = world.clock.now_ns()

    def receive(self, message: Any) -> None:
        machine = self._machine
        if isinstance(message, tuple):
            record, body = message
            self._do(machine.record(record, body))
        elif isinstance(message, Started):
            self._do(machine.started(message.route))
        elif isinstance(message, Read):
            self._do(machine.read(message.edge))
        elif isinstance(message, Lost):
            self._do(machine.lost(message.node, message.reason, message.suspect, is_held=message.is_held))
        elif isinstance(message, StageSaid):
            self._do(machine.failed(message.fence, message.failure))
        elif isinstance(message, Cancel):
            self._do(machine.cancel(message.reason))
        elif isinstance(message, Refuse):
            self._do(machine.refuse(message.error))
        else:
            raise TypeError(f"a session takes no {type(message).__name__}")

    def answer(self, question: Any) -> None:
        """Input is asked, not told, so that the client hears when it is refused."""
        if isinstance(question, Extend):
            self._do(self._machine.extend(question.modality, question.payload))
        elif isinstance(question, EndInput):
            self._do(self._machine.end_input())
        else:
            raise TypeError(f"a session answers no {type(question).__name__}")

    def unread(self, message: Any) -> None:
        if isinstance(message, tuple):
            _release(message[1])

    def stopped(self, reason: str) -> None:
        self._deadline.cancel()

    def _on_deadline(self) -> None:
        self._do(self._machine.deadline())

    def _do(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                try:
                    self._world.send(effect.process, effect.record, effect.payload)
                except OmnirtError as error:
                    self._do(self._machine.refuse(error))
                    return
            elif isinstance(effect, Deliver):
                self._outlet.put(effect.edge, effect.body)
            elif isinstance(effect, Drop):
                _release(effect.body)
            elif isinstance(effect, Restart):
                self._tell_orchestrator(Again(self._request, effect.alone))
            elif isinstance(effect, Finish):
                self._deadline.cancel()
                self._outlet.end(effect.outcome)
                self._tell_orchestrator(Over(self._request, effect.outcome))


def deadline_from(now_ns: int, deadline_s: float) -> int:
    return now_ns + int(deadline_s * NS)


def _release(body: Any) -> None:
    release = getattr(body, "release", None)
    if release is not None:
        release()
