"""Transcripts of one recording put together: pure.

    stretches from the recogniser    " Hello there."   ""   "How are you?"   (last, no text)
    what a stream is given           "Hello there."         " How are you?"
    the text                         "Hello there. How are you?"

Invariant: the pieces given to a stream join to the text exactly. Recognisers begin a stretch with a space where the
language has spaces; one that leaves it out gets it where two words would run together.
"""

from __future__ import annotations

import unicodedata

from omnirt.wire.payload import Transcript, Word

UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")
"""Scripts without spaces between words, by how the names of their characters begin."""


class Assembly:
    def __init__(self) -> None:
        self.segments: list[Transcript] = []
        """Those with text, in order."""
        self.language = ""
        self._pieces: list[str] = []
        self._before = ""
        """The stretch before, as it came."""

    def add(self, transcript: Transcript) -> str:
        """What the stretch adds to the text; empty when it has none."""
        self.language = self.language or transcript.language
        words = " ".join(transcript.text.split())
        if not words:
            return ""
        piece = (" " if self._is_apart(transcript.text) else "") + words
        self.segments.append(transcript)
        self._pieces.append(piece)
        self._before = transcript.text
        return piece

    def text(self) -> str:
        return "".join(self._pieces)

    def words(self) -> list[Word]:
        return [word for segment in self.segments for word in segment.words]

    def _is_apart(self, text: str) -> bool:
        if not self._before:
            return False
        last, first = self._before[-1], text[0]
        return last.isspace() or first.isspace() or not (_is_unspaced(last) or _is_unspaced(first))


def _is_unspaced(character: str) -> bool:
    return unicodedata.east_asian_width(character) in ("W", "F") or unicodedata.name(character, "").startswith(UNSPACED)
