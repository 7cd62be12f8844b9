"""A share of the load of `bench/tts`, as a process of its own: jobs in, what became of each stream out; JSON lines.

    python bench/tts_asker.py

Times are of the machine's monotonic clock, which all processes share: a job says when it starts, and in an open loop
when each request is due.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time

import msgspec
import uvloop
from msgspec import Struct
from serve_client import Client
from serve_figures import played
from serve_load import Cost
from serve_read import Record
from tts_ask import Asking, asks

START_LIMIT_S = 30.0
AWAKE_NS = 2_000_000
"""Before a request is due."""


class Job(Struct, frozen=True):
    """`numbers`: of the requests. `askers`: so many at a time, each number once; 0: each when it is due (`due_ns`)."""

    asking: Asking
    start_ns: int
    numbers: tuple[int, ...]
    askers: int = 0
    due_ns: tuple[int, ...] = ()


class Stream(Struct, frozen=True, array_like=True):
    """What became of one request; times in ns, 0 for what did not happen."""

    number: int
    began_ns: int
    ended_ns: int
    code: str
    first_ns: int = 0
    last_ns: int = 0
    packets: int = 0
    first_samples: int = 0
    samples: int = 0
    rate: int = 24_000
    deficit_ns: int = 0
    """How much later than at its first packet a player would have had to start never to run dry."""
    underruns: int = 0


class Share(Struct, frozen=True):
    """`used`: processor time over time, of this process."""

    streams: tuple[Stream, ...]
    used: float


def stream_of(number: int, record: Record) -> Stream:
    if not record.sound:
        return Stream(number, record.began_ns, record.ended_ns, record.code or "silent")
    player = played(record)
    return Stream(
        number,
        record.began_ns,
        record.ended_ns,
        record.code,
        first_ns=record.sound[0][0],
        last_ns=record.sound[-1][0],
        packets=len(record.sound),
        first_samples=record.sound[0][1],
        samples=sum(samples for _, samples in record.sound),
        rate=record.rate,
        deficit_ns=player.dry_ns,
        underruns=player.underruns,
    )


async def _until(due_ns: int) -> None:
    """Timers of the loop are whole milliseconds: up to one of them would be counted as the server's."""
    await asyncio.sleep((due_ns - AWAKE_NS - time.monotonic_ns()) / 1e9)
    while time.monotonic_ns() < due_ns:  # noqa: ASYNC110
        await asyncio.sleep(0)


async def run(job: Job, client: Client) -> Share:
    make = asks(job.asking)
    streams: list[Stream] = []

    async def one(number: int, due_ns: int = 0) -> None:
        if due_ns:
            await _until(due_ns)
        streams.append(stream_of(number, await client.ask(make(number), due_ns)))

    async def asker(numbers: list[int]) -> None:
        while numbers:
            await one(numbers.pop())

    await asyncio.sleep((job.start_ns - time.monotonic_ns()) / 1e9)
    cost = Cost()
    if job.askers:
        left = list(reversed(job.numbers))
        await asyncio.gather(*(asker(left) for _ in range(job.askers)))
    else:
        await asyncio.gather(*map(one, job.numbers, job.due_ns))
    return Share(tuple(streams), cost.share())


async def main() -> None:
    loop = asyncio.get_running_loop()
    decoder, clients = msgspec.json.Decoder(Job), dict[str, Client]()
    gc.freeze()
    while line := await loop.run_in_executor(None, sys.stdin.buffer.readline):
        job = decoder.decode(line)
        url = job.asking.url
        if url not in clients:
            clients[url] = Client(url, job.asking.timeout_s)
        share = await run(job, clients[url])
        sys.stdout.buffer.write(msgspec.json.encode(share) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    uvloop.run(main())
