"""A recording in, the voice of its speaker out: what a Base checkpoint needs to speak like somebody.

    samples, in any pieces -> one recording, checked -> known? -> resampled -> encoders -> voice

A step encodes at most one recording, so that others in the process wait for no more than that; who sent the same one is
answered with it. A request is only ever given the voice of the recording it brought itself.

Params: `x_vector_only_mode`: the embedding of the speaker alone, without the recording's codes. `reference_samples`:
how many samples there will be; without it a recording is whole when the request's input ends.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from omnirt.actors.engines.device import ensure
from omnirt.actors.models.qwen3_tts.mel import RATE
from omnirt.actors.models.qwen3_tts.reference_audio import PARAM, Recording, heard
from omnirt.actors.models.qwen3_tts.reference_cache import (
    ReferenceCache,
    VoiceFiles,
    VoiceMemory,
    checkpoint_identity,
    voice_key,
)
from omnirt.actors.models.qwen3_tts.voice import SpeakerVoice
from omnirt.actors.models.sources import resolve
from omnirt.errors import ConfigError, InvalidRequest
from omnirt.extras import extra
from omnirt.runtime.stage import Chunk, Context, Emission, EngineStage, Request
from omnirt.wire.payload import Pcm

if TYPE_CHECKING:
    from omnirt.actors.models.qwen3_tts.reference_encoder import ReferenceEncoder

ALONE = "x_vector_only_mode"
MIB = 1 << 20
SECONDS_LEAST = 0.5
SECONDS_MOST = 60.0
"""Its voice is 56 kB, as much as edges are usually made for."""


class ReferenceOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    weights: str | tuple[str, ...]
    """A Base checkpoint's folder or its repository on the hub; of several, the first to be had."""
    seconds_min: float = SECONDS_LEAST
    """A recording that is shorter is refused."""
    seconds_max: float = 30.0
    """So is one that is longer. A recording of this length needs about 1.7 GB on a GPU."""
    cache_mb: int = 64
    """Voices that are kept in memory: about 3 kB a second of recording, and 10. 0 for none."""
    cache: str = ""
    """A folder for voices, so that a recording known before a restart is not encoded again; empty for none."""
    cache_files_mb: int = 256
    """In that folder."""

    def check(self) -> None:
        """Raises ConfigError."""
        if not SECONDS_LEAST <= self.seconds_min < self.seconds_max <= SECONDS_MOST:
            raise ConfigError(
                f"seconds_min and seconds_max must be from {SECONDS_LEAST:g} to {SECONDS_MOST:g}, and the first be less"
            )
        for name, least in (("cache_mb", 0), ("cache_files_mb", 1)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name} must be at least {least}, not {getattr(self, name)}")


class _Row:
    """A request: its recording as far as it has come, and what it is looked up by once it is whole."""

    def __init__(self, recording: Recording, with_codes: bool, expected: int) -> None:
        self.recording: Recording | None = recording
        self.with_codes = with_codes
        self.missing = expected
        """Samples that are still to come, where the request says how many there are."""
        self.samples: np.ndarray | None = None
        self.rate = 0
        self.key = ""


class Reference(EngineStage):
    accepts = {"audio": Pcm}
    emits = {"voice": SpeakerVoice}
    Options = ReferenceOptions

    _encoder: ReferenceEncoder
    _cache: ReferenceCache
    _checkpoint: str

    def start(self, ctx: Context) -> None:
        options: ReferenceOptions = self.options
        options.check()
        ensure(ctx.device)
        weights = options.weights
        folder = resolve(weights if isinstance(weights, str) else list(weights), ctx.report)
        files = None
        if options.cache:
            files = VoiceFiles(Path(options.cache).expanduser(), options.cache_files_mb * MIB)
        self._cache = ReferenceCache(VoiceMemory(options.cache_mb * MIB), files)
        self._checkpoint = checkpoint_identity(folder)
        ctx.report("speaker and speech encoders")
        self._encoder = self._load_encoder(folder, ctx)

    def _load_encoder(self, folder: Path, ctx: Context) -> ReferenceEncoder:
        try:
            from omnirt.actors.models.qwen3_tts.reference_encoder import ReferenceEncoder
        except ImportError as error:
            raise ConfigError(f"cloning a voice needs torch ({error}); {extra('qwen3-tts')}") from None
        encoder = ReferenceEncoder(folder, ctx.device, self.options.seconds_max)
        encoder.warm_up(self.options.seconds_max)
        return encoder

    def facts(self) -> dict[str, Any]:
        return {
            "cloning": True,
            "parameters": [PARAM, ALONE],
            "reference_rate": RATE,
            "reference_seconds_min": self.options.seconds_min,
            "reference_seconds_max": self.options.seconds_max,
        }

    def admit(self, ctx: Context, chunk: Chunk) -> None:
        row = self._of(chunk.request)
        assert row.recording is not None, "input behind its end"
        pcm: Pcm = chunk.payload
        row.recording.add(pcm.samples, pcm.rate, pcm.clip)
        if row.missing > 0:
            row.missing -= pcm.samples.size
            if row.missing <= 0:  # the text may still be written: it need not wait for that
                self._whole(chunk.request, row)

    def close(self, ctx: Context, request: Request) -> None:
        row = self._of(request)
        if row.recording is not None:
            self._whole(request, row)

    def _whole(self, request: Request, row: _Row) -> None:
        assert row.recording is not None
        samples, row.rate = row.recording.samples(), row.recording.rate
        row.samples, row.recording = samples, None
        row.key = voice_key(self._checkpoint, samples, row.rate, row.with_codes)
        request.report["reference_s"] = round(len(samples) / row.rate, 3)

    def step(self, ctx: Context, rows: list[Request]) -> list[Emission]:
        whole = [request for request in rows if self._of(request).key]
        found: dict[str, SpeakerVoice] = {}
        encoded = False
        emissions: list[Emission] = []
        for request in whole:
            row = self._of(request)
            voice = found.get(row.key) or self._cache.get(row.key)
            if voice is None and not encoded:
                voice, encoded = self._encode(row), True
            if voice is None:
                emissions.append(Emission(request, "voice", None))
            else:
                found[row.key] = voice
                emissions.append(Emission(request, "voice", voice, end=True))
        return emissions

    def forget(self, ctx: Context, request: Request) -> None:
        request.state = None

    def _of(self, request: Request) -> _Row:
        if request.state is None:
            options: ReferenceOptions = self.options
            alone = _flag(request, ALONE)
            expected = request.params.get("reference_samples", 0)
            recording = Recording(options.seconds_min, options.seconds_max)
            request.state = _Row(recording, not alone, expected if isinstance(expected, int) else 0)
        return request.state

    def _encode(self, row: _Row) -> SpeakerVoice:
        assert row.samples is not None
        voice = self._encoder.encode(heard(row.samples, row.rate), row.with_codes)
        for array in (voice.embedding, voice.codes):
            array.flags.writeable = False  # it is shared with whoever sends the same recording
        self._cache.put(row.key, voice)
        return voice


def _flag(request: Request, name: str) -> bool:
    value = request.params.get(name)
    if value is not None and not isinstance(value, bool):
        raise InvalidRequest(f"{name} must be true or false", param=name)
    return bool(value)
