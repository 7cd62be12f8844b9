"""One request's events as encoded pieces.

Invariant: the next event is read only when the piece before it was taken, so a slow client holds its own credit and
nothing piles up here.
"""

from __future__ import annotations

from typing import Any

from msgspec import structs

from omnirt.errors import Failure, StageFailed, error_from
from omnirt.gateway.chat_usage import reported
from omnirt.gateway.core import Core
from omnirt.gateway.encoding import Encoding
from omnirt.gateway.speech_request import RECORDING, SpeechRequest
from omnirt.session.service import Done, Live, Output
from omnirt.track import Track
from omnirt.wire.payload import Payload, Pcm

TOKENS_PER_SECOND = 20
TOGETHER_BYTES = 16 << 10
"""What is ready goes out in one write, up to about this much: a write costs more than a chunk under load."""


class SpeechAudio:
    def __init__(
        self, core: Core, live: Live, spoken: SpeechRequest, format: str, fallback_rate: int, track: Track
    ) -> None:
        self._live = live
        self._spoken = spoken
        self._track = track
        unsaid = spoken.sample_rate is None and spoken.format == "pcm"
        wanted_rate = (core.config.pcm_rate or None) if unsaid else spoken.sample_rate
        self._encoding = Encoding(core, format, fallback_rate, wanted_rate)
        self._over = False
        self.reports: dict[str, dict[str, Any]] = {}
        """Of the stages, once they are done."""

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
                piece = await self._encoding.flush()
            else:
                self._over = True
                raise error_from(self._blamed(event.failure))
            if piece:
                return piece
        return None

    @property
    def asked_format(self) -> str:
        return self._spoken.format

    @property
    def rate(self) -> int:
        """Of the encoded audio."""
        return self._encoding.rate

    def usage(self, chars: int | None = None) -> dict[str, object]:
        """Tokens as the stages counted them; where they do not count, characters in (`chars`, where the text came in
        pieces) and 20 per second out. What was spoken is counted once, by the last of the stages that count it."""
        incoming = reported(self.reports, "input_tokens")
        outgoing = [report["output_tokens"] for report in self.reports.values() if "output_tokens" in report]
        heard = reported(self.reports, "input_audio_tokens") or 0
        if incoming is None:
            incoming = heard + (len(self._spoken.text) if chars is None else chars)
        given = max(0, int(outgoing[-1])) if outgoing else round(self._encoding.seconds() * TOKENS_PER_SECOND)
        return {
            "input_tokens": incoming,
            "output_tokens": given,
            "total_tokens": incoming + given,
            "input_token_details": {"text_tokens": max(0, incoming - heard), "audio_tokens": heard},
        }

    def _blamed(self, failure: Failure) -> Failure:
        """A stage knows of a recording, not of the field that brought it."""
        return structs.replace(failure, param=self._spoken.heard_of) if failure.param == RECORDING else failure

    async def _encode(self, payload: Payload) -> bytes:
        if not isinstance(payload, Pcm):
            raise StageFailed(f"expected audio from the pipeline, got {type(payload).__name__}")
        self._track.audio(payload.samples.size, payload.rate)
        return await self._encoding.feed(payload)
