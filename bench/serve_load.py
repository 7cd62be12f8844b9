"""The two ways to load a server: a fixed number of askers, or requests that come whatever the server does."""

from __future__ import annotations

import asyncio
import random
import resource
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from serve_ask import Ask
from serve_client import Client
from serve_read import Record

IN_FLIGHT_MAX = 1000
"""Requests of an open loop beyond these are errors of the client's, and counted as such."""


class Extent(NamedTuple):
    """How long to load: so many requests, or so many seconds if that is not 0."""

    requests: int
    seconds: float = 0.0

    def numbers(self) -> Iterator[int]:
        end = time.monotonic() + self.seconds
        number = 0
        while (time.monotonic() < end) if self.seconds else number < self.requests:
            yield number
            number += 1


async def closed(client: Client, make: Callable[[int], Ask], concurrency: int, extent: Extent) -> list[Record]:
    """Each asker sends its next request when its last one is answered."""
    records: list[Record] = []
    numbers = extent.numbers()

    async def asker() -> None:
        for number in numbers:
            record = await client.ask(make(number))
            records.append(record)

    await asyncio.gather(*(asker() for _ in range(concurrency)))
    return records


async def opened(client: Client, make: Callable[[int], Ask], rate: float, seed: int, extent: Extent) -> list[Record]:
    """A Poisson stream: independent gaps of 1 / rate on average, the same ones for the same seed."""
    gaps = random.Random(seed)
    records: list[Record] = []
    under_way: set[asyncio.Task[Record]] = set()
    due_ns = time.monotonic_ns()
    end_ns = due_ns + int(extent.seconds * 1e9)
    number = 0
    while due_ns < end_ns if extent.seconds else number < extent.requests:
        await asyncio.sleep((due_ns - time.monotonic_ns()) / 1e9)
        if len(under_way) >= IN_FLIGHT_MAX:
            records.append(Record(due_ns, time.monotonic_ns(), "client_full"))
        else:
            task = asyncio.ensure_future(client.ask(make(number), due_ns))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
            task.add_done_callback(lambda done: records.append(done.result()))
        number += 1
        due_ns += int(gaps.expovariate(rate) * 1e9)
    if under_way:
        await asyncio.wait(under_way)
    await asyncio.sleep(0)  # the callbacks of the last
    return records


class Cost:
    """Processor time of this process, as a share of one core."""

    def __init__(self) -> None:
        self._began, self._used = time.monotonic(), _used_s()

    def share(self) -> float:
        return (_used_s() - self._used) / (time.monotonic() - self._began)


def _used_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
