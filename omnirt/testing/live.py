"""Real heads for tests and benches: real processes, rings and time, without HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import numpy as np
import uvloop

from omnirt.loader import resolve
from omnirt.pipeline.deploy import load_plan
from omnirt.session.service import Done, Failed, Live, Output, Submit
from omnirt.wire.payload import Payload, Pcm, Text
from omnirt.wire.plan import Plan

T = TypeVar("T")
READY_S = 60.0


def in_a_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the loop the head uses in production."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


@asynccontextmanager
async def running(
    pipeline: str | Plan, overlays: Sequence[str] = (), sets: Sequence[str] = (), *, wait: bool = True
) -> AsyncGenerator[Any]:
    """A head of its own for a pipeline, ready unless `wait` is off; everything it started is gone afterwards."""
    plan = pipeline if isinstance(pipeline, Plan) else load_plan(pipeline, overlays, sets)
    head = resolve("omnirt.actors.head:Head")(plan, asyncio.get_running_loop())
    ready = asyncio.Event()
    head.on_ready(ready.set)
    try:
        head.start()
        if wait:
            up = asyncio.ensure_future(ready.wait())
            await asyncio.wait((up, head.finished), timeout=READY_S, return_when=asyncio.FIRST_COMPLETED)
            up.cancel()
            assert ready.is_set(), f"not ready: {head.state().stages}"
        yield head
    finally:
        head.close()


def text_request(text: str, outputs: Sequence[str] = ("text",), **values: Any) -> Submit:
    return Submit((("text", Text(text)),), tuple(outputs), **values)


class Answer:
    """Everything a request gave."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.pcm: list[np.ndarray] = []
        self.end: Done | Failed | None = None

    @property
    def text(self) -> str:
        return "".join(self.texts)

    @property
    def samples(self) -> np.ndarray:
        return np.concatenate(self.pcm) if self.pcm else np.zeros(0, np.int16)

    @property
    def code(self) -> str:
        """`done`, or the code of the failure."""
        return self.end.failure.code if isinstance(self.end, Failed) else "done"

    def add(self, payload: Payload) -> None:
        if isinstance(payload, Text):
            self.texts.append(payload.text)
        elif isinstance(payload, Pcm):
            self.pcm.append(payload.samples.copy())


async def read_all(live: Live, timeout_s: float = 60.0) -> Answer:
    """Read a request to its end."""
    answer = Answer()
    async with asyncio.timeout(timeout_s), live:
        while True:
            event = await live.next()
            if not isinstance(event, Output):
                answer.end = event
                return answer
            answer.add(event.payload)


async def ask(head: Any, submit: Submit, timeout_s: float = 60.0) -> Answer:
    return await read_all(head.submit(submit), timeout_s)
