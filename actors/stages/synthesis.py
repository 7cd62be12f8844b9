"""Acoustic frames in, PCM out: the second half of the hibari voice, one streaming decoder for each request.

The chunks of a request, put together, are sample for sample what one call over all its frames would give, however the
frames were cut. Between clauses lies exactly the silence that the frames ask for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from omnirt.actors.models.hibari.decoder import RATE, ClauseDecoder
from omnirt.actors.models.hibari.frames import AcousticFrames, Part
from omnirt.actors.stages.samples import to_int16
from omnirt.kernels.time_stretch import TimeStretch
from omnirt.runtime.stage import Chunk, Context, Emission, Request, Stage
from omnirt.wire.payload import Pcm

CHUNK_SAMPLES_MAX = 12_000
"""Half a second, 24,000 bytes. A longer pause leaves in several chunks."""


class Speech:
    """Where a request's audio has got to."""

    def __init__(self, noise: np.random.Generator) -> None:
        self._noise = noise
        self._clause: ClauseDecoder | None = None
        self._stretch: TimeStretch | None = None

    def feed(self, frames: AcousticFrames) -> list[np.ndarray]:
        """Blocks of samples, float32."""
        blocks: list[np.ndarray] = []
        for part in frames.parts():
            blocks += self._part(part)
        return blocks

    def _part(self, part: Part) -> Iterator[np.ndarray]:
        if part.lead >= 0 or self._clause is None:
            yield np.zeros(max(part.lead, 0), np.float32)
            self._clause = ClauseDecoder(self._noise)
            self._stretch = TimeStretch(part.shorten) if part.shorten != 1.0 else None
        samples = self._clause.feed(part)
        yield samples if self._stretch is None else self._stretch.feed(samples)
        if part.ends:
            if self._stretch is not None:
                yield self._stretch.flush()
            self._clause = self._stretch = None


class Synthesis(Stage):
    accepts = {"frames": AcousticFrames}
    emits = {"audio": Pcm}

    def facts(self) -> dict[str, Any]:
        return {"sample_rate": RATE}

    def step(self, ctx: Context, chunks: list[Chunk]) -> list[Emission]:
        return [emission for chunk in chunks for emission in self._decode(chunk)]

    def _decode(self, chunk: Chunk) -> Iterator[Emission]:
        request = chunk.request
        if request.state is None:
            request.state = Speech(np.random.default_rng(request.random("noise").getrandbits(64)))
        samples = np.concatenate([np.zeros(0, np.float32), *request.state.feed(chunk.payload)])
        pcm = to_int16(samples)
        for start in range(0, len(pcm), CHUNK_SAMPLES_MAX):
            yield chunk.reply("audio", Pcm(pcm[start : start + CHUNK_SAMPLES_MAX], RATE))

    def forget(self, ctx: Context, request: Request) -> None:
        request.state = None
