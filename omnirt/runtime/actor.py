"""Actors of one process and the system that runs them.

An actor handles one message at a time, to the end, without awaiting: what it wants later it asks of a timer, what it
wants of others it tells them. The system runs every mailbox dry whenever the shell around it (an event loop, or a
simulated world) says that something arrived; between those moments nothing runs.

An actor whose handler raises is stopped: its monitors get one Down, its waiting questions are answered.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from omnirt.clock import Clock
from omnirt.errors import OmnirtError, StageLost
from omnirt.runtime.mailbox import Mailbox
from omnirt.runtime.ref import Answer, Down, Monitors, Questions

log = logging.getLogger("omnirt.actor")


class Actor:
    """Base of what lives behind a mailbox."""

    def receive(self, message: Any) -> None:
        raise NotImplementedError

    def answer(self, question: Any) -> Any:
        """The value for a question; raise an OmnirtError to answer with it."""
        raise OmnirtError(f"{type(self).__name__} answers no {type(question).__name__}")

    def unread(self, message: Any) -> None:
        """A message that came too late, when the actor ends: give back what it holds."""

    def stopped(self, reason: str) -> None:
        """Called once, after the last message."""


class _Question:
    __slots__ = ("answer", "body")

    def __init__(self, body: Any, answer: Answer) -> None:
        self.body = body
        self.answer = answer


class _Entry:
    __slots__ = ("actor", "incarnation", "mailbox", "monitors", "name", "queued")

    def __init__(self, name: str, incarnation: int, actor: Actor, mailbox: Mailbox) -> None:
        self.name = name
        self.incarnation = incarnation
        self.actor = actor
        self.mailbox = mailbox
        self.monitors = Monitors()
        self.queued = False


class NearRef:
    """Reaches one life of an actor of this process."""

    __slots__ = ("_system", "entry", "incarnation", "name")

    def __init__(self, system: System, entry: _Entry) -> None:
        self._system = system
        self.entry = entry
        self.name = entry.name
        self.incarnation = entry.incarnation

    def tell(self, message: Any) -> None:
        self._system.put_control(self.entry, message)

    def data(self, message: Any) -> Any | None:
        """Into the data lane; see `Mailbox.put_data`."""
        return self._system.put_data(self.entry, message)

    def ask(self, message: Any, timeout_ns: int, answer: Answer) -> None:
        self._system.put_question(self.entry, message, timeout_ns, answer)

    def monitor(self, notify: Callable[[Down], None]) -> None:
        self.entry.monitors.add(notify)


class System:
    """The actors of one process. `wake` asks the shell to call `run` soon; it is called once per batch of arrivals."""

    def __init__(self, clock: Clock, wake: Callable[[], None]) -> None:
        self.clock = clock
        self._wake = wake
        self._entries: dict[str, _Entry] = {}
        self._ready: deque[_Entry] = deque()
        self._questions = Questions(clock)
        self._incarnations = 0
        self._running = False
        self._woken = False

    def spawn(self, name: str, actor: Actor, data_max: int = 0) -> NearRef:
        assert name not in self._entries, f"an actor named {name} lives already"
        self._incarnations += 1
        entry = _Entry(name, self._incarnations, actor, Mailbox(data_max))
        self._entries[name] = entry
        return NearRef(self, entry)

    def find(self, name: str) -> NearRef | None:
        """The present life of the actor of that name."""
        entry = self._entries.get(name)
        return None if entry is None else NearRef(self, entry)

    def call(self, ref: NearRef, question: Any) -> Any:
        """Ask and get the answer at once: near actors are synchronous. For code that is not an actor.

        Raises what the actor answers with, StageLost when it is gone.
        """
        assert not self._running, "an actor asks with a callback"
        answers: list[Any] = []
        self.run()
        entry = ref.entry
        if self._alive(entry):
            entry.mailbox.put_control(_Question(question, answers.append))
            self._woken = True  # `run` follows at once
            self._queue(entry)
            self.run()
        answer = answers[0] if answers else StageLost(f"{ref.name} is gone")
        if isinstance(answer, OmnirtError):
            raise answer
        return answer

    def stop(self, name: str, reason: str = "stopped") -> None:
        """End an actor: no further message, one Down to each monitor, an answer to each waiting question."""
        entry = self._entries.pop(name, None)
        if entry is None:
            return
        while len(entry.mailbox):
            message = entry.mailbox.get()
            if isinstance(message, _Question):
                message.answer(StageLost(f"{name} stopped: {reason}"))
            else:
                entry.actor.unread(message)
        entry.actor.stopped(reason)
        entry.monitors.fire(Down(name, entry.incarnation, reason))

    def run(self) -> None:
        """Handle messages until every mailbox is empty."""
        if self._running:
            return
        self._running = True
        self._woken = False
        ready = self._ready
        try:
            while ready:
                entry = ready.popleft()
                entry.queued = False
                if self._alive(entry):
                    self._one(entry)
                    if len(entry.mailbox) and not entry.queued:
                        entry.queued = True
                        ready.append(entry)
        finally:
            self._running = False

    def _one(self, entry: _Entry) -> None:
        message = entry.mailbox.get()
        try:
            if isinstance(message, _Question):
                try:
                    value = entry.actor.answer(message.body)
                except OmnirtError as error:
                    value = error
                message.answer(value)
            else:
                entry.actor.receive(message)
        except Exception as error:  # the actor is done for; whoever monitors it decides
            log.exception("actor=%s crashed", entry.name)
            if isinstance(message, _Question):
                message.answer(StageLost(f"{entry.name} crashed: {error!r}"))
            self.stop(entry.name, f"crashed: {error!r}")

    def _alive(self, entry: _Entry) -> bool:
        return self._entries.get(entry.name) is entry

    def put_control(self, entry: _Entry, message: Any) -> None:
        if self._alive(entry):
            entry.mailbox.put_control(message)
            self._queue(entry)

    def put_data(self, entry: _Entry, message: Any) -> Any | None:
        if not self._alive(entry):
            return message
        displaced = entry.mailbox.put_data(message)
        self._queue(entry)
        return displaced

    def put_question(self, entry: _Entry, message: Any, timeout_ns: int, answer: Answer) -> None:
        if not self._alive(entry):
            answer(StageLost(f"{entry.name} is gone"))
            return
        number = self._questions.open(entry.name, timeout_ns, answer)
        self.put_control(entry, _Question(message, lambda value: self._questions.answer(number, value)))

    def _queue(self, entry: _Entry) -> None:
        if not entry.queued:
            entry.queued = True
            self._ready.append(entry)
        if not self._running and not self._woken:
            self._woken = True
            self._wake()
