"""The engine's part of `bench/tts`: talker and decoder alone in this process, no runtime around them, no HTTP.

    python bench/tts_engine.py    a job (JSON) on standard input, its figures as the last line of standard output

The stages themselves are stepped in turn, as a node that holds both does, so that batching and chunks are those of the
server. A request counts from its admission to its samples on the host. Then the parts alone (tts_parts.py).
"""

from __future__ import annotations

import gc
import itertools
import sys
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct
from serve_read import Record
from tts_ask import FRAME_S, HUM_S, PROMPT
from tts_asker import stream_of
from tts_figures import figures, merged
from tts_floor import Floor, floor_for
from tts_http import REQUESTS_LEAST
from tts_load import Load
from tts_machine import gpu_mib
from tts_parts import parts

from omnirt.actors.models.qwen3_tts.voice import SpeakerVoice
from omnirt.ids import RequestId
from omnirt.loader import resolve
from omnirt.pipeline.deploy import load_plan
from omnirt.runtime.stage import Chunk, Context, Request
from omnirt.wire.payload import Text
from omnirt.wire.plan import Plan


class Work(Struct, frozen=True):
    """See the arguments of `bench/tts`."""

    pipeline: str
    device: str
    frames: int
    deploy: tuple[str, ...] = ()
    sets: tuple[str, ...] = ()
    concurrency: tuple[int, ...] = (1, 8, 16, 64)
    repetitions: int = 3
    each: int = 4
    seed: int = 1
    voice: str = ""
    language: str = ""
    texts: tuple[str, ...] = ("Hello.",)


class Speaking:
    """A request in both stages. A request's state is a stage's own, so there are two of them."""

    def __init__(self, number: int, params: dict[str, Any]) -> None:
        self.number = number
        self.said, self.heard = (Request(RequestId(number + 1), f"bench-{number}", number, params, 0) for _ in range(2))
        self.record = Record(time.monotonic_ns())
        self.is_said = False


class Pair:
    """Both stages, and what a node would do with them."""

    def __init__(self, plan: Plan, device: str) -> None:
        self.report: list[str] = []
        self.talker, self._talk = self._started(plan, "Talker", device)
        self.decoder, self._decode = self._started(plan, "Codec", device)
        self.engine = self.talker._speaker.engine
        self._voice = voice_for(plan, self.talker)
        self.host_ns = {"talker": 0, "decoder": 0}
        """Time of this thread in each of the two."""
        self._live: dict[RequestId, Speaking] = {}

    def _started(self, plan: Plan, kind: str, device: str) -> tuple[Any, Context]:
        stage = next((stage for stage in plan.stages if stage.actor.endswith(f":{kind}")), None)
        if stage is None:
            sys.exit(f"the pipeline {plan.name} has no {kind}: --engine is for codec-frame models")
        threads = next(node.threads for node in plan.nodes if node.group == stage.group)
        made: Any = resolve(stage.actor)
        built = made(msgspec.convert(stage.options, made.Options))
        ctx = Context(stage.name, device, 0, threads, self.report.append)
        built.start(ctx)
        return built, ctx

    def add(self, number: int, text: str, params: dict[str, Any]) -> None:
        speaking = Speaking(number, params | ({"reference": True, "ref_text": text} if self._voice else {}))
        self._live[speaking.said.id] = speaking
        if self._voice is not None:
            self.talker.admit(self._talk, Chunk(speaking.said, "voice", self._voice, 0))
        self.talker.admit(self._talk, Chunk(speaking.said, "text", Text(text), 0))
        self.talker.close(self._talk, speaking.said)

    def step(self) -> list[Speaking]:
        """One step of each; those that ended."""
        began = time.perf_counter_ns()
        speaking = [one for one in self._live.values() if not one.is_said]
        for said in self.talker.step(self._talk, [one.said for one in speaking]) if speaking else []:
            one = self._live[said.request.id]
            if said.payload is not None:
                self.decoder.admit(self._decode, Chunk(one.heard, "frames", said.payload, 0))
            if said.end:
                one.is_said = True
                self.decoder.close(self._decode, one.heard)
        between = time.perf_counter_ns()
        ended = self._heard([one for one in self._live.values() if one.heard.state is not None])
        self.host_ns["talker"] += between - began
        self.host_ns["decoder"] += time.perf_counter_ns() - between
        return ended

    def _heard(self, hearing: list[Speaking]) -> list[Speaking]:
        ended: list[Speaking] = []
        for heard in self.decoder.step(self._decode, [one.heard for one in hearing]) if hearing else []:
            one = self._live[heard.request.id]
            if heard.payload is not None:
                one.record.sound.append((time.monotonic_ns(), len(heard.payload.samples)))
                one.record.rate = heard.payload.rate
            if heard.end:
                one.record.ended_ns = time.monotonic_ns()
                ended.append(self._live.pop(one.said.id))
                self.talker.forget(self._talk, one.said)
                self.decoder.forget(self._decode, one.heard)
        return ended


def voice_for(plan: Plan, talker: Any) -> SpeakerVoice | None:
    """Where voices are copied: one of noise, from a recording of three seconds."""
    if not any(stage.actor.endswith(":Reference") for stage in plan.stages):
        return None
    config, chance = talker._speaker.config, np.random.default_rng(1)
    embedding = chance.standard_normal(config.backbone.width, np.float32)
    frames = round(HUM_S / FRAME_S)
    return SpeakerVoice(embedding, chance.integers(0, config.codes, (frames, config.books), np.int32))


def run(work: Work) -> dict[str, Any]:
    plan = load_plan(work.pipeline, list(work.deploy), list(work.sets))
    floor = floor_for(work.pipeline, work.device)
    empty_mib, began = gpu_mib(work.device), time.perf_counter()
    pair = Pair(plan, work.device)
    document: dict[str, Any] = {"start_s": time.perf_counter() - began, "report": pair.report}
    gc.collect()
    gc.freeze()  # as a node does
    numbers = itertools.count()
    document |= closed(pair, work, floor, numbers)
    used_mib = gpu_mib(work.device)
    if used_mib is not None and empty_mib is not None:
        document["gpu_mib"] = used_mib - empty_mib
    return document | parts(pair.talker, pair.decoder, work.device, floor)


def closed(pair: Pair, work: Work, floor: Floor | None, numbers: Iterator[int]) -> dict[str, Any]:
    """Levels of a closed loop, as through HTTP."""
    rows: list[dict[str, Any]] = []
    repetitions: dict[str, Any] = {}
    for concurrency in work.concurrency:
        requests = max(work.each * concurrency, REQUESTS_LEAST)
        repetition(pair, work, numbers, concurrency, concurrency)
        done = [repetition(pair, work, numbers, concurrency, requests) for _ in range(work.repetitions)]
        row = {"name": f"C={concurrency}", "concurrency": concurrency} | merged(done)
        if floor is not None:
            row["floor_audio_s_per_s"] = floor.audio_s_per_s(concurrency, PROMPT + work.frames / 2)
            row["floor_share"] = row["audio_s_per_s"] / row["floor_audio_s_per_s"]
        rows.append(row)
        repetitions[row["name"]] = done
    return {"levels": rows, "repetitions": repetitions}


def repetition(pair: Pair, work: Work, numbers: Iterator[int], concurrency: int, requests: int) -> dict[str, Any]:
    left, live, streams = requests, 0, []
    launches = pair.engine.figures.launches
    pair.host_ns = dict.fromkeys(pair.host_ns, 0)
    began = time.perf_counter()
    while left or live:
        while left and live < concurrency:
            left, live = left - 1, live + 1
            number = next(numbers)
            pair.add(number, work.texts[number % len(work.texts)], params_of(work, number))
        for one in pair.step():
            live -= 1
            streams.append(stream_of(one.number, one.record))
    seconds = time.perf_counter() - began
    launches = pair.engine.figures.launches - launches
    host = {f"{name}_host_ms": spent / 1e6 / max(1, launches) for name, spent in pair.host_ns.items()}
    return figures(Load(streams, [0.0]), work.frames) | host | {"loop_ms": 1e3 * seconds / max(1, launches)}


def params_of(work: Work, number: int) -> dict[str, Any]:
    params = {"max_new_tokens": work.frames, "ignore_eos": True, "voice": work.voice, "language": work.language}
    return {name: value for name, value in params.items() if value != ""} | {"seed": work.seed + number}


def main() -> None:
    work = msgspec.json.decode(sys.stdin.buffer.read(), type=Work)
    print(msgspec.json.encode(run(work)).decode(), flush=True)


if __name__ == "__main__":
    main()
