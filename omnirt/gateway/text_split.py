"""Text that arrives in pieces, cut where a sentence or a clause ends.

Nothing is held back: a piece is given on at once, and that it ended a sentence is said as soon as it shows, which for
a full stop is when a space follows (`3.` may go on as `3.14`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

GRANULARITIES = ("none", "sentence", "clause")
CLOSING = "\"'\u201d\u2019)\\]\u00bb\u300d\u300f\uff09\u3011"
"""Quotes and brackets behind a full stop belong to its sentence."""
SURE = {"sentence": "\u3002\uff01\uff1f\n", "clause": "\u3002\uff01\uff1f\n\uff0c\uff1b\uff1a\u3001"}
"""Characters that end one wherever they are: line breaks, and those of Chinese and Japanese."""
LIKELY = {"sentence": ".!?\u2026", "clause": ".!?\u2026,;:"}
"""Characters that end one before a space."""
TAIL_CHARS = 16


class Splitter:
    def __init__(self, granularity: str) -> None:
        self._ends = self._open = None
        if granularity != "none":
            sure, likely = SURE[granularity], LIKELY[granularity]
            self._ends = re.compile(f"[{sure}]+[{CLOSING}]*|[{likely}]+[{CLOSING}]*(?=\\s)")
            self._open = re.compile(f"[{likely}][{likely}{CLOSING}]*\\Z")
        self._tail = ""
        """What the text so far ends with, if a space behind it would be an end."""

    def feed(self, text: str) -> Iterator[tuple[str, bool]]:
        """`text` in pieces, in order, and of each whether it ends a sentence. A piece may be empty."""
        if self._ends is None or self._open is None:
            yield text, False
            return
        whole = self._tail + text
        given, end = len(self._tail), 0
        for match in self._ends.finditer(whole):
            end = match.end()
            yield whole[given:end], True
            given = end
        left = self._open.search(whole, max(end, len(whole) - TAIL_CHARS))
        self._tail = whole[left.start() :] if left else ""
        if given < len(whole):
            yield whole[given:], False
