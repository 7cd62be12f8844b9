"""Refs: how an actor is reached, near or far, with one meaning.

    tell     at most once, in order per sender, control before data
    ask      always answered exactly once: with the value, DeadlineExceeded, or StageLost when the actor is gone
    monitor  exactly one Down per monitor, also when the target is already gone

`NearRef` (see `actor`) reaches a mailbox in this process, `Peer` another process through its control channel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from msgspec import Struct

from omnirt.clock import Clock, Timer
from omnirt.errors import DeadlineExceeded, OmnirtError, StageLost

Answer = Callable[[Any], object]
"""Receives the value, or an OmnirtError."""


class Down(Struct, frozen=True):
    """The monitored actor is gone. `incarnation` tells which life of it."""

    name: str
    incarnation: int
    reason: str


class Ref(Protocol):
    @property
    def name(self) -> str: ...

    def tell(self, message: Any) -> None: ...

    def ask(self, message: Any, timeout_ns: int, answer: Answer) -> None: ...

    def monitor(self, notify: Callable[[Down], None]) -> None: ...


class Questions:
    """Open questions, each with a deadline; each is answered exactly once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open: dict[int, tuple[Answer, Timer]] = {}
        self._next = 0

    def open(self, to: str, timeout_ns: int, answer: Answer) -> int:
        self._next += 1
        number = self._next
        late = DeadlineExceeded(f"{to} did not answer within {timeout_ns / 1e9:.3g} s", stage=to)
        timer = self._clock.call_at(self._clock.now_ns() + timeout_ns, lambda: self.answer(number, late))
        self._open[number] = (answer, timer)
        return number

    def answer(self, number: int, value: Any) -> bool:
        """False for a question that is closed already (a late answer)."""
        entry = self._open.pop(number, None)
        if entry is None:
            return False
        entry[1].cancel()
        entry[0](value)
        return True

    def fail_all(self, error: OmnirtError) -> None:
        for number in list(self._open):
            self.answer(number, error)

    def __len__(self) -> int:
        return len(self._open)


class Monitors:
    """Who wants to know that something ended; each is told once."""

    def __init__(self) -> None:
        self._waiting: list[Callable[[Down], None]] = []
        self._down: Down | None = None

    def add(self, notify: Callable[[Down], None]) -> None:
        if self._down is not None:
            notify(self._down)
        else:
            self._waiting.append(notify)

    def fire(self, down: Down) -> None:
        if self._down is None:
            self._down = down
            waiting, self._waiting = self._waiting, []
            for notify in waiting:
                notify(down)


class Peer:
    """One life of another process. `send` puts a control message on its channel.

    `answered` and `down` are called by whoever owns the channel.
    """

    def __init__(self, name: str, incarnation: int, clock: Clock, send: Callable[[Any], None]) -> None:
        self.name = name
        self.incarnation = incarnation
        self._send = send
        self._questions = Questions(clock)
        self._monitors = Monitors()
        self._gone: str | None = None

    def tell(self, message: Any) -> None:
        if self._gone is None:
            self._send(message)

    def ask(self, message: Callable[[int], Any], timeout_ns: int, answer: Answer) -> None:
        """`message` makes the question from its number."""
        if self._gone is not None:
            answer(self._lost())
            return
        self._send(message(self._questions.open(self.name, timeout_ns, answer)))

    def monitor(self, notify: Callable[[Down], None]) -> None:
        self._monitors.add(notify)

    def answered(self, number: int, value: Any) -> None:
        self._questions.answer(number, value)

    def down(self, reason: str) -> None:
        if self._gone is None:
            self._gone = reason
            self._questions.fail_all(self._lost())
            self._monitors.fire(Down(self.name, self.incarnation, reason))

    def _lost(self) -> StageLost:
        return StageLost(f"{self.name} is gone: {self._gone}", stage=self.name)
