"""The goals of the transport, each a ratio between rows of one run, because a busy neighbour changes the absolutes."""

from __future__ import annotations

from typing import NamedTuple

from transport_measure import KB, MB

Rows = dict[tuple[str, str], list[float]]
"""(job, row) -> medians; a job is `peer/mode` or the name of a ceiling."""


class Goal(NamedTuple):
    what: str
    shown: str
    measured: float | None
    bound: float
    at_least: bool

    @property
    def verdict(self) -> str:
        if self.measured is None:
            return "not measured"
        return "pass" if (self.measured >= self.bound if self.at_least else self.measured <= self.bound) else "MISS"


class _Table:
    def __init__(self, rows: Rows) -> None:
        self.rows = rows

    def at(self, job: str, row: str, column: int = 0) -> float | None:
        values = self.rows.get((job, row))
        return None if values is None else values[column]

    def ratio(self, what: str, above: float | None, below: float | None, bound: float, *, at_least: bool) -> Goal:
        if above is None or below is None:
            return Goal(what, "", None, bound, at_least)
        return Goal(what, f"{above:.4g} / {below:.4g}", above / below, bound, at_least)

    def value(self, what: str, measured: float | None, bound: float, *, at_least: bool) -> Goal:
        return Goal(what, "" if measured is None else f"{measured:.4g}", measured, bound, at_least)


def goals(rows: Rows) -> list[Goal]:
    table = _Table(rows)
    return _latency(table) + _small(table) + _bandwidth(table) + _rest(table)


def _latency(table: _Table) -> list[Goal]:
    found: list[Goal] = []
    for loop in ("asyncio", "uvloop"):
        raw = table.at(f"wake {loop}", f"wake {loop}")
        for size, name in ((64, "64 B"), (4 * KB, "4 KB")):
            ours = table.at(f"omnirt/{loop}", f"one {size}")
            found.append(
                table.ratio(f"parked {loop} consumer, {name}: p50 / raw eventfd await", ours, raw, 1.6, at_least=False)
            )
    for loop in ("asyncio", "uvloop"):
        adaptive, parked = table.at(f"omnirt adaptive/{loop}", "rtt 64"), table.at(f"omnirt/{loop}", "rtt 64")
        found.append(
            table.ratio(
                f"adaptive polling, {loop}: RTT / parked RTT (bench only)", adaptive, parked, 0.12, at_least=False
            )
        )
    spinning, raw = table.at("omnirt spinning/block", "one 64"), table.at("wake spin", "wake spin")
    found.append(table.ratio("spinning consumer, 64 B: p50 / raw spin", spinning, raw, 10, at_least=False))
    return found


def _small(table: _Table) -> list[Goal]:
    block, loop = table.at("omnirt/block", "rate 64"), table.at("omnirt/asyncio", "rate 64")
    peers = (
        ("64 B records/s, blocking / pyzmq blocking", block, "pyzmq ipc/block", 0.9),
        ("64 B records/s, asyncio / zmq.asyncio", loop, "pyzmq ipc/asyncio", 5),
        ("64 B records/s, blocking / iceoryx2", block, "iceoryx2 event/block", 2),
    )
    found = [
        table.ratio(what, ours, table.at(peer, "rate 64"), bound, at_least=True) for what, ours, peer, bound in peers
    ]
    batch = table.at("batch", "batch")
    found.append(table.value("64 B records, native batches: M/s", batch and batch / 1e6, 5, at_least=True))
    return found


def _bandwidth(table: _Table) -> list[Goal]:
    def ours(size: int, mode: str = "block") -> float | None:
        return table.at(f"omnirt/{mode}", f"rate {size}", 1)

    def against(what: str, size: int, peer: str, bound: float) -> Goal:
        return table.ratio(
            f"{what} / {peer}", ours(size), table.at(f"{peer}/block", f"rate {size}", 1), bound, at_least=True
        )

    def copying(what: str, size: int, column: int, bound: float) -> Goal:
        name = ("memcpy same place", "memcpy rotating")[column]
        ceiling = table.at("memcpy", f"memcpy {size}", column)
        return table.ratio(f"{what} / {name}", ours(size), ceiling, bound, at_least=True)

    small, medium, large, huge = 4 * KB, 64 * KB, MB, 16 * MB
    lock_step = table.at("omnirt/asyncio", f"one {large}")
    iceoryx = table.at("iceoryx2 event/asyncio", f"one {large}")
    lock_step_huge = table.at("omnirt/asyncio", f"one {huge}")
    return [
        against("4 KB GB/s", small, "mp.Pipe", 2),
        copying("64 KB GB/s", medium, 0, 0.25),
        copying("1 MB GB/s", large, 0, 0.5),
        against("1 MB GB/s", large, "iceoryx2 event", 1.0),
        against("1 MB GB/s", large, "vLLM MessageQueue", 1.5),
        against("1 MB GB/s", large, "segment per payload", 20),
        table.ratio("1 MB one way into asyncio / iceoryx2", lock_step, iceoryx, 0.8, at_least=False),
        copying("16 MB GB/s", huge, 1, 0.9),
        against("16 MB GB/s", huge, "iceoryx2 event", 1.2),
        against("16 MB GB/s", huge, "segment per payload", 15),
        table.value("16 MB one way into asyncio: ms", lock_step_huge and lock_step_huge / 1e3, 1.6, at_least=False),
    ]


def _rest(table: _Table) -> list[Goal]:
    down = table.at("down", "down")
    jobs = [job for job in ("omnirt/block", "omnirt/asyncio", "omnirt/uvloop") if (job, "faults") in table.rows]
    worst = max((table.rows[job, "faults"][0] for job in jobs), default=None)
    return [
        table.value("minor page faults per record, steady state", worst, 0.01, at_least=False),
        table.value("SIGKILL -> DOWN in the loop (pidfd): ms", down and down / 1e3, 0.5, at_least=False),
    ]
