"""What the machine itself can do: memcpy, waking the other process, a death noticed. No transport beats these rows."""

from __future__ import annotations

import asyncio
import mmap
import os
import subprocess
from typing import Any

import numpy as np
from transport_measure import GAP_US, KB, MB, new_loop, now_ns, pair, percentiles_us, spin_us

from omnirt.shm import atomics
from omnirt.shm.ring import Consumer, Producer
from omnirt.shm.segment import Segment

WAKES = ("spin", "eventfd", "asyncio", "uvloop")


def memcpy() -> dict[str, list[float]]:
    """GB/s into one place again and again, around a warm 64 MB, and into fresh pages."""
    rows: dict[str, list[float]] = {}
    segment = Segment.create(64 * MB)
    area = segment.array
    for size in (4 * KB, 64 * KB, MB, 16 * MB):
        source = np.random.default_rng(size).integers(0, 255, size, np.uint8)
        count = max(20, min(20_000, (1 << 30) // size))
        places = 64 * MB // size
        views = [area[index * size : (index + 1) * size] for index in range(places)]
        rows[f"memcpy {size}"] = [
            _copy_rate(source, views[:1], count),
            _copy_rate(source, views, count),
            _fresh_rate(source, max(4, min(200, 256 * MB // size))),
        ]
    return rows


def _copy_rate(source: np.ndarray, places: list[np.ndarray], count: int) -> float:
    np.copyto(places[0], source)
    began = now_ns()
    for index in range(count):
        np.copyto(places[index % len(places)], source)
    return source.nbytes * count / (now_ns() - began)


def _fresh_rate(source: np.ndarray, count: int) -> float:
    spent = 0
    for _ in range(count):
        began = now_ns()
        pages = mmap.mmap(-1, source.nbytes)
        np.copyto(np.frombuffer(pages, np.uint8), source)
        spent += now_ns() - began
    return source.nbytes * count / spent


_SENT, _TAKEN, _FLAG = 0, 16, 32  # words, on lines of their own


def wake(kind: str, count: int) -> dict[str, list[float]]:
    """One way, consumer asleep (or spinning): p50, p99 in us."""
    words = memoryview(mmap.mmap(-1, 4096)).cast("Q")
    bell = os.eventfd(0, 0 if kind == "eventfd" else os.EFD_NONBLOCK)

    def producer(link: Any) -> list[int]:
        link.recv()
        for number in range(1, count + 1):
            spin_us(GAP_US)
            words[_SENT] = now_ns()
            words[_FLAG] = number
            if kind != "spin":
                os.eventfd_write(bell, 1)
            deadline = now_ns() + 2_000_000_000
            while words[_TAKEN] != number:
                assert now_ns() < deadline, f"{kind} lost a wake"
        return link.recv()

    samples = pair(producer, lambda link: _be_woken(link, kind, words, bell, count))
    os.close(bell)
    return {f"wake {kind}": list(percentiles_us(samples))}


def _be_woken(link: Any, kind: str, words: memoryview, bell: int, count: int) -> None:
    samples: list[int] = []

    def woken() -> None:
        samples.append(now_ns() - words[_SENT])
        words[_TAKEN] = len(samples)

    if kind in ("asyncio", "uvloop"):
        loop = new_loop(kind)
        loop.run_until_complete(_await_wakes(link, loop, bell, count, woken))
    else:
        link.send("ready")
        for number in range(1, count + 1):
            if kind == "eventfd":
                os.eventfd_read(bell)
            while words[_FLAG] < number:
                pass
            woken()
    link.send(samples)


async def _await_wakes(link: Any, loop: asyncio.AbstractEventLoop, bell: int, count: int, woken: Any) -> None:
    """A callback resolves a future, a task wakes: what every receive in a coroutine is made of."""
    waiting: list[asyncio.Future[None]] = [loop.create_future()]

    def ring() -> None:
        os.eventfd_read(bell)
        if not waiting[0].done():
            waiting[0].set_result(None)

    loop.add_reader(bell, ring)
    link.send("ready")
    for _ in range(count):
        await waiting[0]
        waiting[0] = loop.create_future()
        woken()
    loop.remove_reader(bell)


def down(count: int) -> dict[str, list[float]]:
    """From SIGKILL to the callback in the supervisor's loop, through a pidfd: p50, p99 in us."""
    samples: list[int] = []

    async def one(loop: asyncio.AbstractEventLoop) -> None:
        child = subprocess.Popen(["sleep", "30"])  # noqa: ASYNC220 - nothing else runs in this loop
        watch = os.pidfd_open(child.pid)
        gone = loop.create_future()
        loop.add_reader(watch, lambda: gone.done() or gone.set_result(now_ns()))
        await asyncio.sleep(0.02)
        began = now_ns()
        child.kill()
        samples.append(await gone - began)
        loop.remove_reader(watch)
        os.close(watch)
        child.wait()

    async def every() -> None:
        for _ in range(count):
            await one(asyncio.get_running_loop())

    new_loop("uvloop").run_until_complete(every())
    return {"down": list(percentiles_us(samples))}


def batch(records: int) -> dict[str, list[float]]:
    """Ours, the native batch calls: records of 64 bytes per second between two spinning processes."""
    segment = Segment.create(MB + 4096)
    memory = segment.array
    rows = np.zeros((256, 64), np.uint8)

    def producer(link: Any) -> float:
        end = Producer(memory[: atomics.CONTROL_BYTES], memory[4096:], 1)
        link.recv()
        began, left = now_ns(), records
        while left:
            left -= end.push_many(rows[: min(left, 256)])
        ended, total = link.recv()
        assert total == records == int(end.used_bytes() == 0) * records
        return records / (ended - began) * 1e9

    def consumer(link: Any) -> None:
        end = Consumer(memory[: atomics.CONTROL_BYTES], memory[4096:], 1)
        into = np.zeros((256, 64), np.uint8)
        link.send("ready")
        total = 0
        while total < records:
            total += end.pop_many(into)
        link.send((now_ns(), total))

    rate = pair(producer, consumer)
    segment.close()
    return {"batch": [rate, 0.0]}


def run(name: str, scale: float) -> dict[str, list[float]]:
    if name == "memcpy":
        return memcpy()
    if name == "down":
        return down(max(10, int(50 * scale)))
    if name == "batch":
        return batch(int(5_000_000 * scale))
    return wake(name.removeprefix("wake "), max(200, int(1200 * scale)))
