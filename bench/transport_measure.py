"""Two processes, one clock: the machinery every transport measurement here is made of.

A producer (this process) and a consumer (a forked child) run the same list of phases:

    rtt    ping-pong without pause
    one    one way, paced: the consumer acknowledges in a shared word that the producer watches, then the producer
           waits 100 us, so a blocking consumer has slept that long and no longer, as in the wake ceilings. From
           before the producer's `send` to a readable array in the consumer's hands.
    rate   pipelined, with the transport's own back-pressure. No warm-up: a transport that faults its pages in as it
           goes pays for that here, as it does in service.
"""

from __future__ import annotations

import asyncio
import mmap
import multiprocessing
import os
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np

now_ns = time.perf_counter_ns  # CLOCK_MONOTONIC: comparable between the processes of one host
FORK = multiprocessing.get_context("fork")
GAP_US = 100
KB, MB = 1 << 10, 1 << 20

ROUND_TRIPS = [(64, 1500)]
ONE_WAY = [(64, 1000), (4 * KB, 600), (64 * KB, 400), (MB, 150), (16 * MB, 24)]
RATES = [(64, 20000), (KB, 20000), (4 * KB, 6000), (64 * KB, 3000), (MB, 400), (16 * MB, 40)]


class Peer:
    """A transport, seen from one process. Made before the fork, opened on both sides (0 produces, 1 consumes)."""

    modes = ("block", "asyncio", "uvloop")

    def open(self, side: int) -> None: ...
    def send(self, array: np.ndarray) -> None:
        raise NotImplementedError

    def receive(self) -> np.ndarray:
        raise NotImplementedError

    def release(self) -> None: ...
    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        raise NotImplementedError

    async def areceive(self) -> np.ndarray:
        raise NotImplementedError

    def close(self) -> None: ...


def percentiles_us(samples_ns: list[int]) -> tuple[float, float]:
    """p50 and p99, the first tenth left out as warm-up."""
    ordered = np.sort(np.asarray(samples_ns[len(samples_ns) // 10 :], np.float64)) / 1e3
    return float(ordered[len(ordered) // 2]), float(ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))])


def spin_us(duration_us: float) -> None:
    end = now_ns() + int(duration_us * 1000)
    while now_ns() < end:
        pass


def pair(producer: Callable[[Any], Any], consumer: Callable[[Any], None]) -> Any:
    """Run `consumer(connection)` in a forked child and `producer(connection)` here."""
    ours, theirs = FORK.Pipe()
    child = FORK.Process(target=_run_child, args=(consumer, theirs), daemon=True)
    child.start()
    theirs.close()  # so that a child that dies shows as EOFError, not as a hang
    try:
        return producer(ours)
    finally:
        child.join(20)
        if child.is_alive():
            child.terminate()
            child.join()


def _run_child(consumer: Callable[[Any], None], connection: Any) -> None:
    consumer(connection)
    os._exit(0)  # destructors of some peers hang or unlink what the other side still uses


def new_loop(mode: str) -> asyncio.AbstractEventLoop:
    if mode == "uvloop":
        import uvloop

        return uvloop.new_event_loop()
    return asyncio.new_event_loop()


class Faults:
    """Minor page faults of this process while payloads of 64 KB and more are pipelined.

    Not with small records: those faults are the bench's own, of pages copied after the fork and of its queue, which
    swings by megabytes (tests/omnirt/connectors/test_ring.py counts them without either).
    """

    def __init__(self) -> None:
        self.faults = self.records = self.before = 0

    def begin(self) -> None:
        self.before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt

    def end(self, kind: str, size: int, count: int) -> None:
        if kind == "rate" and size >= 64 * KB:
            self.faults += resource.getrusage(resource.RUSAGE_SELF).ru_minflt - self.before
            self.records += count

    def per_record(self) -> float:
        return self.faults / max(1, self.records)


def _phases(scale: float) -> list[tuple[str, int, int]]:
    every = [("rtt", ROUND_TRIPS), ("one", ONE_WAY), ("rate", RATES)]
    return [(kind, size, max(8, int(count * scale))) for kind, sizes in every for size, count in sizes]


def measure(peer: Peer, mode: str, scale: float) -> dict[str, list[float]]:
    """`kind size` -> p50 and p99 in us (rtt, one) or records per second and bytes per ns (rate)."""
    phases = _phases(scale)
    taken = memoryview(mmap.mmap(-1, 4096)).cast("Q")
    return pair(
        lambda link: _produce(link, peer, phases, taken),
        lambda link: _consume(link, _Consumer(peer, taken), mode, phases),
    )


def _produce(link: Any, peer: Peer, phases: list[tuple[str, int, int]], taken: memoryview) -> dict[str, list[float]]:
    peer.open(0)
    assert link.poll(60), "the consumer did not start"
    link.recv()
    rows: dict[str, list[float]] = {}
    counter = Faults()
    for kind, size, count in phases:
        source = np.random.default_rng(size).integers(0, 255, size, np.uint8)
        stamp = source[:8].view(np.uint64)
        if kind == "rtt":
            rows[f"rtt {size}"] = list(percentiles_us([_round_trip(peer, source) for _ in range(count)]))
        elif kind == "one":
            for number in range(taken[0] + 1, taken[0] + count + 1):
                spin_us(GAP_US)
                stamp[0] = now_ns()
                peer.send(source)
                deadline = now_ns() + 10_000_000_000
                while taken[0] != number:
                    assert now_ns() < deadline, "a record was lost"
        else:
            counter.begin()
            began = now_ns()
            for _ in range(count):
                peer.send(source)
            ended = int(peer.receive()[:8].view(np.uint64)[0])
            peer.release()
            counter.end(kind, size, count)
            rows[f"rate {size}"] = [count / (ended - began) * 1e9, count * size / (ended - began)]
    assert link.poll(60), "the consumer did not finish"
    one_way, consumer_faults = link.recv()
    for size, samples in one_way.items():
        rows[f"one {size}"] = list(percentiles_us(samples))
    rows["faults"] = [max(counter.per_record(), consumer_faults), 0.0]
    return rows


def _round_trip(peer: Peer, source: np.ndarray) -> int:
    began = now_ns()
    peer.send(source)
    peer.receive()
    peer.release()
    return now_ns() - began


class _Consumer:
    """What the consumer does with each array, whether it waits blocking or in a coroutine."""

    def __init__(self, peer: Peer, taken: memoryview) -> None:
        self.peer = peer
        self.taken = taken
        self.one_way: dict[int, list[int]] = {}
        self.acknowledgement = np.zeros(64, np.uint8)
        self.stamp = self.acknowledgement[:8].view(np.uint64)
        self.faults = Faults()

    def take(self, kind: str, size: int, array: np.ndarray) -> None:
        if kind == "rtt":
            self.peer.send(array)
            self.peer.release()
            return
        if kind == "one":
            elapsed = now_ns() - int(array[:8].view(np.uint64)[0])
            self.one_way.setdefault(size, []).append(elapsed)
        assert array.nbytes == size
        array[-1]
        del array
        self.peer.release()
        if kind == "one":
            self.taken[0] += 1

    def finish(self, kind: str, size: int, count: int) -> None:
        self.faults.end(kind, size, count)
        if kind == "rate":
            self.stamp[0] = now_ns()
            self.peer.send(self.acknowledgement)


def _consume(link: Any, consumer: _Consumer, mode: str, phases: list[tuple[str, int, int]]) -> None:
    peer = consumer.peer
    peer.open(1)
    if mode == "block":
        link.send("ready")
        for kind, size, count in phases:
            consumer.faults.begin()
            for _ in range(count):
                consumer.take(kind, size, peer.receive())
            consumer.finish(kind, size, count)
    else:
        loop = new_loop(mode)
        loop.run_until_complete(_consume_async(link, consumer, loop, phases))
    link.send((consumer.one_way, consumer.faults.per_record()))
    time.sleep(0.2)
    peer.close()


async def _consume_async(
    link: Any, consumer: _Consumer, loop: asyncio.AbstractEventLoop, phases: list[tuple[str, int, int]]
) -> None:
    peer = consumer.peer
    peer.watch(loop)
    link.send("ready")
    for kind, size, count in phases:
        consumer.faults.begin()
        for _ in range(count):
            consumer.take(kind, size, await peer.areceive())
        consumer.finish(kind, size, count)
