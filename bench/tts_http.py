"""The server's part of `bench/tts`: one server, and the levels of load it gets, one after the other."""

from __future__ import annotations

import json
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from serve_process import Server, server
from tts_ask import Asking
from tts_figures import figures, merged
from tts_load import Askers, Load, poisson_ns
from tts_machine import gpu_mib
from tts_unread import unread

REQUESTS_LEAST = 12
"""Of a repetition, however few askers there are."""


class Extent(NamedTuple):
    """`each`: requests of each asker in a repetition. The rest is of an open loop: so many seconds, longer (up to
    `seconds_max`) for so many requests."""

    repetitions: int = 3
    each: int = 4
    seconds: float = 10.0
    requests: int = 100
    seconds_max: float = 30.0

    def of_rate(self, rate: float) -> float:
        return max(self.seconds, min(self.requests / rate, self.seconds_max))


class Serving:
    """A server that runs, and clients for it. Requests are numbered through, so that none is asked twice."""

    def __init__(self, running: Server, askers: Askers, asking: Asking, extent: Extent, device: str) -> None:
        self.running, self.askers, self.asking, self.extent, self.device = running, askers, asking, extent, device
        self._next = 0

    def closed(self, concurrency: int, **change: Any) -> list[dict[str, Any]]:
        """Of each repetition its figures, after a round that is not counted. `change`: of what is asked."""
        asking = msgspec.structs.replace(self.asking, **change)
        each = max(self.extent.each, -(-REQUESTS_LEAST // concurrency))
        self.askers.closed(asking, concurrency, self._numbers(concurrency), concurrency)
        return [self._measured(asking, self._round(asking, concurrency, each)) for _ in range(self.extent.repetitions)]

    def opened(self, rate: float) -> dict[str, Any]:
        due_ns = poisson_ns(rate, self.extent.of_rate(rate), self.asking.seed)
        first = self._numbers(len(due_ns))
        figures_of_it = self._measured(self.asking, lambda: self.askers.opened(self.asking, first, due_ns))
        return {"name": f"{rate:g} a second", "rate": rate} | figures_of_it

    def unread(self, concurrency: int, frames: int) -> dict[str, Any]:
        """The same load alone and beside a listener that does not read, in turn."""
        alone, beside = list[dict[str, Any]](), list[dict[str, Any]]()
        for number in range(self.extent.repetitions):
            run = self._round(self.asking, concurrency, self.extent.each)
            if number % 2 == 0:
                alone.append(self._measured(self.asking, run))
            with unread(msgspec.structs.replace(self.asking, frames=frames)):
                beside.append(self._measured(self.asking, run))
            if number % 2:
                alone.append(self._measured(self.asking, run))
        rows = [
            {"name": f"C={concurrency}", **merged(alone)},
            {"name": f"C={concurrency}, one unread listener", **merged(beside)},
        ]
        cost = 1 - rows[1]["audio_s_per_s"] / max(rows[0]["audio_s_per_s"], 1e-9)
        return {"levels": rows, "cost": cost, "repetitions": {"alone": alone, "beside": beside}}

    def _round(self, asking: Asking, concurrency: int, each: int) -> Callable[[], Load]:
        requests = each * concurrency
        return lambda: self.askers.closed(asking, concurrency, self._numbers(requests), requests)

    def _numbers(self, count: int) -> int:
        first, self._next = self._next, self._next + count
        return first

    def _measured(self, asking: Asking, run: Callable[[], Load]) -> dict[str, Any]:
        before, began = self._used_s(), time.monotonic()
        load = run()
        seconds = time.monotonic() - began
        used = {f"{name}_share": (after - before[name]) / seconds for name, after in self._used_s().items()}
        return figures(load, asking.frames) | used | {"gpu_mib": gpu_mib(self.device)}

    def _used_s(self) -> dict[str, float]:
        try:
            return self.running.used_s()
        except OSError:  # no such files on this machine
            return {}


@contextmanager
def serving(pipeline: str, arguments: list[str]) -> Iterator[tuple[Server, float]]:
    """A server and how long it took from the command to being ready, in seconds."""
    began = time.monotonic()
    with server(pipeline, *arguments) as running:
        yield running, time.monotonic() - began


def closed_levels(serving: Serving, levels: list[int], say: Callable[[str], None]) -> dict[str, Any]:
    rows, repetitions = list[dict[str, Any]](), dict[str, Any]()
    for concurrency in levels:
        say(f"closed loop, C={concurrency}")
        repetitions[f"C={concurrency}"] = done = serving.closed(concurrency)
        rows.append({"name": f"C={concurrency}", "concurrency": concurrency} | merged(done))
    return {"levels": rows, "repetitions": repetitions}


def cold_reference(serving: Serving, say: Callable[[str], None]) -> dict[str, Any]:
    """One asker, a recording that was never heard before with each request."""
    say("one asker, a new recording each")
    done = serving.closed(1, fresh=True)
    return {"levels": [{"name": "C=1, new recordings"} | merged(done)], "repetitions": {"C=1": done}}


def offered(url: str) -> dict[str, Any]:
    """The first model of the server's list."""
    with urllib.request.urlopen(f"{url}/v1/models", timeout=30) as answer:
        models = json.load(answer)["data"]
    if not models:
        sys.exit(f"{url} serves no model")
    return models[0]


def read_ahead(folder: Path) -> float:
    """Every weight file into the page cache; GB read."""
    total = 0
    for file in sorted(folder.rglob("*.safetensors")):
        with file.open("rb") as source:
            while piece := source.read(1 << 24):
                total += len(piece)
    return total / 1e9
