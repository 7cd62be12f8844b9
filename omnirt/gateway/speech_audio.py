"""One request's events as encoded pieces.

Invariant: the next event is read only when the piece before it was taken, so a slow client holds its own credit and
nothing piles up here.
"""

from __future__ import annotations

from typing import Any

from omnirt.errors import StageFailed, error_from
from omnirt.gateway.core import Core
from omnirt.gateway.media import Encoder, encoder_for, int16_of, is_cheap
from omnirt.gateway.speech_request import SpeechRequest
from omnirt.session.service import Done, Failed, Live, Output
from omnirt.track import Track
from omnirt.wire.payload import Payload, Pcm

TOKENS_PER_SECOND = 20
TOGETHER_BYTES = 16 << 10
"""What is ready goes out in one write, up to about this much: a write costs more than a chunk under load."""


class SpeechAudio:
    def __init__(
        self, core: Core, live: Live, spoken: SpeechRequest, format: str, fallback_rate: int, track: Track
    ) -> None:
        self._core = core
        self._live = live
        self._spoken = spoken
        self._format = format
        self._fallback_rate = fallback_rate
        self._track = track
        self._encoder: Encoder | None = None
        self._source_rate = 0
        self._over = False
        self.reports: dict[str, dict[str, Any]] = {}
        """Of the stages, once they are done."""
        self.samples = 0
        """Made by the pipeline so far, at its own rate."""

    async def next(self) -> bytes | None:
        """A piece of the answer, never empty; None at its end. Raises what ended the request early."""
        while not self._over:
            event = await self._live.next()
            if isinstance(event, Output):
                piece = await self._encode(event.payload)
                while len(piece) < TOGETHER_BYTES and self._live.has_output():
                    event = await self._live.next()
                    assert isinstance(event, Output)
                    piece += await self._encode(event.payload)
            elif isinstance(event, Done):
                self._over = True
                self.reports = event.reports
                piece = await self._flush()
            else:
                self._over = True
                raise _error(event)
            if piece:
                return piece
        return None

    @property
    def format(self) -> str:
        """Of the pieces, which may differ from the one asked for (see `delivery.send_complete`)."""
        return self._format

    @property
    def asked_format(self) -> str:
        return self._spoken.format

    @property
    def rate(self) -> int:
        """Of the encoded audio."""
        return self._encoder.rate if self._encoder else self._fallback_rate

    def seconds(self) -> float:
        return self.samples / self._source_rate if self._source_rate else 0.0

    def usage(self) -> dict[str, object]:
        """Tokens as the stages counted them; where they do not count, characters in and 20 per second out."""
        incoming = self._counted("input_tokens", len(self._spoken.text))
        outgoing = self._counted("output_tokens", round(self.seconds() * TOKENS_PER_SECOND))
        return {
            "input_tokens": incoming,
            "output_tokens": outgoing,
            "total_tokens": incoming + outgoing,
            "input_token_details": {"text_tokens": incoming, "audio_tokens": 0},
        }

    def _counted(self, name: str, estimate: int) -> int:
        counts = [report[name] for report in self.reports.values() if name in report]
        return max(0, sum(counts)) if counts else estimate

    async def _encode(self, payload: Payload) -> bytes:
        if not isinstance(payload, Pcm):
            raise StageFailed(f"expected audio from the pipeline, got {type(payload).__name__}")
        if self._encoder is None:
            await self._open(payload.rate)
        if payload.rate != self._source_rate:
            raise StageFailed(f"the pipeline changed its rate from {self._source_rate} to {payload.rate} Hz")
        assert self._encoder is not None
        samples = int16_of(payload.samples)
        self.samples += samples.size
        self._track.audio(samples.size, payload.rate)
        if self._cheap():
            return self._encoder.feed(samples)
        # A copy: the payload belongs to the caller only until the next event, and a thread may outlive a cancel.
        return await self._core.threaded(self._encoder.feed, samples.copy())

    async def _flush(self) -> bytes:
        if self._encoder is None:
            await self._open(self._fallback_rate)
        assert self._encoder is not None
        return self._encoder.flush() if self._cheap() else await self._core.threaded(self._encoder.flush)

    async def _open(self, rate: int) -> None:
        self._source_rate = rate
        wanted = self._wanted_rate()
        if self._cheap():
            self._encoder = encoder_for(self._format, rate, wanted)
        else:
            self._encoder = await self._core.threaded(encoder_for, self._format, rate, wanted)

    def _wanted_rate(self) -> int | None:
        if self._spoken.sample_rate is None and self.asked_format == "pcm":
            return self._core.config.pcm_rate or None
        return self._spoken.sample_rate

    def _cheap(self) -> bool:
        return is_cheap(self._format, self._source_rate, self._wanted_rate())


def _error(event: Failed) -> Exception:
    return error_from(event.failure)
