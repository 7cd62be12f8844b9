"""Text in, acoustic frames out: the first half of the hibari voice.

Text may arrive in pieces; it is cut into clauses, the first one short, and a clause into breaths, mostly one. A step
does one breath, of the request that has had the least speech so far: a long text delays nobody by more than that, and a
cancelled one stops after it. What a request gets depends on its own text, voice and speed alone.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from omnirt.actors.models.hibari.decoder import RATE
from omnirt.actors.models.hibari.frames import FRAMES_PER_S, AcousticFrames, Spectra, silence
from omnirt.actors.models.hibari.network import NATIVE_SPEED_MAX, NATIVE_SPEED_MIN, Network, reader
from omnirt.actors.text.clauses import Clause, ClauseSplitter, Pause
from omnirt.actors.text.markup import MarkupReader
from omnirt.actors.text.normal import normalise
from omnirt.errors import InvalidRequest
from omnirt.runtime.stage import Chunk, Context, Emission, EngineStage, Request
from omnirt.wire.payload import Text

VOICE = {"id": "heart", "name": "Heart", "language": "en-US", "accent": "American", "gender": "female"}
SPEED_MIN, SPEED_MAX = 0.25, 4.0
PHONEMES_MAX = 300
"""In one breath. The network has only seen sentences; a clause with more (many figures) is cut."""
PAUSE_S = {Pause.NONE: 0.03, Pause.COMMA: 0.16, Pause.SENTENCE: 0.38, Pause.PARAGRAPH: 0.65}
"""Silence between two clauses at normal speed, beside the MARGIN_S of quiet that each keeps at both ends."""
MARGIN_S = 0.0375
HUSH_S = 0.2
"""What is heard of a clause that is nothing but punctuation."""
_MARKS = frozenset(';:,.!?\u2014\u2026"() \u201c\u201d')
_BREAKS = (".!?\u2026", ";:\u2014", ",", " ")


class Breath(NamedTuple):
    phonemes: str
    pause: Pause


class Utterance:
    """A request: its text as far as it is known, and what of it has been spoken."""

    def __init__(self, request: Request) -> None:
        self.speed = _speed(request)
        self.is_written = _is_written(request)
        self.markup = MarkupReader()
        self.splitter = ClauseSplitter()
        self.clauses: deque[Clause] = deque()
        self.breaths: deque[Breath] = deque()
        """Of the clause before those."""
        self.closed = False
        self.letters = False
        """Whether the text has anything in it that one might expect to hear."""
        self.pause = Pause.NONE
        """After what was spoken last."""
        self.frames = 0
        """Given so far."""
        _check_voice(request)

    def feed(self, text: str) -> None:
        self._add(self.splitter.feed(self.markup.feed(text) if self.is_written else text))

    def close(self) -> None:
        if self.is_written:
            self._add(self.splitter.feed(self.markup.close()))
        self._add(self.splitter.close())
        self.closed = True

    def _add(self, clauses: list[Clause]) -> None:
        self.clauses += clauses
        self.letters |= any(_has_letters(clause.text) for clause in clauses)

    @property
    def over(self) -> bool:
        return self.closed and not self.waiting

    @property
    def waiting(self) -> bool:
        """Whether there is something to speak."""
        return bool(self.breaths or self.clauses)


class Acoustic(EngineStage):
    accepts = {"text": Text}
    emits = {"frames": AcousticFrames}

    _network: Network
    _read: Callable[[str], str]

    def start(self, ctx: Context) -> None:
        ctx.report("reading rules")
        self._read = reader()
        ctx.report("acoustic network")
        self._network = Network()
        self._network.spectra(self._read("Ready when you are."), 1.0)

    def facts(self) -> dict[str, Any]:
        return {
            "voices": [VOICE],
            "default_voice": VOICE["id"],
            "sample_rate": RATE,
            "languages": ["English"],
            "parameters": ["speed", "normalize"],
        }

    def admit(self, ctx: Context, chunk: Chunk) -> None:
        self._of(chunk.request).feed(chunk.payload.text)

    def close(self, ctx: Context, request: Request) -> None:
        self._of(request).close()

    def step(self, ctx: Context, rows: list[Request]) -> list[Emission]:
        for request in rows:
            utterance = self._of(request)
            if utterance.over and utterance.letters and not utterance.frames:
                raise InvalidRequest("this voice reads English; it can say nothing of this text", param="input")
        emissions = [self._over(request) for request in rows if self._of(request).over]
        ready = [request for request in rows if self._of(request).waiting]
        if ready:
            chosen = min(ready, key=lambda request: self._of(request).frames)
            emissions += [Emission(request, "frames", None) for request in ready if request is not chosen]
            emissions += self._speak(chosen)
        return emissions

    def forget(self, ctx: Context, request: Request) -> None:
        request.state = None

    def _of(self, request: Request) -> Utterance:
        if request.state is None:
            request.state = Utterance(request)
        return request.state

    def _over(self, request: Request) -> Emission:
        """All clauses are spoken. A text that holds nothing to say is a short silence."""
        utterance = self._of(request)
        payload = None if utterance.frames else next(_hush().blocks(0, utterance.speed))
        return Emission(request, "frames", payload, end=True)

    def _speak(self, request: Request) -> list[Emission]:
        """The next breath. It counts as spoken only once its frames are there, so a step can be repeated."""
        utterance = self._of(request)
        if not utterance.breaths:
            utterance.breaths += self._breaths(utterance, utterance.clauses[0])
            utterance.clauses.popleft()
        if not utterance.breaths:
            return [Emission(request, "frames", None)]
        breath = utterance.breaths[0]
        spectra, shorten = self._frames(breath.phonemes, utterance.speed)
        lead = round(PAUSE_S[utterance.pause] / utterance.speed * RATE) if utterance.frames else 0
        emissions = [Emission(request, "frames", block) for block in spectra.blocks(lead, shorten)]
        utterance.breaths.popleft()
        utterance.pause = breath.pause
        utterance.frames += len(spectra.f0)
        emissions[-1].end = utterance.over
        return emissions

    def _breaths(self, utterance: Utterance, clause: Clause) -> list[Breath]:
        """What goes through the network at once, in order; nothing when nothing of the clause can be said."""
        text = normalise(clause.text) if utterance.is_written else clause.text
        phonemes = self._read(text).strip()
        if _is_mute(phonemes):
            return [] if _has_letters(clause.text) else [Breath(phonemes or ".", clause.pause)]
        if phonemes[-1] not in _MARKS:
            phonemes += "." if clause.pause in (Pause.SENTENCE, Pause.PARAGRAPH) else ","
        *most, last = portions(phonemes)
        return [*(Breath(portion, Pause.NONE) for portion in most), Breath(last, clause.pause)]

    def _frames(self, phonemes: str, speed: float) -> tuple[Spectra, float]:
        """Its frames, and by how much the decoder is to shorten it: at any speed it takes the time that it takes at
        normal speed, divided by the speed."""
        if _is_mute(phonemes):
            return _hush(), speed
        normal = self._audible(phonemes, 1.0)
        if speed == 1.0:
            return normal, 1.0
        spectra = self._audible(phonemes, min(max(speed, NATIVE_SPEED_MIN), NATIVE_SPEED_MAX))
        return spectra, len(spectra.f0) * speed / len(normal.f0)

    def _audible(self, phonemes: str, speed: float) -> Spectra:
        """Without the long silences that the network puts at both ends."""
        spectra = self._network.spectra(phonemes, speed)
        start, stop = spectra.audible()
        if start == stop:
            return _hush()
        margin = round(MARGIN_S / speed * FRAMES_PER_S)
        return spectra.cut(max(start - margin, 0), min(stop + margin, len(spectra.f0)))


def portions(phonemes: str) -> list[str]:
    """At most PHONEMES_MAX each, cut behind the strongest mark there is."""
    found: list[str] = []
    while len(phonemes) > PHONEMES_MAX:
        reach = phonemes[:PHONEMES_MAX]
        ends = (max(reach.rfind(mark) for mark in marks) + 1 for marks in _BREAKS)
        cut = next((end for end in ends if end > PHONEMES_MAX // 3), PHONEMES_MAX)
        found.append(phonemes[:cut].strip())
        phonemes = phonemes[cut:].strip()
    return [*found, phonemes] if phonemes else found


def _is_mute(phonemes: str) -> bool:
    return all(char in _MARKS for char in phonemes)


def _has_letters(text: str) -> bool:
    return any(char.isalnum() for char in text)


def _hush() -> Spectra:
    return silence(math.ceil(HUSH_S * FRAMES_PER_S))


def _speed(request: Request) -> float:
    speed = request.params.get("speed", 1.0)
    if isinstance(speed, bool) or not isinstance(speed, int | float) or not SPEED_MIN <= speed <= SPEED_MAX:
        raise InvalidRequest(f"speed must be a number from {SPEED_MIN} to {SPEED_MAX}", param="speed")
    return float(speed)


def _is_written(request: Request) -> bool:
    written = request.params.get("normalize", True)
    if not isinstance(written, bool):
        raise InvalidRequest("normalize must be true or false", param="normalize")
    return written


def _check_voice(request: Request) -> None:
    voice = request.params.get("voice") or VOICE["id"]
    if voice != VOICE["id"]:
        raise InvalidRequest(f"there is no voice {voice!r}; choose {VOICE['id']}", param="voice")
