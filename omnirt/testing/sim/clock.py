"""Virtual time: a heap of events, and the few parts of an event loop that the head uses.

Invariants: time moves only when `run` takes an event; events of one instant run in the order they were asked for, so a
seed gives one history. `fired` counts the timers of production code that went off: an idle world has none left.
"""

from __future__ import annotations

import asyncio
import heapq
import inspect
from collections.abc import Callable, Coroutine, Generator
from itertools import count
from random import Random
from typing import Any

Callback = Callable[[], object]


class SimTimer:
    __slots__ = ("callback", "is_production")

    def __init__(self, callback: Callback, is_production: bool) -> None:
        self.callback: Callback | None = callback
        self.is_production = is_production

    def cancel(self) -> None:
        self.callback = None


class SimClock:
    """Implements `Clock`. The world itself uses `after`; only production code uses `call_at`."""

    def __init__(self) -> None:
        self._now_ns = 0
        self._heap: list[tuple[int, int, SimTimer]] = []
        self._order = count()
        self.events = 0
        self.on_timer: Callable[[Callback], None] = lambda callback: None
        """Told of every timer of production code that goes off."""

    def now_ns(self) -> int:
        return self._now_ns

    def call_at(self, when_ns: int, callback: Callback) -> SimTimer:
        return self._push(max(when_ns, self._now_ns), SimTimer(lambda: self._fire(callback), is_production=True))

    def after(self, delay_ns: int, callback: Callback) -> SimTimer:
        return self._push(self._now_ns + delay_ns, SimTimer(callback, is_production=False))

    def _push(self, when_ns: int, timer: SimTimer) -> SimTimer:
        heapq.heappush(self._heap, (when_ns, next(self._order), timer))
        return timer

    def run(self, until_ns: int | None = None, events_max: int = 1 << 60) -> bool:
        """Until nothing is left to happen, or `until_ns`. False when `events_max` was not enough."""
        heap = self._heap
        while heap:
            when_ns, _, timer = heap[0]
            if until_ns is not None and when_ns > until_ns:
                break
            heapq.heappop(heap)
            callback = timer.callback
            if callback is None:
                continue
            self._now_ns = when_ns
            self.events += 1
            if self.events > events_max:
                return False
            callback()
        if until_ns is not None:
            self._now_ns = max(self._now_ns, until_ns)
        return True

    def quiet(self) -> bool:
        """Nothing moves: only timers of production code are left."""
        return all(timer.is_production or timer.callback is None for _, _, timer in self._heap)

    def _fire(self, callback: Callback) -> None:
        self.on_timer(callback)
        callback()


class SimFuture:
    """The part of a future that the head and `LiveRequest` need."""

    def __init__(self) -> None:
        self._value: Any = None
        self._done = False
        self.resume: Callback = lambda: None

    def done(self) -> bool:
        return self._done

    def set_result(self, value: Any) -> None:
        self._value, self._done = value, True
        self.resume()

    def result(self) -> Any:
        return self._value

    def __await__(self) -> Generator[SimFuture, None, Any]:
        if not self._done:
            yield self
        return self._value


class SimLoop:
    """The part of an event loop that the head uses. Readers are links; a link is its own descriptor.

    A turn takes everything that is readable by then, in any order; what is asked for during a turn comes in the next.
    """

    def __init__(self, clock: SimClock, turn_ns: Callable[[], int], random: Random) -> None:
        self._clock = clock
        self._turn_ns = turn_ns
        self._random = random
        self._readers: dict[Any, Callback] = {}
        self._soon: list[Callback] = []
        self._readable: dict[Any, Callback] = {}
        self._armed = False

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        self._soon.append((lambda: callback(*args)) if args else callback)
        self._arm()

    def readable(self, source: Any, callback: Callback) -> None:
        """Something arrived at `source`; once a turn."""
        self._readable[source] = callback
        self._arm()

    def create_future(self) -> SimFuture:
        return SimFuture()

    def add_reader(self, fd: Any, callback: Callback) -> None:
        self._readers[fd] = callback
        fd.watch(lambda: self.readable(fd, lambda: self._read(fd)))

    def remove_reader(self, fd: Any) -> None:
        self._readers.pop(fd, None)

    def _read(self, fd: Any) -> None:
        callback = self._readers.get(fd)
        if callback is not None:
            callback()

    def _arm(self) -> None:
        if not self._armed:
            self._armed = True
            self._clock.after(self._turn_ns(), self._turn)

    def _turn(self) -> None:
        self._armed = False
        soon, self._soon = self._soon, []
        readable, self._readable = list(self._readable.values()), {}
        self._random.shuffle(readable)
        for callback in (*soon, *readable):
            callback()

    def drive(self, coroutine: Coroutine[Any, Any, Any], done: Callable[[Any], None]) -> None:
        """Run a coroutine of production code to its next wait, and on from there when what it waits for is there."""
        if inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED:
            return  # the client left while it waited
        before = asyncio._get_running_loop()  # what every loop does around its callbacks
        asyncio._set_running_loop(self)  # type: ignore[arg-type]
        try:
            future: SimFuture = coroutine.send(None)
        except StopIteration as stop:
            done(stop.value)
            return
        finally:
            asyncio._set_running_loop(before)
        future.resume = lambda: self.call_soon(lambda: self.drive(coroutine, done))
