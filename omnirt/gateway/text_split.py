"""Text that arrives in pieces, cut where a sentence or a clause ends.

Nothing is held back: a piece is given on at once, and that it ended a sentence is said as soon as it shows, which for
a full stop is when a space follows (`3.` may go on as `3.14`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

GRANULARITIES = ("none", "sentence", "clause")
CLOSING = "\"'”’)\\]»」』）】"
SURE = {"sentence": "。！？\n", "clause": "。！？\n，；、"}
"""Characters that end one wherever they are."""
LIKELY = {"sentence": ".!?…", "clause": ".!?…,;:"}
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
        before = len(self._tail)
        whole = self._tail + text
        start = before
        for match in self._ends.finditer(whole):
            if match.end() >= before:
                yield whole[start : match.end()], True
                start = match.end()
        open_end = self._open.search(whole, max(start, len(whole) - TAIL_CHARS))
        self._tail = whole[open_end.start() :] if open_end else ""
        if start < len(whole):
            yield whole[start:], False
