"""The only module that reads time. Actors get a `Clock` through their context; simulations give them another."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

NS = 1_000_000_000


def monotonic_ns() -> int:
    return time.monotonic_ns()


def unix_s() -> int:
    """Seconds since 1970, for the fields of protocols that want them."""
    return int(time.time())


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    def now_ns(self) -> int: ...

    def call_at(self, when_ns: int, callback: Callable[[], object]) -> Timer:
        """Call once, at `when_ns` or as soon after as possible, on the caller's loop."""
        ...


class LoopClock:
    """The clock of an asyncio loop (whose own time is the monotonic clock)."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def now_ns(self) -> int:
        return time.monotonic_ns()

    def call_at(self, when_ns: int, callback: Callable[[], object]) -> Timer:
        return self._loop.call_later(max(0.0, (when_ns - time.monotonic_ns()) / NS), callback)
