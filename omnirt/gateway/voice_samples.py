"""Recordings of voices to copy, decoded: what comes with requests, and what was uploaded, of which the last are kept.

Both are decoded once, however many ask at a time, and kept for a while (see `kept_recordings`): who copies a voice
sends the same recording with every request, and opening one in the codec library takes 7 ms of the gateway's thread.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from omnirt.gateway.abilities import input_bytes_max
from omnirt.gateway.audio_in import decode_base64, recording
from omnirt.gateway.core import Core
from omnirt.gateway.errors import invalid
from omnirt.gateway.facts import PipelineFacts
from omnirt.gateway.fetch import fetch
from omnirt.gateway.kept_recordings import KeptRecordings, Pieces, seconds_of
from omnirt.gateway.speech_reference import Reference
from omnirt.gateway.voice_store import StoredVoice
from omnirt.wire.payload import Pcm

Keep = Callable[[float], None]

UPLOADED_S_MAX = 600.0
"""Of uploaded samples, all together: 29 MB at 24 kHz."""
BROUGHT_S_MAX = 600.0
"""The same of what came with requests."""
SILENCE = 0.003
"""The highest peak of silence, of full scale: 50 dB below it."""
SCHEME_CHARS = 32
"""A colon among the first so many characters makes it a URL: base64 has none."""


class VoiceSamples:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._bytes_max = input_bytes_max(core.service.plan, "audio")
        self._uploaded = KeptRecordings(UPLOADED_S_MAX)
        self._brought = KeptRecordings(BROUGHT_S_MAX)

    async def load(self, source: Reference | StoredVoice, facts: PipelineFacts, keep: Keep) -> Pieces:
        """In pieces that fit the pipeline's input. `keep` is asked for the room of what comes with the request, in
        seconds. Raises a 400 that names the field, or a 403 for what is never fetched."""
        if isinstance(source, StoredVoice):
            return await self._stored(source, facts)
        data = None
        if _is_link(source.source):  # it may be another one than last time
            data = await fetch(self._core, source.source, source.param)
        sent = source.source if data is None else data
        key = await self._core.threaded(_key, sent, self.seconds_max(facts), facts.reference_rate)
        decoded = False

        async def decode() -> Pieces:
            nonlocal decoded
            decoded = True
            return await self._decode(source, data, facts, keep)

        pieces = await self._brought.get(key, decode)
        if not decoded:
            keep(seconds_of(pieces))
        return pieces

    async def check(self, path: Path, param: str, facts: PipelineFacts) -> None:
        """400 where the recording in `path` could not be used later."""
        pieces = await self._decoded(path, param, facts)
        length_s = seconds_of(pieces)
        if length_s < facts.reference_s_min:
            least = f"at least {facts.reference_s_min:g} s are needed"
            raise invalid(f"The recording in {param} is {length_s:.2f} s long; {least}.", param)
        if _peak(pieces) < SILENCE:
            raise invalid(f"The recording in {param} is silent.", param)

    def seconds_max(self, facts: PipelineFacts) -> float:
        return min(self._core.config.reference_s_max, facts.reference_s_max)

    def drop(self, voice: StoredVoice) -> None:
        self._uploaded.drop(voice.id)

    async def _stored(self, voice: StoredVoice, facts: PipelineFacts) -> Pieces:
        store = self._core.voices
        assert store is not None
        # Deleted meanwhile, it is not kept.
        return await self._uploaded.get(
            voice.id, lambda: self._read(voice, facts), lambda: store.find(voice.id) is not None
        )

    async def _decode(self, source: Reference, data: bytes | None, facts: PipelineFacts, keep: Keep) -> Pieces:
        core, text = self._core, source.source
        if data is None and ":" in text[:SCHEME_CHARS]:
            data = await fetch(core, text, source.param)
        elif data is None:
            data = await core.threaded(decode_base64, text, source.param)
        return self._cut(await recording(core, data, source.param, self.seconds_max(facts), keep, facts.reference_rate))

    async def _read(self, voice: StoredVoice, facts: PipelineFacts) -> Pieces:
        store = self._core.voices
        assert store is not None
        try:
            return self._cut(await self._decoded(store.audio_path(voice), "voice", facts))
        except FileNotFoundError as error:
            raise invalid(f"The voice {voice.name} was deleted.", "voice") from error

    async def _decoded(self, path: Path, param: str, facts: PipelineFacts) -> list[Pcm]:
        data = await self._core.threaded(path.read_bytes)
        return await recording(self._core, data, param, self.seconds_max(facts), rate=facts.reference_rate)

    def _cut(self, pieces: list[Pcm]) -> Pieces:
        cut: list[Pcm] = []
        for piece in pieces:
            size = max(1, self._bytes_max // piece.samples.itemsize)
            starts = range(0, piece.samples.size, size)
            cut += [Pcm(piece.samples[start : start + size], piece.rate) for start in starts]
        return tuple(cut)


def _peak(pieces: Sequence[Pcm]) -> float:
    """Of full scale, without a constant offset, which is no sound."""
    if not pieces:
        return 0.0
    samples = np.concatenate([piece.samples for piece in pieces])
    middle = float(samples.mean(dtype=np.float64))
    return max(float(samples.max()) - middle, middle - float(samples.min())) / 32768.0


def _is_link(source: str) -> bool:
    """Whether the recording itself is elsewhere."""
    scheme, colon, _ = source[:SCHEME_CHARS].partition(":")
    return bool(colon) and scheme.strip().lower() != "data"


def _key(source: str | bytes, seconds_max: float, rate: int) -> str:
    """What a recording is kept under: its bytes, or the text that they were sent as. Takes 0.7 ms a megabyte."""
    sent = source.encode(errors="surrogatepass") if isinstance(source, str) else source
    kind = "text" if isinstance(source, str) else "bytes"
    return f"{kind} {hashlib.sha256(sent).hexdigest()} {seconds_max} {rate}"
