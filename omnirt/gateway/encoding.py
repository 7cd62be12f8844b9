"""What the pipeline speaks, encoded a piece at a time; what costs more than a copy is done on a thread."""

from __future__ import annotations

from omnirt.errors import StageFailed
from omnirt.gateway.core import Core
from omnirt.gateway.media import Encoder, encoder_for, int16_of, is_cheap
from omnirt.wire.payload import Pcm


class Encoding:
    """`fallback_rate`: taken to be the pipeline's where it says nothing at all. `wanted_rate`: of the encoded audio."""

    def __init__(self, core: Core, format: str, fallback_rate: int, wanted_rate: int | None = None) -> None:
        self._core = core
        self.format = format
        self._fallback_rate = fallback_rate
        self._wanted_rate = wanted_rate
        self._encoder: Encoder | None = None
        self._is_cheap = False
        self._source_rate = 0
        self.samples = 0
        """Made by the pipeline so far, at its own rate."""

    async def feed(self, payload: Pcm) -> bytes:
        """Encoded audio, which may lag behind what was fed."""
        encoder = self._encoder or await self._opened(payload.rate)
        if payload.rate != self._source_rate:
            raise StageFailed(f"the pipeline changed its rate from {self._source_rate} to {payload.rate} Hz")
        samples = int16_of(payload.samples)
        self.samples += samples.size
        if self._is_cheap:
            return encoder.feed(samples)
        # A copy: the payload belongs to the caller only until the next event, and a thread may outlive a cancel.
        return await self._core.threaded(encoder.feed, samples.copy())

    async def flush(self) -> bytes:
        """What is left. Nothing may be fed after it."""
        encoder = await self._opened(self._fallback_rate)
        return encoder.flush() if self._is_cheap else await self._core.threaded(encoder.flush)

    @property
    def rate(self) -> int:
        """Of the encoded audio."""
        return self._encoder.rate if self._encoder else self._fallback_rate

    def seconds(self) -> float:
        return self.samples / self._source_rate if self._source_rate else 0.0

    async def _opened(self, rate: int) -> Encoder:
        if self._encoder is None:
            self._source_rate = rate
            self._is_cheap = is_cheap(self.format, rate, self._wanted_rate)
            if self._is_cheap:
                self._encoder = encoder_for(self.format, rate, self._wanted_rate)
            else:
                self._encoder = await self._core.threaded(encoder_for, self.format, rate, self._wanted_rate)
        return self._encoder
