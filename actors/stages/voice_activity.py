"""Recordings in, utterances out: the stretches in which somebody speaks, as soon as their end is known.

    speech       ====   === ==                ====== ===
    utterances  |-------------|              |----------|      pauses up to `pause_s` stay inside, as they are

Joining neighbours pays: a recogniser takes whole windows, and understands more of more. The same samples give the same
utterances, however they were cut into payloads. Recordings are 16 kHz: whoever takes them from clients resamples.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import numpy as np

from omnirt.actors.models.silero.detector import Detector, Event, Sensitivity, SpeechStarted
from omnirt.actors.models.silero.network import Memory, Network
from omnirt.actors.stages.utterance import RATE, Utterance
from omnirt.errors import ConfigError, StageFailed
from omnirt.runtime.stage import Chunk, Context, Emission, Request, Stage
from omnirt.wire.payload import Pcm

UTTERANCE_MAX_S = 30.0
"""What a recogniser hears at once."""


class VoiceActivityOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first three as the authors of silero have them."""

    threshold: float = 0.5
    """What is at least as likely to be speech is speech."""
    speech_s: float = 0.25
    """Shorter is no speech."""
    silence_s: float = 0.1
    """Shorter is no pause."""
    pad_s: float = 0.2
    """Kept before speech, and of the silence behind it. Its authors have 0.03; quiet first sounds need more."""
    pause_s: float = 1.5
    """Longer ends an utterance."""
    joined_s: float = 15.0
    """Speech with pauses is cut at the longest pause before it gets longer: a window of twice the length costs more
    than twice as much, and the first words are there sooner."""
    speech_max_s: float = 28.0
    """Speech without pauses is cut at its least likely place."""

    def sensitivity(self) -> Sensitivity:
        return Sensitivity(self.threshold, self.speech_s, self.silence_s, self.pad_s, self.speech_max_s)

    def check(self) -> None:
        """Raises ConfigError."""
        if not 0.0 < self.threshold < 1.0:
            raise ConfigError("threshold must be between 0 and 1")
        if min(self.speech_s, self.silence_s, self.pad_s, self.pause_s) < 0.0:
            raise ConfigError("speech_s, silence_s, pad_s and pause_s must not be negative")
        if not 1.0 <= self.joined_s <= UTTERANCE_MAX_S or not 1.0 <= self.speech_max_s <= UTTERANCE_MAX_S:
            raise ConfigError(f"joined_s and speech_max_s must be from 1 to {UTTERANCE_MAX_S}")


class Span(NamedTuple):
    """Samples of a recording."""

    start: int
    stop: int


class Recording:
    """A clip as far as it is known: its samples that may still be wanted, and the speech that is not yet sent."""

    def __init__(self, clip: int, detector: Detector, options: VoiceActivityOptions) -> None:
        self.clip = clip
        self.length = 0
        self.speech = 0
        """Samples in utterances."""
        self._detector = detector
        self._pause = round(options.pause_s * RATE)
        self._joined = round(options.joined_s * RATE)
        self._kept = np.zeros(0, np.int16)
        """The last of it."""
        self._started = 0
        """Where the speech began whose end is not known."""
        self._spans: list[Span] = []
        """Speech whose end is known and that belongs into one utterance."""

    def feed(self, samples: np.ndarray) -> Iterator[Utterance]:
        """`samples`: [T] int16."""
        self.length += len(samples)
        self._kept = np.concatenate((self._kept, samples))
        yield from self._follow(self._detector.feed(samples.astype(np.float32) / 32768.0))
        if self._spans and not self._detector.speaking and self._is_apart(self._detector.clear_until):
            yield self._utterance(len(self._spans))
        self._forget()

    def end(self) -> Iterator[Utterance]:
        """The last one says so, and how long the clip is."""
        yield from self._follow(self._detector.end())
        last = self._utterance(len(self._spans))
        yield msgspec.structs.replace(last, last=True, clip_s=self.length / RATE)

    def _follow(self, events: list[Event]) -> Iterator[Utterance]:
        for event in events:
            if isinstance(event, SpeechStarted):
                self._started = event.at
                if self._spans and self._is_apart(event.at):
                    yield self._utterance(len(self._spans))
            else:
                self._spans.append(Span(self._started, event.at))
                while len(self._spans) > 1 and event.at - self._spans[0].start > self._joined:
                    yield self._utterance(self._longest_pause())

    def _is_apart(self, start: int) -> bool:
        """Whether speech from there on is another utterance."""
        return start - self._spans[-1].stop > self._pause

    def _longest_pause(self) -> int:
        """How many spans lie before the longest pause of the later half; before the last one if there is none."""
        half = self._spans[0].start + self._joined // 2
        pauses = [
            (after.start - before.stop, count)
            for count, (before, after) in enumerate(zip(self._spans, self._spans[1:], strict=False), start=1)
            if before.stop >= half
        ]
        return max(pauses)[1] if pauses else len(self._spans) - 1

    def _utterance(self, count: int) -> Utterance:
        """Of the first spans."""
        if not count:
            return Utterance(self._kept[:0], self.clip, self.length / RATE)
        start, stop = self._spans[0].start, self._spans[count - 1].stop
        del self._spans[:count]
        self.speech += stop - start
        before = self.length - len(self._kept)
        return Utterance(self._kept[start - before : stop - before].copy(), self.clip, start / RATE)

    def _forget(self) -> None:
        """Samples that no utterance can hold any more."""
        wanted = [self._detector.clear_until, *(span.start for span in self._spans[:1])]
        if self._detector.speaking:
            wanted.append(self._started)
        self._kept = self._kept[len(self._kept) - (self.length - min(wanted)) :].copy()


class Listening:
    """A request: the clip that goes on, and counts over those before."""

    def __init__(self) -> None:
        self.recording: Recording | None = None
        self.samples = self.speech = self.utterances = 0

    def take_end(self) -> Iterator[Utterance]:
        recording, self.recording = self.recording, None
        if recording is not None:
            yield from recording.end()
            self.samples += recording.length
            self.speech += recording.speech


class VoiceActivity(Stage):
    accepts = {"audio": Pcm}
    emits = {"utterance": Utterance}
    Options = VoiceActivityOptions

    _network: Network

    def start(self, ctx: Context) -> None:
        self.options.check()
        ctx.report("silero")
        self._network = Network()
        self._network.judge(np.zeros(1 << 14, np.float32), Memory())

    def facts(self) -> dict[str, Any]:
        return {"input_sample_rate": RATE}

    def step(self, ctx: Context, chunks: list[Chunk]) -> list[Emission]:
        for chunk in chunks:
            _check(chunk)
        return [emission for chunk in chunks for emission in self._hear(chunk)]

    def finish(self, ctx: Context, request: Request) -> list[Emission]:
        if request.state is None:
            return []
        emissions = list(self._sent(request, request.state.take_end()))
        counts = {"audio_s": request.state.samples / RATE, "speech_s": request.state.speech / RATE}
        request.report.update(counts, utterances=request.state.utterances)
        return emissions

    def forget(self, ctx: Context, request: Request) -> None:
        request.state = None

    def _hear(self, chunk: Chunk) -> Iterator[Emission]:
        request, pcm = chunk.request, chunk.payload
        if request.state is None:
            request.state = Listening()
        listening = request.state
        if listening.recording is not None and listening.recording.clip != pcm.clip:
            yield from self._sent(request, listening.take_end())
        if listening.recording is None:
            listening.recording = Recording(pcm.clip, self._detector(), self.options)
        yield from self._sent(request, listening.recording.feed(_int16(pcm.samples)))

    def _detector(self) -> Detector:
        return Detector(self._network, self.options.sensitivity())

    def _sent(self, request: Request, utterances: Iterator[Utterance]) -> Iterator[Emission]:
        for utterance in utterances:
            request.state.utterances += bool(len(utterance.samples))
            yield Emission(request, "utterance", utterance)


def _check(chunk: Chunk) -> None:
    """Raises StageFailed."""
    pcm, listening = chunk.payload, chunk.request.state
    if pcm.rate != RATE:
        raise StageFailed(f"recordings must have {RATE} samples a second here, not {pcm.rate}")
    if pcm.samples.dtype not in (np.int16, np.float32) or pcm.samples.ndim != 1:
        raise StageFailed("recordings must be one row of int16 or float32 samples")
    if listening is not None and listening.recording is not None and pcm.clip < listening.recording.clip:
        raise StageFailed(f"recording {pcm.clip} came after recording {listening.recording.clip}")


def _int16(samples: np.ndarray) -> np.ndarray:
    """What is louder stays at the rail; what is no number is silence."""
    if samples.dtype == np.int16:
        return samples
    inside = np.clip(np.nan_to_num(samples), -1.0, 1.0)
    return np.minimum(np.rint(inside * 32768.0), 32767.0).astype(np.int16)
