"""The spoken half of an answer: how it is encoded, and its name in later requests."""

from __future__ import annotations

from omnirt.gateway.audio_ids import AudioIds
from omnirt.gateway.core import Core
from omnirt.gateway.encoding import Encoding
from omnirt.wire.payload import Pcm


class AnswerAudio:
    """`format` as in `chat_request`; `whole`: the answer travels in one piece."""

    def __init__(self, core: Core, ids: AudioIds, format: str, fallback_rate: int, *, whole: bool) -> None:
        self._ids = ids
        self.id = ids.new()
        self.format = format
        # wav as a whole is collected as samples, so that its header can be exact.
        bare = format == "pcm16" or (format == "wav" and whole)
        # Clients of the API take pcm16 to have this rate: nothing in it says so.
        wanted_rate = (core.config.pcm_rate or None) if format == "pcm16" else None
        self._encoding = Encoding(core, "pcm" if bare else format, fallback_rate, wanted_rate)

    async def feed(self, payload: Pcm) -> bytes:
        """Encoded audio, which may lag behind what was fed."""
        return await self._encoding.feed(payload)

    async def flush(self) -> bytes:
        """What is left. Nothing may be fed after it."""
        return await self._encoding.flush()

    def keep(self, transcript: str) -> int:
        """Let later requests refer to it by its id; until when, in unix seconds."""
        return self._ids.keep(self.id, transcript)

    @property
    def rate(self) -> int:
        """Of the encoded audio."""
        return self._encoding.rate

    @property
    def frames(self) -> int:
        """Samples that the encoded audio stands for."""
        return round(self._encoding.seconds() * self.rate)
