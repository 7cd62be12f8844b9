"""Utterances in, transcripts out: Whisper.

A step is one attempt at one window, of the request that has been heard least: a long recording delays nobody by more
than that. What a request gets depends on its own recordings and wishes alone.

Params: `timestamps` ("none", "segment" or "word") says that a request is for the recogniser; only then are `language`,
`prompt`, `temperature` and `task` its own. Those of a conversation are meant for a language model.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec
import numpy as np

from omnirt.actors.models.sources import resolve
from omnirt.actors.models.whisper.hearing import WINDOW_MIN_S, Hearing, Segment
from omnirt.actors.models.whisper.model import FULL_S, Whisper, Wish
from omnirt.actors.models.whisper.wishes import PARAMETERS, wish_of
from omnirt.actors.stages.utterance import RATE, Utterance
from omnirt.errors import ConfigError, StageFailed
from omnirt.runtime.stage import Chunk, Context, Emission, EngineStage, Request
from omnirt.wire.payload import Transcript, Word

INPUT_TOKENS_PER_S = 50
"""Positions of Whisper's encoder, which is how it counts sound."""


class RecogniserOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    weights: str | tuple[str, ...]
    """A folder in CTranslate2's layout, a repository of the hub, or `package:NAME==VERSION`; of several, the first to
    be had."""
    compute_type: str = "auto"
    """Of CTranslate2; `auto` is int8 on a CPU and float16 elsewhere."""
    beam_size: int = 1
    """5 hears clear speech no better and takes half as long again."""
    language: str = ""
    """Of requests that name none; when left out, too, it is found out."""
    temperatures: tuple[float, ...] = (0.0, 0.4, 0.8)
    """Of requests that name none: the next one is tried when the one before leaves doubt."""
    window_min_s: float = WINDOW_MIN_S
    """The encoder's window for short utterances. 30 is what Whisper was made for."""

    def check(self) -> None:
        """Raises ConfigError."""
        if self.beam_size < 1:
            raise ConfigError("beam_size must be at least 1")
        if not self.temperatures or not all(0.0 <= value <= 1.0 for value in self.temperatures):
            raise ConfigError("temperatures must be numbers from 0 to 1, at least one")
        if not 1.0 <= self.window_min_s <= FULL_S:
            raise ConfigError(f"window_min_s must be from 1 to {FULL_S}")


class Listener:
    """A request: its utterances that wait, and the one that is being heard."""

    def __init__(self, wish: Wish) -> None:
        self.wish = wish
        self.waiting: deque[Utterance] = deque()
        """At most the request's own recordings, 32 kB a second."""
        self.utterance: Utterance | None = None
        self.hearing: Hearing | None = None
        self.closed = False
        self.language = ""
        """Found out, of the clip at hand."""
        self.counts: dict[str, Any] = {"audio_s": 0.0, "heard_s": 0.0, "segments": 0, "windows": 0, "output_tokens": 0}

    @property
    def busy(self) -> bool:
        return bool(self.waiting) or self.hearing is not None

    def next_hearing(self, window_min_s: float) -> Hearing | None:
        """The utterance at hand; None when it holds nothing."""
        if self.hearing is None:
            self.utterance = self.waiting.popleft()
            wish = self.wish._replace(language=self.wish.language or self.language)
            if len(self.utterance.samples):
                self.hearing = Hearing(self.utterance.samples, wish, window_min_s)
        return self.hearing


class Recogniser(EngineStage):
    accepts = {"utterance": Utterance}
    emits = {"transcript": Transcript}
    Options = RecogniserOptions

    _model: Whisper
    _usual: Wish

    def start(self, ctx: Context) -> None:
        self.options.check()
        weights = self.options.weights
        folder = resolve(weights if isinstance(weights, str) else list(weights), ctx.report)
        ctx.report("recogniser")
        kind = self.options.compute_type
        if kind == "auto":
            kind = "int8" if ctx.device == "cpu" else "float16"
        self._model = Whisper(folder, ctx.device, kind, ctx.threads)
        language = self.options.language or ("" if self._model.is_multilingual else "en")
        if language and language not in self._model.languages:
            raise ConfigError(f"language {language!r} is not one of the model's: {', '.join(self._model.languages)}")
        self._usual = Wish(language, beam=self.options.beam_size, temperatures=self.options.temperatures)
        noise = np.random.default_rng(0).integers(-999, 999, RATE, np.int16)
        Hearing(noise, self._usual, self.options.window_min_s).attempt(self._model)

    def facts(self) -> dict[str, Any]:
        """Its languages have a name of their own: `languages` are those of a voice."""
        return {
            "parameters": list(PARAMETERS),
            "recognised_languages": list(self._model.languages),
            "translation": self._model.is_multilingual,
        }

    def admit(self, ctx: Context, chunk: Chunk) -> None:
        utterance: Utterance = chunk.payload
        if utterance.samples.dtype != np.int16 or len(utterance.samples) > FULL_S * RATE:
            raise StageFailed(f"an utterance must be int16 and at most {FULL_S} s long")
        copy = msgspec.structs.replace(utterance, samples=utterance.samples.copy())
        self._of(chunk.request).waiting.append(copy)

    def close(self, ctx: Context, request: Request) -> None:
        self._of(request).closed = True

    def step(self, ctx: Context, rows: list[Request]) -> list[Emission]:
        ready = [request for request in rows if self._of(request).busy]
        emissions: list[Emission] = []
        if ready:
            chosen = min(ready, key=lambda request: self._of(request).counts["heard_s"])
            emissions += self._hear(chosen)
        for request in rows:
            listener = self._of(request)
            if listener.busy:
                emissions.append(Emission(request, "transcript", None))
            elif listener.closed:
                emissions.append(Emission(request, "transcript", None, end=True))
        return emissions

    def forget(self, ctx: Context, request: Request) -> None:
        request.state = None

    def _of(self, request: Request) -> Listener:
        if request.state is None:
            request.state = Listener(wish_of(request.params, self._usual, self._model.languages))
        return request.state

    def _hear(self, request: Request) -> list[Emission]:
        listener = self._of(request)
        hearing = listener.next_hearing(self.options.window_min_s)
        utterance = listener.utterance
        assert utterance is not None
        transcripts: list[Transcript] = []
        if hearing is not None:
            segments = hearing.attempt(self._model)
            transcripts = [_transcript(segment, utterance, hearing.wish.language) for segment in segments]
            listener.language = hearing.wish.language
            if hearing.over:
                listener.hearing = None
                listener.counts["heard_s"] += len(utterance.samples) / RATE
                listener.counts["windows"] += hearing.windows
        if utterance.last and listener.hearing is None:
            transcripts = _ended(transcripts, utterance)
            listener.language = ""
            listener.counts["audio_s"] += utterance.clip_s
        listener.counts["segments"] += sum(bool(transcript.text) for transcript in transcripts)
        listener.counts["output_tokens"] += sum(len(transcript.tokens) for transcript in transcripts)
        input_tokens = round(listener.counts["audio_s"] * INPUT_TOKENS_PER_S)
        request.report.update(listener.counts, input_tokens=input_tokens)
        return [Emission(request, "transcript", transcript) for transcript in transcripts]


def _transcript(segment: Segment, utterance: Utterance, language: str) -> Transcript:
    """In seconds of the recording."""
    at_s = utterance.start_s
    return Transcript(
        segment.text,
        utterance.clip,
        segment.start_s + at_s,
        segment.stop_s + at_s,
        language,
        tuple(Word(word.text, word.start_s + at_s, word.end_s + at_s, word.probability) for word in segment.words),
        segment.of.avg_logprob,
        segment.of.no_speech_prob,
        segment.of.compression_ratio,
        segment.of.temperature,
        segment.tokens,
    )


def _ended(transcripts: list[Transcript], utterance: Utterance) -> list[Transcript]:
    """The last of the clip says so, if need be without text."""
    at_s = utterance.clip_s
    *most, last = transcripts or [Transcript("", utterance.clip, at_s, at_s)]
    return [*most, msgspec.structs.replace(last, last=True, clip_s=utterance.clip_s)]
