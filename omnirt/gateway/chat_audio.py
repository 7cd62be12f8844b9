"""The spoken half of an answer, encoded a piece at a time."""

from __future__ import annotations

from omnirt.errors import StageFailed
from omnirt.gateway.audio_ids import AudioIds
from omnirt.gateway.core import Core
from omnirt.gateway.media import Encoder, encoder_for, int16_of, is_cheap
from omnirt.wire.payload import Pcm


class AnswerAudio:
    """`format` as in `chat_request`; `whole`: the answer travels in one piece."""

    def __init__(self, core: Core, ids: AudioIds, format: str, fallback_rate: int, *, whole: bool) -> None:
        self._core = core
        self._ids = ids
        self.id = ids.new()
        self.format = format
        # wav as a whole is collected as samples, so that its header can be exact.
        bare = format == "pcm16" or (format == "wav" and whole)
        self._encoding = "pcm" if bare else format
        # Clients of the API take pcm16 to have this rate: nothing in it says so.
        self._wanted_rate = (core.config.pcm_rate or None) if format == "pcm16" else None
        self._fallback_rate = fallback_rate
        self._encoder: Encoder | None = None
        self._source_rate = 0
        self.samples = 0
        """Made by the pipeline so far, at its own rate."""

    async def feed(self, payload: Pcm) -> bytes:
        """Encoded audio, which may lag behind what was fed."""
        if self._encoder is None:
            await self._open(payload.rate)
        if payload.rate != self._source_rate:
            raise StageFailed(f"the pipeline changed its rate from {self._source_rate} to {payload.rate} Hz")
        assert self._encoder is not None
        samples = int16_of(payload.samples)
        self.samples += samples.size
        if self._cheap():
            return self._encoder.feed(samples)
        # A copy: the payload belongs to the caller only until the next event, and a thread may outlive a cancel.
        return await self._core.threaded(self._encoder.feed, samples.copy())

    async def flush(self) -> bytes:
        """What is left. Nothing may be fed after it."""
        if self._encoder is None:
            await self._open(self._fallback_rate)
        assert self._encoder is not None
        return self._encoder.flush() if self._cheap() else await self._core.threaded(self._encoder.flush)

    def keep(self, transcript: str) -> int:
        """Let later requests refer to it by its id; until when, in unix seconds."""
        return self._ids.keep(self.id, transcript)

    @property
    def rate(self) -> int:
        """Of the encoded audio."""
        return self._encoder.rate if self._encoder else self._fallback_rate

    @property
    def frames(self) -> int:
        """Samples that the encoded audio stands for."""
        return round(self.samples * self.rate / self._source_rate) if self._source_rate else 0

    async def _open(self, rate: int) -> None:
        self._source_rate = rate
        if self._cheap():
            self._encoder = encoder_for(self._encoding, rate, self._wanted_rate)
        else:
            self._encoder = await self._core.threaded(encoder_for, self._encoding, rate, self._wanted_rate)

    def _cheap(self) -> bool:
        return is_cheap(self._encoding, self._source_rate, self._wanted_rate)
