"""Back-pressure of one request on one edge, both ends.

    producer                                            consumer
    OutEdge: available = credit - sent + granted  --->  InEdge: received, consumed
             waiting (what a step emitted beyond)  <---  Credit(count), in batches of half the credit

Invariants: 0 <= available <= credit; available + on the way + owed back == credit. A row is stepped only while every
edge `may_write`, so `waiting` holds at most what one step emits (on a window's edge: no more than before an answer).
"""

from __future__ import annotations

from collections import deque

from omnirt.errors import StageFailed
from omnirt.wire.payload import Payload
from omnirt.wire.plan import EdgePlan


class OutEdge:
    """The sending end."""

    __slots__ = ("available", "dropped", "process", "sent", "spec", "unanswered", "waiting")

    def __init__(self, spec: EdgePlan, process: str) -> None:
        self.spec = spec
        self.process = process
        self.available = spec.credit
        self.unanswered = 0
        self.sent = 0
        self.dropped = 0
        self.waiting: deque[Payload] = deque()

    def may_write(self, answering: int = -1) -> bool:
        """Whether a step may write here. `answering`: the window edge whose answer that step consumes, if any."""
        spec = self.spec
        if spec.overflow == "drop_oldest" or not spec.stream:
            return True
        if answering == spec.index:
            return True  # the answer makes room for what the step may ask; holding it up would hold up the loop
        if self.waiting or self.available <= 0:
            return False
        return not spec.window or self.unanswered < spec.window

    def offer(self, payload: Payload) -> None:
        """Queue a payload. A live edge keeps only the newest, a collecting one (stream = false) all to its end."""
        if self.spec.overflow == "drop_oldest" and self.waiting:
            self.waiting.clear()
            self.dropped += 1
        self.waiting.append(payload)

    def take(self) -> Payload | None:
        """The next payload that may leave now, paid for."""
        if not self.waiting or self.available <= 0 or not self.spec.stream:
            return None
        if self.spec.window and self.unanswered >= self.spec.window:
            return None
        return self._pay()

    def seal(self) -> Payload | None:
        """At the end of a collecting edge: everything it collected, as one payload. None when there was nothing."""
        if self.spec.stream or not self.waiting:
            return None
        parts = list(self.waiting)
        size = sum(part.nbytes() for part in parts)
        if size > self.spec.chunk_bytes_max:
            raise StageFailed(
                f"edge {self.spec.source}.{self.spec.port} -> {self.spec.target}.{self.spec.to_port} collected {size} "
                f"bytes; its chunk_bytes_max is {self.spec.chunk_bytes_max}",
                stage=self.spec.source,
            )
        try:
            self.waiting = deque([type(parts[0]).joined(parts)])
        except (TypeError, ValueError) as error:
            text = f"what edge {self.spec.index} collected does not join: {error}"
            raise StageFailed(text, stage=self.spec.source) from error
        return self._pay()

    def _pay(self) -> Payload:
        self.available -= 1
        self.sent += 1
        self.unanswered += 1 if self.spec.window else 0
        return self.waiting.popleft()

    def grant(self, count: int) -> None:
        self.available += count
        assert self.available <= self.spec.credit, f"edge {self.spec.index} was granted more than it lent"

    def answered(self) -> None:
        if self.unanswered > 0:
            self.unanswered -= 1

    @property
    def clear(self) -> bool:
        """Nothing waits to leave (a collecting edge is clear until it is sealed)."""
        return not self.waiting or not self.spec.stream


class InEdge:
    """The receiving end."""

    __slots__ = ("_batch", "_owed", "ended", "process", "received", "spec", "waiting")

    def __init__(self, spec: EdgePlan, process: str) -> None:
        self.spec = spec
        self.process = process
        self.received = 0
        self.waiting = 0
        """Chunks that arrived and no step has taken; never more than the credit."""
        self.ended = False
        self._owed = 0
        self._batch = max(1, spec.credit // 2)

    def consumed(self) -> int:
        """One chunk was used up: the credit to return now (0 while less than half of it has gathered).

        Batching is safe: what is held back is less than half the credit, so the producer never runs out of it while
        the consumer is idle; and it halves the wake-ups of a stream.
        """
        self._owed += 1
        if self._owed < self._batch or self.ended:
            return 0
        count, self._owed = self._owed, 0
        return count
