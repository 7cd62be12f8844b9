"""Two test stages that do to themselves what a test tells them to, and whose answer depends on the request's seed.

    client --text--> Spring --crumbs--> Mill --audio--> client         crumbs are too large for a record: they use slots

The text is a list of orders, as in "chunks=40 hold=10 mill=kill at=3": how many chunks to make, how many steps to keep
silent before the first one, and what a stage does to itself before its `at`-th step of this request (`kill`, `stop`,
`raise`). Whatever happens to processes, a finished answer is `expected(seed, chunks)`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from random import Random
from typing import Any

import msgspec
import numpy as np

from omnirt.runtime.stage import Chunk, Context, Emission, EngineStage, Request, Stage
from omnirt.wire.payload import Payload, Pcm, Text

RATE = 24000
SAMPLES = 480
"""Of one chunk."""
CRUMB_WORDS = 1024
"""8 KB: more than fits into a record."""
_SLEEPER = "import os, select, signal, sys; {}; print(flush=True); select.select([], [], [])"


class FrailOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    load_s: float = 0.0
    """How long it takes to start."""
    step_ms: float = 0.0
    """How long a step takes, whatever is in it."""
    children: bool = False
    """Start processes of its own: one in its group, one in a session of its own, and one that is stopped."""


class Crumb(Payload, frozen=True):
    seq: int
    values: np.ndarray
    orders: str


def crumb(seed: int, seq: int) -> np.ndarray:
    return np.frombuffer(Random(f"{seed}/crumb/{seq}").randbytes(8 * CRUMB_WORDS), np.int64)


def ground(seed: int, values: np.ndarray) -> np.ndarray:
    """What the mill makes of a crumb: [SAMPLES] int16."""
    return (values[-SAMPLES:] ^ seed).astype(np.int16)


def expected(seed: int, chunks: int) -> np.ndarray:
    """The whole answer by plain arithmetic."""
    return np.concatenate([ground(seed, crumb(seed, seq)) for seq in range(chunks)])


def orders_of(text: str) -> dict[str, str]:
    return dict(word.split("=", 1) for word in text.split())


class _Frail(Stage):
    Options = FrailOptions
    name = ""

    def start(self, ctx: Context) -> None:
        ctx.report("half way")
        if self.options.children:
            self._children = [_child(""), _child("os.setsid()"), _child("", stopped=True)]
        time.sleep(self.options.load_s)  # noqa: TID251 - stands in for a long load

    def facts(self) -> dict[str, Any]:
        return {"sample_rate": RATE, "voices": ["frail"]}

    def work(self) -> None:
        if self.options.step_ms:
            time.sleep(self.options.step_ms / 1000)  # noqa: TID251 - stands in for a device at work

    def obey(self, orders: dict[str, str], step: int) -> None:
        """Do to this process what the request says."""
        order = orders.get(self.name)
        if order is None or step != int(orders.get("at", 0)):
            return
        if order == "raise":
            raise ValueError("the request asked for it")
        os.kill(os.getpid(), signal.SIGSTOP if order == "stop" else signal.SIGKILL)


class _Row:
    def __init__(self) -> None:
        self.text = ""
        self.orders: dict[str, str] = {}
        self.open = True
        self.steps = 0
        self.sent = 0


class Spring(_Frail, EngineStage):
    """Seeded crumbs, one for each request and step."""

    accepts = {"text": Text}
    emits = {"crumbs": Crumb}
    name = "spring"

    def admit(self, ctx: Context, chunk: Chunk) -> None:
        _row(chunk.request).text += chunk.payload.text

    def close(self, ctx: Context, request: Request) -> None:
        row = _row(request)
        row.open = False
        row.orders = orders_of(row.text)

    def step(self, ctx: Context, rows: list[Request]) -> list[Emission]:  # type: ignore[override]
        self.work()
        return [self._next(request) for request in rows if not _row(request).open]

    def _next(self, request: Request) -> Emission:
        row = _row(request)
        self.obey(row.orders, row.steps)
        row.steps += 1
        if row.steps <= int(row.orders.get("hold", 0)):
            return Emission(request, "crumbs", None)
        seq, row.sent = row.sent, row.sent + 1
        payload = Crumb(seq, crumb(request.seed, seq), row.text)
        return Emission(request, "crumbs", payload, end=row.sent >= int(row.orders.get("chunks", 1)))


class Mill(_Frail):
    """Crumbs to samples."""

    accepts = {"crumbs": Crumb}
    emits = {"audio": Pcm}
    name = "mill"

    def step(self, ctx: Context, chunks: list[Chunk]) -> list[Emission]:
        self.work()
        for chunk in chunks:
            self.obey(orders_of(chunk.payload.orders), chunk.payload.seq)
        return [chunk.reply("audio", Pcm(ground(chunk.request.seed, chunk.payload.values), RATE)) for chunk in chunks]


def _row(request: Request) -> _Row:
    if request.state is None:
        request.state = _Row()
    return request.state


def _child(first: str, *, stopped: bool = False) -> subprocess.Popen[bytes]:
    """A process that sleeps for ever, once it has said that it runs (and is stopped, if it should be)."""
    code = _SLEEPER.format(first or "pass")
    child = subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    assert child.stdout is not None
    child.stdout.readline()
    if stopped:
        child.send_signal(signal.SIGSTOP)
    return child
