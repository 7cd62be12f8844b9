"""One utterance on its way to text, an attempt at a time, so that a difficult one holds nobody up for long.

    short window, temperature 0  -> good: done
                                 -> repeats itself, or says more than there is: the full window
                                 -> unsure: higher temperatures, and in the end the best of what was tried
                                 -> no speech: nothing

In a window that ends less than MARGIN_S behind the sound, or before WINDOW_MIN_S, one sentence in 10 to 40 is written
again and again; with these, none of 400 was, and as many words are right as in full windows (97 % in noise).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from omnirt.actors.models.whisper.model import FULL_S, RATE, TOKENS_MAX, Decoded, Encoded, Whisper, Wish
from omnirt.wire.payload import Word

WINDOW_MIN_S = 10.0
MARGIN_S = 4.0
COMPRESSION_MAX = 2.4
LOGPROB_MIN = -1.0
NO_SPEECH_MIN = 0.6
NO_SPEECH_SURE = 0.85
"""Speech in noise as loud as itself stays below 0.55. Noise alone is above, however fluent what is made of it."""
TOKENS_BASE, TOKENS_PER_S = 24, 12
"""More than anybody says in that time."""
LEFT_S = 1.0
"""Of a window that was broken off: less is not gone back to."""
UNREAD_S = 3.0
"""No pause within an utterance is as long: what was not written down behind the last words is heard again."""


class Segment(NamedTuple):
    """Seconds from the beginning of the utterance."""

    text: str
    start_s: float
    stop_s: float
    tokens: tuple[int, ...]
    words: tuple[Word, ...]
    of: Decoded


class Hearing:
    def __init__(self, samples: np.ndarray, wish: Wish, window_min_s: float = WINDOW_MIN_S) -> None:
        """`samples`: [T] int16 at RATE, FULL_S at most."""
        self.wish = wish
        self.windows = 0
        """Decoded so far: what it cost."""
        self._samples = samples
        self._window_min_s = window_min_s
        self._at = 0
        """Samples that are done with."""
        self._encoded: Encoded | None = None
        self._tried: list[Decoded] = []
        """With the window at hand."""

    @property
    def over(self) -> bool:
        return self._at >= len(self._samples)

    def attempt(self, model: Whisper) -> list[Segment]:
        """What has become certain; often all there is."""
        encoded = self._encoded or self._encode(model)
        is_short = encoded.window_s < FULL_S
        temperature = self.wish.temperatures[len(self._tried)]
        decoded = model.decode(encoded, self.wish, temperature, tokens_max(encoded) if is_short else TOKENS_MAX)
        self.windows += 1
        if is_silence(decoded):
            return self._settle([], len(self._samples))
        if is_short and is_runaway(decoded):
            self._encoded = model.encode(self._samples[self._at :], FULL_S)
            return []
        self._encoded = encoded
        self._tried.append(decoded)
        if is_doubtful(decoded) and len(self._tried) < len(self.wish.temperatures):
            return []
        return self._take(model, encoded, best(self._tried))

    def _encode(self, model: Whisper) -> Encoded:
        rest = self._samples[self._at :]
        wanted_s = max(self._window_min_s, len(rest) / RATE + MARGIN_S)
        encoded = model.encode(rest, min(wanted_s, FULL_S))
        if not self.wish.language:
            self.wish = self.wish._replace(language=model.language(encoded))
        return encoded

    def _take(self, model: Whisper, encoded: Encoded, decoded: Decoded) -> list[Segment]:
        offset_s = self._at / RATE
        stretches = decoded.reading.stretches
        words: list[list[Word]] = [[] for _ in stretches]
        if self.wish.words and stretches:
            words = model.words(encoded, [stretch.tokens for stretch in stretches], self.wish)
        segments: list[Segment] = []
        for stretch, said in zip(stretches, words, strict=True):
            start_s, stop_s = (said[0].start_s, said[-1].end_s) if said else (stretch.start_s, stretch.stop_s)
            text = model.text(stretch.tokens, self.wish)
            moved = tuple(Word(w.text, w.start_s + offset_s, w.end_s + offset_s, w.probability) for w in said)
            if text.strip():
                times = start_s + offset_s, stop_s + offset_s
                segments.append(Segment(text, *times, stretch.tokens, moved, decoded))
        return self._settle(segments, self._next(encoded, decoded))

    def _next(self, encoded: Encoded, decoded: Decoded) -> int:
        """Where the next window begins: at the end, unless some of this one was left out."""
        reading = decoded.reading
        left_s = encoded.length_s - reading.stop_s
        is_left = left_s > (LEFT_S if reading.is_broken_off else UNREAD_S)
        if is_left and reading.stretches and reading.stop_s >= LEFT_S:
            return self._at + round(reading.stop_s * RATE)
        return len(self._samples)

    def _settle(self, segments: list[Segment], at: int) -> list[Segment]:
        self._at = at
        self._encoded = None
        self._tried = []
        return segments


def tokens_max(encoded: Encoded) -> int:
    return TOKENS_BASE + round(TOKENS_PER_S * encoded.length_s)


def is_runaway(decoded: Decoded) -> bool:
    """It does not know where to stop."""
    return decoded.is_cut or decoded.compression_ratio > COMPRESSION_MAX or decoded.reading.is_beyond


def is_silence(decoded: Decoded) -> bool:
    is_unsure = decoded.avg_logprob < LOGPROB_MIN
    return decoded.no_speech_prob > (NO_SPEECH_MIN if is_unsure else NO_SPEECH_SURE)


def is_doubtful(decoded: Decoded) -> bool:
    return decoded.compression_ratio > COMPRESSION_MAX or decoded.avg_logprob < LOGPROB_MIN


def best(tried: Sequence[Decoded]) -> Decoded:
    """The first good one, else the likeliest of those that do not repeat themselves."""
    if not is_doubtful(tried[-1]):
        return tried[-1]
    plain = [decoded for decoded in tried if decoded.compression_ratio <= COMPRESSION_MAX]
    return max(plain or tried, key=lambda decoded: decoded.avg_logprob)
