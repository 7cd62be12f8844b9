"""The load of `bench/tts`: several client processes at once, so that the clients are not what is measured.

closed loop   C askers, dealt out over the processes; each sends its next request when its last one has ended
open loop     requests at Poisson times, whatever comes back; each counts from when it was due
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from tts_ask import Asking
from tts_asker import Job, Share, Stream

LEAD_NS = 30_000_000
"""From handing out the jobs to their common start."""


class Load(NamedTuple):
    """What became of every request. `shares`: processor time over time of each client process."""

    streams: list[Stream]
    shares: list[float]

    @property
    def seconds(self) -> float:
        """From the first request to the end of the last answer."""
        began = min(stream.began_ns for stream in self.streams)
        return max(1, max(stream.ended_ns for stream in self.streams) - began) / 1e9


class Askers:
    """`count` client processes. Use as a context."""

    def __init__(self, count: int) -> None:
        command = [sys.executable, str(Path(__file__).with_name("tts_asker.py"))]
        self._processes = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(count)
        ]

    def __enter__(self) -> Askers:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.terminate()
            process.wait(10)

    def closed(self, asking: Asking, concurrency: int, first: int, requests: int) -> Load:
        """Requests `first`, `first` + 1, ...; `requests` should be a multiple of `concurrency`."""
        return self._run(closed_jobs(asking, concurrency, range(first, first + requests), len(self._processes)))

    def opened(self, asking: Asking, first: int, due_ns: list[int]) -> Load:
        """Requests due so long after the start."""
        return self._run(opened_jobs(asking, first, due_ns, len(self._processes)))

    def _run(self, jobs: list[Job]) -> Load:
        start_ns = time.monotonic_ns() + LEAD_NS
        working = list(zip(self._processes, jobs, strict=False))
        for process, job in working:
            started = started_at(job, start_ns)
            assert process.stdin is not None
            process.stdin.write(msgspec.json.encode(started) + b"\n")
            process.stdin.flush()
        shares = [_answer(process) for process, _ in working]
        return Load([stream for share in shares for stream in share.streams], [share.used for share in shares])


def closed_jobs(asking: Asking, concurrency: int, numbers: range, processes: int) -> list[Job]:
    """The askers as evenly as they go over the processes, and to each process its askers' share of the requests."""
    jobs: list[Job] = []
    used = 0
    for process in range(min(processes, concurrency)):
        askers = len(range(process, concurrency, processes))
        upto = used + askers
        begin, end = len(numbers) * used // concurrency, len(numbers) * upto // concurrency
        jobs.append(Job(asking, 0, tuple(numbers[begin:end]), askers))
        used = upto
    return jobs


def opened_jobs(asking: Asking, first: int, due_ns: list[int], processes: int) -> list[Job]:
    """In turn over the processes."""
    dealt = ((range(start, len(due_ns), processes)) for start in range(min(processes, len(due_ns))))
    return [
        Job(asking, 0, tuple(first + place for place in places), 0, tuple(due_ns[place] for place in places))
        for places in dealt
    ]


def poisson_ns(rate: float, seconds: float, seed: int) -> list[int]:
    """Independent gaps of 1 / rate on average, the same ones for the same seed; the first request is due at once."""
    gaps = random.Random(seed)
    at_s, due = 0.0, list[int]()
    while at_s < seconds:
        due.append(int(at_s * 1e9))
        at_s += gaps.expovariate(rate)
    return due


def started_at(job: Job, start_ns: int) -> Job:
    due_ns = tuple(start_ns + offset for offset in job.due_ns)
    return msgspec.structs.replace(job, start_ns=start_ns, due_ns=due_ns)


_share: Any = msgspec.json.Decoder(Share)


def _answer(process: subprocess.Popen[bytes]) -> Share:
    """Every request has a limit of its own, so that an answer comes."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise SystemExit("a client process has ended; see above")
    return _share.decode(line)
