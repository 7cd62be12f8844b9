"""The parts of the engine alone: a frame in each bucket, a decoder call of each size, prefill; each beside its floor.

Times of the device where there is one (events around the calls), of the thread otherwise; medians. Rows stand where a
request of a few seconds stands; the inputs are noise, which costs what speech costs.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from tts_ask import PROMPT
from tts_floor import Floor

from omnirt.actors.engines.codec.decoder import Piece as Codes
from omnirt.actors.engines.codec.decoder import StreamingDecoder
from omnirt.actors.engines.frame.engine import FrameEngine, FrameSampling, FrameSequence
from omnirt.actors.engines.frame.step import Piece

STEADY = 60
"""Frames before a frame is timed: the position of a request half way through."""
TIMED, WARM = 15, 3
CALLS, CALL_FRAMES = (1, 8, 16, 32, 64), (1, 2, 4, 8)
"""Rows, and frames of each, of the decoder's calls."""


def parts(talker: Any, decoder: Any, device: str, floor: Floor | None) -> dict[str, Any]:
    """Of stages that have started and hold no request."""
    engine: FrameEngine = talker._speaker.engine
    clock = Clock(device)
    return {
        "buckets": [frame_of(engine, bucket, clock, floor) for bucket in engine._step.buckets],
        "prefill": [prefill_of(engine, rows, clock, floor) for rows in prefills(engine)],
        "decoder": calls_of(decoder._decoder, clock, floor),
    }


class Clock:
    """Milliseconds that a piece of work takes on the device, or of this thread where that is the device."""

    def __init__(self, device: str) -> None:
        self._on_gpu = device.startswith("cuda")

    def ms(self, work: Callable[[], object], timed: int = TIMED) -> float:
        for _ in range(WARM):
            work()
        return statistics.median(self._once(work) for _ in range(timed))

    def wall_ms(self, work: Callable[[], object], timed: int = TIMED) -> float:
        """Of the thread, to the end of the device's work."""
        times: list[float] = []
        for _ in range(WARM + timed):
            self.wait()
            began = time.perf_counter()
            work()
            self.wait()
            times.append(1e3 * (time.perf_counter() - began))
        return statistics.median(times[WARM:])

    def wait(self) -> None:
        if self._on_gpu:
            torch.cuda.synchronize()

    def _once(self, work: Callable[[], object]) -> float:
        if not self._on_gpu:
            began = time.perf_counter()
            work()
            return 1e3 * (time.perf_counter() - began)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end)


# ------------------------------------------------------------------- talker


def frame_of(engine: FrameEngine, bucket: int, clock: Clock, floor: Floor | None) -> dict[str, Any]:
    """One frame of a whole bucket: as the device runs it, and as the engine's loop gets through it."""
    live = joined(engine, bucket, STEADY + 4 * (TIMED + WARM))
    for _ in range(STEADY):
        engine.step(live)
    clock.wait()
    looped = looped_ms(engine, live, clock)
    position = PROMPT + statistics.mean(sequence.launched for sequence in live) + TIMED / 2
    alone = clock.ms(lambda: engine._step.run(bucket))
    for sequence in live:
        engine.remove(sequence)
    row = {"rows": bucket, "position": position, "ms": alone, "loop_ms": looped}
    return beside(row, floor.frame_s(bucket, position) if floor is not None else None)


def looped_ms(engine: FrameEngine, live: list[FrameSequence], clock: Clock) -> float:
    began = time.perf_counter()
    for _ in range(TIMED + WARM):
        engine.step(live)
    clock.wait()
    return 1e3 * (time.perf_counter() - began) / (TIMED + WARM)


def prefills(engine: FrameEngine) -> list[int]:
    """One prompt, and as many as one call takes."""
    return sorted({1, max(1, min(engine.rows_max, engine._step.prefill_max // (PROMPT - 1)))})


def prefill_of(engine: FrameEngine, rows: int, clock: Clock, floor: Floor | None) -> dict[str, Any]:
    """Prompts of `rows` requests in one go, and from adding them to their first codes on the host."""
    positions = rows * (PROMPT - 1)
    live = joined(engine, rows, 2)
    engine.step(live)
    pieces = [Piece(sequence.row, 0, prompt_of(engine)[:-1]) for sequence in live]
    alone = clock.ms(lambda: engine._step.prefill(pieces))
    for sequence in live:
        engine.remove(sequence)
    row = {"rows": rows, "positions": positions, "ms": alone, "first_codes_ms": first_codes_ms(engine, rows, clock)}
    return beside(row, floor.prefill_s(positions) if floor is not None else None)


def first_codes_ms(engine: FrameEngine, rows: int, clock: Clock) -> float:
    times: list[float] = []
    for _ in range(WARM + TIMED):
        clock.wait()
        began = time.perf_counter()
        live = joined(engine, rows, 2)
        missing = set(live)
        while missing:
            missing -= {produced.sequence for produced in engine.step(live) if len(produced.codes)}
        times.append(1e3 * (time.perf_counter() - began))
        for sequence in live:
            engine.remove(sequence)
    return statistics.median(times[WARM:])


def joined(engine: FrameEngine, rows: int, frames: int) -> list[FrameSequence]:
    sampling = FrameSampling(frames_max=frames, ignore_stop=True, frames_min=frames)
    text = prompt_of(engine)[:1]
    return [engine.add(prompt_of(engine), sampling, text) for _ in range(rows)]


def prompt_of(engine: FrameEngine) -> torch.Tensor:
    x = engine._state.x
    noise = torch.Generator(x.device).manual_seed(1)
    return torch.randn(PROMPT, x.shape[1], device=x.device, dtype=torch.float32, generator=noise).to(x.dtype) * 0.02


# ------------------------------------------------------------------ decoder


def calls_of(decoder: StreamingDecoder, clock: Clock, floor: Floor | None) -> list[dict[str, Any]]:
    """Calls of rows that have all been decoding for a while. `done_ms`: until the samples are on the host."""
    found: list[dict[str, Any]] = []
    chance = np.random.default_rng(1)
    for rows in (rows for rows in CALLS if rows <= decoder.slots):
        for frames in CALL_FRAMES:
            slots = [decoder.open() for _ in range(rows)]
            pieces = [
                Codes(slot, chance.integers(0, decoder.shape.codes, (frames, decoder.shape.books), np.int32))
                for slot in slots
            ]
            alone = clock.ms(lambda pieces=pieces: decoder.launch(pieces))
            done = clock.wall_ms(lambda pieces=pieces: decoder.launch(pieces).samples())
            for slot in slots:
                decoder.close(slot)
            row = {"rows": rows, "frames": frames, "ms": alone, "done_ms": done, "frame_ms": alone / frames}
            found.append(beside(row, floor.codec_s(rows, frames) if floor is not None else None))
    return found


def beside(row: dict[str, Any], floor_s: float | None) -> dict[str, Any]:
    if not floor_s:
        return row
    return row | {"floor_ms": 1e3 * floor_s, "times_floor": row["ms"] / (1e3 * floor_s)}
