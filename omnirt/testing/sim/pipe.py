"""A one-way queue with a delay of its own for each item, in order: half a control channel, one direction of a link."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from omnirt.testing.sim.clock import SimClock


class Pipe:
    """`readable` is called when something has arrived and was not taken; whoever is busy then takes it later."""

    __slots__ = ("_armed", "_clock", "_delay_ns", "_last_ns", "_queue", "readable")

    def __init__(self, clock: SimClock, delay_ns: Callable[[], int]) -> None:
        self._clock = clock
        self._delay_ns = delay_ns
        self._queue: deque[tuple[int, Any]] = deque()
        self._last_ns = 0
        self._armed = False
        self.readable: Callable[[], None] | None = None

    def put(self, item: Any) -> None:
        self._last_ns = max(self._last_ns, self._clock.now_ns() + self._delay_ns())
        self._queue.append((self._last_ns, item))
        self._arm()

    def arrived(self) -> Iterator[Any]:
        """Take what has arrived by now. Items put while this runs are taken when they, too, have arrived."""
        now_ns = self._clock.now_ns()
        while self._queue and self._queue[0][0] <= now_ns:
            yield self._queue.popleft()[1]
        self._arm()

    def all(self) -> Iterator[Any]:
        """Take everything, arrived or not."""
        while self._queue:
            yield self._queue.popleft()[1]

    def waiting(self) -> list[tuple[int, Any]]:
        """When each item arrives, and the item."""
        return list(self._queue)

    def has_arrived(self) -> bool:
        return bool(self._queue) and self._queue[0][0] <= self._clock.now_ns()

    def __len__(self) -> int:
        return len(self._queue)

    def _arm(self) -> None:
        if not self._armed and self._queue:
            self._armed = True
            self._clock.after(max(0, self._queue[0][0] - self._clock.now_ns()), self._due)

    def _due(self) -> None:
        self._armed = False
        if self._queue and self.readable is not None:
            self.readable()


class Socket:
    """The control socketpair of one process."""

    def __init__(self, to_node: Pipe, to_head: Pipe) -> None:
        self.to_node = to_node
        self.to_head = to_head
