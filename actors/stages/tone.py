"""A test stage: each request gets a sine of its own frequency, so a foreign sample in a stream shows.

The frequency and length come from the request's params (`frequency`, `seconds`) or from the text, as in
"523 Hz for 2.5 s". A stream is sample-exact: frame by frame it is `sine(frequency, 0, total, rate)`.
"""

from __future__ import annotations

import re
import time
from typing import Any

import msgspec
import numpy as np

from omnirt.runtime.stage import Chunk, Context, Emission, EngineStage, Request
from omnirt.wire.payload import Pcm, Text

AMPLITUDE = 8000
_HZ = re.compile(r"(\d+)\s*hz", re.IGNORECASE)
_SECONDS = re.compile(r"(\d+(?:\.\d+)?)\s*s\b", re.IGNORECASE)


class ToneOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    rate: int = 24000
    frame_ms: int = 20
    step_ms: float = 0.0
    """How long a step takes, however many rows are in it."""
    frequency: int = 440
    seconds: float = 1.0


def sine(frequency: int, start: int, count: int, rate: int) -> np.ndarray:
    """Samples `start` to `start + count` of the tone: [count] int16. The phase is exact, whatever `start` is."""
    turns = (np.arange(start, start + count, dtype=np.int64) * frequency) % rate
    return np.round(AMPLITUDE * np.sin(turns * (2 * np.pi / rate))).astype(np.int16)


class _Row:
    def __init__(self) -> None:
        self.text = ""
        self.frequency = 0
        self.position = 0
        self.total = -1
        """Samples in all; below 0 while the input is open."""


class Tone(EngineStage):
    accepts = {"text": Text}
    emits = {"audio": Pcm}
    Options = ToneOptions

    def facts(self) -> dict[str, Any]:
        return {"sample_rate": self.options.rate, "voices": ["tone"]}

    def admit(self, ctx: Context, chunk: Chunk) -> None:
        self._row(chunk.request).text += chunk.payload.text

    def close(self, ctx: Context, request: Request) -> None:
        row = self._row(request)
        hertz, seconds = _HZ.search(row.text), _SECONDS.search(row.text)
        row.frequency = int(request.params.get("frequency") or (hertz[1] if hertz else self.options.frequency))
        length_s = float(request.params.get("seconds") or (seconds[1] if seconds else self.options.seconds))
        row.total = round(length_s * self.options.rate)

    def step(self, ctx: Context, rows: list[Request]) -> list[Emission]:
        if self.options.step_ms:
            time.sleep(self.options.step_ms / 1000)  # noqa: TID251 - stands in for a device at work
        return [self._frame(request) for request in rows if self._row(request).total >= 0]

    def _frame(self, request: Request) -> Emission:
        row, rate = self._row(request), self.options.rate
        count = min(rate * self.options.frame_ms // 1000, row.total - row.position)
        samples = sine(row.frequency, row.position, count, rate)
        row.position += count
        return Emission(request, "audio", Pcm(samples, rate) if count else None, end=row.position >= row.total)

    def _row(self, request: Request) -> _Row:
        if request.state is None:
            request.state = _Row()
        return request.state
