"""A `Service` without a runtime: tests of the gateway script what each request does.

A script maps a `Submit` to steps; the default speaks a tone whose length follows the text, whose pitch follows text,
voice and seed, and whose speed follows `speed`. Admission, the queue, cancel and the counters behave as a head's do.
Everything runs on one loop; only `state_name` may be set from another thread.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from omnirt.errors import Cancelled, Failure, NotReady, Overloaded
from omnirt.ids import CLIENT
from omnirt.session.service import Done, Event, Failed, Output, ServiceState, StageState, Submit
from omnirt.testing.scripted_steps import (
    RATE,
    Fail,
    Hold,
    Report,
    Say,
    SayText,
    SayTranscript,
    Script,
    Step,
    Then,
    Wait,
)
from omnirt.wire.payload import Payload, Pcm, Text
from omnirt.wire.plan import EdgePlan, LimitsPlan, Plan, StagePlan

SECONDS_PER_CHARACTER = 0.05
CHUNK_S = 0.05


def tone(seconds: float, rate: int = RATE, hertz: float = 440.0) -> NDArray[np.int16]:
    at = np.arange(round(seconds * rate)) / rate
    return (12_000 * np.sin(2 * np.pi * hertz * at)).astype(np.int16)


def chunks_of(samples: NDArray[Any], rate: int = RATE, chunk_s: float = CHUNK_S) -> list[Step]:
    size = max(1, round(rate * chunk_s))
    return [Say(samples[start : start + size], rate) for start in range(0, len(samples), size)]


def speak(submit: Submit) -> Iterable[Step]:
    """The default script."""
    text = str(getattr(submit.inputs[0][1], "text", ""))
    return [Then(lambda whole: _spoken(submit, whole))] if submit.input_open else _spoken(submit, text)


def _spoken(submit: Submit, text: str) -> list[Step]:
    seed = submit.seed if submit.seed is not None else 0
    hertz = 200 + zlib.crc32(f"{text}/{submit.params.get('voice')}/{seed}".encode()) % 400
    seconds = max(0.1, len(text) * SECONDS_PER_CHARACTER) / float(submit.params.get("speed", 1.0))
    return chunks_of(tone(seconds, hertz=hertz))


def speech_plan(name: str = "speech", **limits: Any) -> Plan:
    stages = (StagePlan(name="text", actor="none:Text", group="main"),)
    stages += (StagePlan(name="voice", actor="none:Voice", group="main", final="audio"),)
    wires = ((CLIENT, "text", "text", "text"), ("text", "text", "voice", "text"), ("voice", "audio", CLIENT, "audio"))
    return Plan(
        name=name,
        inputs=("text",),
        outputs=("audio",),
        stages=stages,
        edges=tuple(EdgePlan(index, *wire) for index, wire in enumerate(wires)),
        nodes=(),
        links=(),
        aliases=("tts-1", "org/voice"),
        limits=LimitsPlan(**limits),
    )


def speech_facts() -> dict[str, dict[str, Any]]:
    voice: dict[str, Any] = {"sample_rate": RATE, "voices": ["heart", {"id": "deep", "name": "Deep"}]}
    return {"text": {}, "voice": voice | {"default_voice": "heart", "parameters": ["speed"]}}


class ScriptedService:
    def __init__(
        self,
        plan: Plan | None = None,
        facts: dict[str, dict[str, Any]] | None = None,
        script: Script = speak,
        together: bool = False,
    ) -> None:
        """`together`: outputs with nothing to wait for between them are ready at the same time (`Live.has_output`)."""
        self.plan = plan or speech_plan()
        self.together = together
        self.script = script
        self.state_name = "ready"
        self.stage_states: dict[str, str] = {}
        self.submitted: list[Submit] = []
        self.extended: list[tuple[str, str, Payload]] = []
        """(public id, modality, payload) of every further input."""
        self.steps = 0
        """Chunks made, over all requests."""
        self.cancelled = 0
        self._facts = speech_facts() if facts is None else facts
        self._running: set[ScriptedLive] = set()
        self._queue: deque[ScriptedLive] = deque()
        self._finished: deque[str] = deque(maxlen=1024)
        self._released = asyncio.Event()

    def submit(self, request: Submit) -> ScriptedLive:
        if self.state_name == "loading":
            raise NotReady("loading", reason="model_loading")
        if self.state_name == "draining":
            raise NotReady("draining", reason="shutting_down")
        if self.state_name == "unavailable":
            raise NotReady("stage voice has no live replica", reason="engine_dead", stage="voice")
        limits = self.plan.limits
        if len(self._running) >= limits.requests_max and len(self._queue) >= limits.queue_max:
            raise Overloaded("too many requests", retry_after_s=0.2)
        live = ScriptedLive(self, request)
        self.submitted.append(request)
        self._queue.append(live)
        self.advance()
        return live

    def advance(self) -> None:
        while self._queue and len(self._running) < self.plan.limits.requests_max:
            live = self._queue.popleft()
            self._running.add(live)
            live.begin()

    def end(self, live: ScriptedLive) -> None:
        if live in self._running:
            self._running.remove(live)
        elif live in self._queue:
            self._queue.remove(live)
        self._finished.append(live.public_id)
        self.advance()

    def release(self) -> None:
        """Let every request that holds go on, now and later."""
        self._released.set()

    async def released(self) -> None:
        await self._released.wait()

    def state(self) -> ServiceState:
        stages = tuple(
            StageState(stage.name, state, 1 if state == "ready" else 0, 1)
            for stage in self.plan.stages
            for state in (self.stage_states.get(stage.name, "loading" if self.state_name == "loading" else "ready"),)
        )
        running, waiting = len(self._running), len(self._queue)
        return ServiceState(self.state_name, stages, running, waiting, self.plan.limits.requests_max)

    def condition(self) -> str:
        return self.state_name

    def facts(self) -> dict[str, dict[str, Any]]:
        return {} if self.state_name == "loading" else self._facts

    def cancel(self, public_id: str) -> str:
        matching = [live for live in (*self._running, *self._queue) if live.public_id == public_id]
        for live in matching:
            live.cancel("asked for")
        if matching:
            return "cancelled"
        return "finished" if public_id in self._finished else "unknown"

    async def stats(self) -> dict[str, dict[str, float]]:
        return {"head": {"answered": 1.0}, "main.0": {"voice.steps": float(self.steps)}}


class ScriptedLive:
    def __init__(self, service: ScriptedService, request: Submit) -> None:
        self.public_id = request.public_id
        self._service = service
        self._steps: Iterator[Step] = iter(service.script(request))
        self._ahead: Step | None = None
        self._text = "".join(str(getattr(payload, "text", "")) for _, payload in request.inputs)
        self._complete = asyncio.Event()
        if not request.input_open:
            self._complete.set()
        self._reports: dict[str, dict[str, Any]] = {}
        self._begun = asyncio.Event()
        self._stopped = asyncio.Event()
        self._over = False

    def begin(self) -> None:
        self._begun.set()

    async def next(self) -> Event:
        assert not self._over, "nothing follows Done or Failed"
        if not self._begun.is_set():
            await self._until(self._begun.wait())
        while not self._stopped.is_set():
            step, self._ahead = self._ahead or next(self._steps, None), None
            if step is None:
                self._finish()
                return Done(self._reports)
            output = _output_of(step)
            if output is not None:
                self._service.steps += 1
                return output
            if isinstance(step, Fail):
                self._finish()
                return Failed(Failure(step.code, step.message, step.stage, step.param))
            if isinstance(step, Report):
                self._reports.setdefault(step.stage, {}).update(step.values)
            elif isinstance(step, Then):
                await self._until(self._complete.wait())
                if self._complete.is_set():
                    self._steps = chain(step.make(self._text), self._steps)
            elif isinstance(step, Wait):
                await self._until(asyncio.sleep(step.seconds))
            else:
                assert isinstance(step, Hold)
                await self._until(self._service.released())
        self._finish()
        return Failed(Failure(Cancelled.code, "the request was cancelled"))

    def has_output(self) -> bool:
        if not self._service.together or self._stopped.is_set():
            return False
        self._ahead = self._ahead or next(self._steps, None)
        return self._ahead is not None and _output_of(self._ahead) is not None

    def extend(self, modality: str, payload: Payload) -> None:
        if self._over or self._complete.is_set():
            raise Cancelled("the request takes no more input")
        self._service.extended.append((self.public_id, modality, payload))
        self._text += str(getattr(payload, "text", ""))

    def end_input(self) -> None:
        self._complete.set()

    def cancel(self, reason: str) -> None:
        self._service.cancelled += 1
        self._stopped.set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        if not self._over:
            self.cancel("left early")
            self._finish()

    def _finish(self) -> None:
        self._over = True
        self._service.end(self)

    async def _until(self, wait: Any) -> None:
        """Wait for `wait`, or for a cancel."""
        tasks = [asyncio.ensure_future(wait), asyncio.ensure_future(self._stopped.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()


def _output_of(step: Step) -> Output | None:
    if isinstance(step, Say):
        return Output("audio", Pcm(step.samples, step.rate))
    if isinstance(step, SayText):
        return Output("text", Text(step.text, step.logprobs))
    if isinstance(step, SayTranscript):
        return Output("transcript", step.transcript)
    return None
