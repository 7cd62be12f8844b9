"""Recordings of voices to copy, decoded: what comes with requests, and what was uploaded, of which the last are kept.

Invariants: what is kept is bounded in seconds, and the least recently used goes first; an uploaded sample is decoded
once, however many ask for it at a time; what is given out is shared and read-only.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from omnirt.gateway.abilities import input_bytes_max
from omnirt.gateway.audio_in import decode_base64, recording
from omnirt.gateway.core import Core
from omnirt.gateway.errors import invalid
from omnirt.gateway.facts import PipelineFacts
from omnirt.gateway.fetch import fetch
from omnirt.gateway.speech_reference import Reference
from omnirt.gateway.voice_store import StoredVoice
from omnirt.wire.payload import Pcm

Pieces = tuple[Pcm, ...]
Keep = Callable[[float], None]

KEPT_S_MAX = 600.0
"""Of uploaded samples, all together: 29 MB at 24 kHz."""
SILENCE = 0.003
"""The highest peak of silence, of full scale: 50 dB below it."""
SCHEME_CHARS = 32
"""A colon among the first so many characters makes it a URL: base64 has none."""


class VoiceSamples:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._bytes_max = input_bytes_max(core.service.plan, "audio")
        self._kept: OrderedDict[str, Pieces] = OrderedDict()
        self._kept_s = 0.0
        self._decoding: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    async def load(self, source: Reference | StoredVoice, facts: PipelineFacts, keep: Keep) -> Pieces:
        """In pieces that fit the pipeline's input. `keep` is asked for the room of what comes with the request, in
        seconds. Raises a 400 that names the field, or a 403 for what is never fetched."""
        if isinstance(source, StoredVoice):
            return await self._stored(source, facts)
        core, limit_s = self._core, self.seconds_max(facts)
        if ":" in source.source[:SCHEME_CHARS]:
            data = await fetch(core, source.source, source.param)
        else:
            data = await core.threaded(decode_base64, source.source, source.param)
        return self._cut(await recording(core, data, source.param, limit_s, keep, facts.reference_rate))

    async def check(self, path: Path, param: str, facts: PipelineFacts) -> None:
        """400 where the recording in `path` could not be used later."""
        pieces = await self._decoded(path, param, facts)
        length_s = _seconds(pieces)
        if length_s < facts.reference_s_min:
            least = f"at least {facts.reference_s_min:g} s are needed"
            raise invalid(f"The recording in {param} is {length_s:.2f} s long; {least}.", param)
        if _peak(pieces) < SILENCE:
            raise invalid(f"The recording in {param} is silent.", param)

    def seconds_max(self, facts: PipelineFacts) -> float:
        return min(self._core.config.reference_s_max, facts.reference_s_max)

    def drop(self, voice: StoredVoice) -> None:
        self._kept_s -= _seconds(self._kept.pop(voice.id, ()))

    async def _stored(self, voice: StoredVoice, facts: PipelineFacts) -> Pieces:
        lock = self._decoding.get(voice.id)
        if lock is None:
            lock = self._decoding[voice.id] = asyncio.Lock()
        async with lock:
            pieces = self._kept.get(voice.id)
            if pieces is None:
                pieces = await self._read(voice, facts)
                self._keep(voice, pieces)
            else:
                self._kept.move_to_end(voice.id)
            return pieces

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

    def _keep(self, voice: StoredVoice, pieces: Pieces) -> None:
        if self._core.voices is None or self._core.voices.find(voice.id) is None:
            return  # deleted meanwhile
        self._kept[voice.id] = pieces
        self._kept_s += _seconds(pieces)
        while self._kept_s > KEPT_S_MAX and len(self._kept) > 1:
            self._kept_s -= _seconds(self._kept.popitem(last=False)[1])

    def _cut(self, pieces: list[Pcm]) -> Pieces:
        cut: list[Pcm] = []
        for piece in pieces:
            piece.samples.flags.writeable = False
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


def _seconds(pieces: Sequence[Pcm]) -> float:
    return sum(piece.samples.size / piece.rate for piece in pieces)
