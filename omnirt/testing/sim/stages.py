"""Simulated stages: they do what their script says, and look at everything they are given.

Every payload carries the request's tag and the epoch under which it was made, and each row of it repeats itself in a
checkable way, so a foreign, stale, or overwritten payload shows at the first stage that gets it.
"""

from __future__ import annotations

from collections import deque
from typing import Any, ClassVar

import numpy as np

from omnirt.errors import DeviceLost
from omnirt.runtime.stage import Chunk, Context, Emission, EngineStage, Request, Stage
from omnirt.testing.sim.scripts import (
    LOW,
    Script,
    guided,
    last_word,
    paired,
    rounds_of,
    spoken,
    spread,
    thinking_steps,
)
from omnirt.wire.payload import Actions, Frames, Payload

FROM_CLIENT = -1
"""The epoch in a client's payloads: it cannot know any."""
_TAG, _EPOCH, _VALUE = 0, 1, 2
_COLUMNS = np.arange(64, dtype=np.int64)

Item = Actions | Frames
"""What travels: [N, 2 + W] int64, per row the tag, the epoch and W columns of one value: v ^ 0, v ^ 1, ..."""


def item(kind: type[Payload], tag: int, epoch: int, values: list[int], width: int) -> Payload:
    rows = np.empty((len(values), _VALUE + width), np.int64)
    rows[:, _TAG] = tag
    rows[:, _EPOCH] = epoch
    rows[:, _VALUE:] = np.array(values, np.int64)[:, None] ^ _COLUMNS[:width]
    return kind(rows)  # type: ignore[call-arg]


def rows_of(payload: Any) -> np.ndarray:
    return payload.pixels if isinstance(payload, Frames) else payload.actions


def values_of(payload: Any) -> list[int]:
    return rows_of(payload)[:, _VALUE].tolist()


def marks_of(payload: Any) -> set[tuple[int, int]]:
    """(tag, epoch) of every row."""
    return {(tag, epoch) for tag, epoch in rows_of(payload)[:, :_VALUE].tolist()}


def is_whole(payload: Any) -> bool:
    rows = rows_of(payload)[:, _VALUE:]
    return bool((rows == rows[:, :1] ^ _COLUMNS[: rows.shape[1]]).all())


class Poison(ValueError):
    """What a poisonous request makes its stage raise."""


class Scripted:
    """What all simulated stages share. `bind` is called by the node before `start`."""

    script: ClassVar[Script]
    kind_said: ClassVar[type[Payload]]
    node: Any
    stage: str

    def bind(self, node: Any, stage: str) -> None:
        self.node = node
        self.stage = stage
        self.begun: set[int] = set()
        """Requests stepped or admitted and not yet forgotten."""

    def look(self, request: Request, payload: Payload | None) -> None:
        """Raise, die, or note what must not be. Called before anything is changed."""
        node, params = self.node, request.params
        observer = node.ground.observer
        fence = node.epochs[self.stage, request.id]
        self.begun.add(request.id)
        if observer.epochs[fence.slot] != fence.epoch:
            observer.wrong("stepped", f"{node.name} stepped request {request.id} behind its fence")
        if payload is not None:
            for tag, epoch in marks_of(payload):
                if tag != params["tag"]:
                    observer.wrong("foreign", f"{node.name} got a payload of another request for {request.id}")
                elif epoch not in (FROM_CLIENT, fence.epoch):
                    observer.wrong("mixed", f"{node.name} got a payload of epoch {epoch} in epoch {fence.epoch}")
            if not is_whole(payload):
                observer.wrong("overwritten", f"{node.name} read a payload that was overwritten")
        if params.get("poison") == self.stage:
            raise Poison("poison")
        if params.get("killer") == self.stage:
            node.ground.strike(node, params["tag"], params["lives"])
        if params.get("device") == self.stage and node.ground.may_strike(params["tag"], params["lives"]):
            raise DeviceLost("the device is gone")

    def say(self, request: Request, port: str, value: int) -> Emission:
        epoch = self.node.epochs[self.stage, request.id].epoch
        payload = item(self.kind_said, request.params["tag"], epoch, [value], self.script.width)
        return Emission(request, port, payload)

    def forget(self, ctx: Context, request: Request) -> None:
        if request.id not in self.begun:
            self.node.ground.observer.wrong("forget", f"{self.stage} was told to forget {request.id} it never saw")
        self.begun.discard(request.id)


class SimpleStage(Scripted, Stage):
    """map, route, vary, relay, guide: each value by itself; only the count is kept."""

    def step(self, ctx: Context, chunks: list[Chunk]) -> list[Emission]:
        for chunk in chunks:
            self.look(chunk.request, chunk.payload)
        emissions: list[Emission] = []
        for chunk in chunks:
            values = values_of(chunk.payload)
            chunk.request.state = (chunk.request.state or 0) + len(values)
            if self.script.kind == "relay":
                emissions += [chunk.reply(port, chunk.payload) for port in self.script.outs]
            else:
                said = [pair for value in values for pair in self._said(chunk, value)]
                emissions += [self.say(chunk.request, port, value) for port, value in said]
        return emissions

    def _said(self, chunk: Chunk, value: int) -> list[tuple[str, int]]:
        if self.script.kind == "guide":
            return [("out", value & ~LOW | guided(self.script.salt, value & LOW))]
        return spread(self.script, chunk.request.seed, value)

    def finish(self, ctx: Context, request: Request) -> list[Emission]:
        self.look(request, None)
        if not self.script.tail:
            return []
        return [self.say(request, self.script.outs[0], last_word(self.script, request.seed, [request.state or 0]))]


class JoinStage(Scripted, Stage):
    """The n-th value of each port together, as soon as all are there."""

    def step(self, ctx: Context, chunks: list[Chunk]) -> list[Emission]:
        for chunk in chunks:
            self.look(chunk.request, chunk.payload)
        emissions: list[Emission] = []
        for chunk in chunks:
            emissions += self._join(chunk)
        return emissions

    def _join(self, chunk: Chunk) -> list[Emission]:
        request, script = chunk.request, self.script
        if request.state is None:
            request.state = ({port: deque() for port in script.ins}, dict.fromkeys(script.ins, 0))
        waiting, counts = request.state
        values = values_of(chunk.payload)
        waiting[chunk.port].extend(values)
        counts[chunk.port] += len(values)
        emissions: list[Emission] = []
        while all(waiting.values()):
            said = paired(script, request.seed, [waiting[port].popleft() for port in script.ins])
            emissions += [self.say(request, port, said) for port in script.outs]
        return emissions

    def finish(self, ctx: Context, request: Request) -> list[Emission]:
        self.look(request, None)
        if not self.script.tail:
            return []
        counts = list(request.state[1].values()) if request.state else [0] * len(self.script.ins)
        return [self.say(request, self.script.outs[0], last_word(self.script, request.seed, counts))]


class LoopStage(Scripted, Stage):
    """Sends each value round a loop; results leave in the order of their values. A question is place|round|value."""

    def step(self, ctx: Context, chunks: list[Chunk]) -> list[Emission]:
        for chunk in chunks:
            self.look(chunk.request, chunk.payload)
        emissions: list[Emission] = []
        for chunk in chunks:
            request = chunk.request
            if request.state is None:
                request.state = ([], {}, [0])  # rounds of each value, results out of order, the next to leave
            for value in values_of(chunk.payload):
                emissions += self._number(request, value) if chunk.port == "n" else self._answer(request, value)
        return emissions

    def _number(self, request: Request, value: int) -> list[Emission]:
        rounds = request.state[0]
        rounds.append(rounds_of(self.script, value))
        place = len(rounds) - 1
        return self._go_on(request, place, 0, value)

    def _answer(self, request: Request, value: int) -> list[Emission]:
        return self._go_on(request, value >> 40, (value >> 32 & 0xFF) + 1, value & LOW)

    def _go_on(self, request: Request, place: int, rounds: int, value: int) -> list[Emission]:
        wanted, results, upcoming = request.state
        if rounds < wanted[place]:
            return [self.say(request, "ask", place << 40 | rounds << 32 | value)]
        results[place] = spoken(self.script, request.seed, value)
        emissions: list[Emission] = []
        while upcoming[0] in results:
            emissions.append(self.say(request, "res", results.pop(upcoming[0])))
            upcoming[0] += 1
        return emissions

    def finish(self, ctx: Context, request: Request) -> list[Emission]:
        self.look(request, None)
        if not self.script.tail:
            return []
        count = len(request.state[0]) if request.state else 0
        return [self.say(request, "res", last_word(self.script, request.seed, [count]))]


class _Voice:
    """An engine's row."""

    def __init__(self) -> None:
        self.queue: deque[int] = deque()
        self.counts: dict[str, int] = {}
        self.thinking = -1
        self.said = 0
        self.closed = False


class VoiceStage(Scripted, EngineStage):
    """Says one value a step, some after thinking; may stop before its input does."""

    def admit(self, ctx: Context, chunk: Chunk) -> None:
        self.look(chunk.request, chunk.payload)
        voice = self._voice(chunk.request)
        values = values_of(chunk.payload)
        voice.counts[chunk.port] = voice.counts.get(chunk.port, 0) + len(values)
        if chunk.port == self.script.ins[0]:
            voice.queue.extend(values)

    def close(self, ctx: Context, request: Request) -> None:
        self.begun.add(request.id)
        self._voice(request).closed = True

    def step(self, ctx: Context, rows: list[Request]) -> list[Emission]:  # type: ignore[override]
        for request in rows:
            self.look(request, None)
        emissions: list[Emission] = []
        for request in rows:
            emissions += self._speak(request)
        return emissions

    def _speak(self, request: Request) -> list[Emission]:
        voice, script = self._voice(request), self.script
        if voice.queue:
            if voice.thinking < 0:
                voice.thinking = thinking_steps(script, voice.queue[0])
            if voice.thinking > 0:
                voice.thinking -= 1
                return [Emission(request, script.outs[0], None)]
            voice.thinking = -1
            voice.said += 1
            said = spoken(script, request.seed, voice.queue.popleft())
            emissions = [self.say(request, port, said) for port in script.outs]
            if voice.said == script.stop_after:
                emissions[-1].end = True
            return emissions
        if not voice.closed:
            return []
        end = Emission(request, script.outs[0], None, end=True)
        if not script.tail:
            return [end]
        counts = [voice.counts.get(port, 0) for port in script.ins]
        return [self.say(request, script.outs[0], last_word(script, request.seed, counts)), end]

    def _voice(self, request: Request) -> _Voice:
        if request.state is None:
            request.state = _Voice()
        return request.state


CLASSES: dict[str, type[Any]] = {"join": JoinStage, "loop": LoopStage, "engine": VoiceStage}


def stage_class(script: Script, pure: bool, takes: dict[str, type[Payload]], says: type[Payload]) -> type[Stage]:
    """A class for one stage of a generated pipeline. `takes`: in port -> payload; `says`: what all its ports emit."""
    base = CLASSES.get(script.kind, SimpleStage)
    ports = {
        "accepts": takes,
        "emits": dict.fromkeys(script.outs, says),
        "kind_said": says,
        "pure": pure,
        "script": script,
    }
    made: Any = type(f"Sim_{script.name}", (base,), ports)
    return made
