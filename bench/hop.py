"""A chunk through three split stages with parked consumers, against the raw wakes it cannot do without.

Floor: one wake per process boundary (head -> first -> second -> third -> head: 4), each the time from an eventfd write
in one process to an awaiting uvloop coroutine in another, measured in the same run with the same pauses.

    python bench/hop.py [--chunks 400] [--gap-ms 2] [--rounds 3]
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import statistics
import time
from mmap import mmap
from typing import Any

import uvloop

from omnirt.session.service import Output
from omnirt.testing.live import in_a_loop, running, text_request
from omnirt.wire.payload import Text

WAKES = 4


def _wake_child(there: int, back: int, word: mmap, count: int, out: Any) -> None:
    """Wakes `count` times; notes how long after the write each wake came."""

    async def main() -> list[int]:
        loop = asyncio.get_running_loop()
        taken: list[int] = []
        waiting: list[asyncio.Future[None]] = []

        def readable() -> None:
            os.eventfd_read(there)
            waiting.pop().set_result(None)

        loop.add_reader(there, readable)
        for _ in range(count):
            waiting.append(loop.create_future())
            os.eventfd_write(back, 1)
            await waiting[0]
            taken.append(time.perf_counter_ns() - int.from_bytes(word[:8], "little"))
        return taken

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        out.send(runner.run(main()))


def raw_wake_us(count: int, gap_s: float) -> float:
    """Median of one parked wake into a uvloop coroutine of another process."""
    fork = multiprocessing.get_context("fork")
    there, back = os.eventfd(0, os.EFD_NONBLOCK), os.eventfd(0)
    word = mmap(-1, 4096)
    mine, theirs = fork.Pipe()
    child = fork.Process(target=_wake_child, args=(there, back, word, count, theirs))
    child.start()
    for _ in range(count):
        os.eventfd_read(back)
        time.sleep(gap_s)
        word[:8] = time.perf_counter_ns().to_bytes(8, "little")
        os.eventfd_write(there, 1)
    taken = mine.recv()
    child.join()
    return statistics.median(taken) / 1e3


async def chain_us(overlay: list[str], count: int, gap_s: float) -> list[float]:
    """The time of each of `count` chunks, head to head, through the relay pipeline."""
    taken: list[float] = []
    async with running("relay", overlay) as head:
        opening = text_request("warm", input_open=True, deadline_s=600)
        async with head.submit(opening) as live:
            assert isinstance(await live.next(), Output)
            for _ in range(count):
                reading = asyncio.ensure_future(live.next())
                await asyncio.sleep(gap_s)
                start = time.perf_counter_ns()
                live.extend("text", Text("a chunk of text"))
                assert isinstance(await reading, Output)
                taken.append((time.perf_counter_ns() - start) / 1e3)
    return taken


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--chunks", type=int, default=400)
    parser.add_argument("--gap-ms", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    gap_s = args.gap_ms / 1e3
    wakes: list[float] = []
    split: list[float] = []
    for _ in range(args.rounds):
        wakes.append(raw_wake_us(args.chunks, gap_s))
        split += in_a_loop(chain_us([], args.chunks, gap_s))
    wake = statistics.median(wakes)
    split.sort()
    p50, p99 = split[len(split) // 2], split[int(len(split) * 0.99)]
    floor = WAKES * wake
    print(f"{args.rounds} rounds of {args.chunks} chunks, {args.gap_ms} ms apart; times in us")
    print(f"{'':34}{'p50':>8}{'p99':>8}{'floor':>8}{'p50/floor':>11}{'goal':>7}")
    print(f"{'raw wake (eventfd -> uvloop await)':34}{wake:8.1f}")
    verdict = "met" if p50 <= 2 * floor else "MISS"
    row = f"{p50:8.1f}{p99:8.1f}{floor:8.1f}{p50 / floor:11.2f}"
    print(f"{'three split stages, one chunk':34}{row}{'<= 2':>7} {verdict}")


if __name__ == "__main__":
    main()
