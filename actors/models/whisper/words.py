"""Words with their times, as an alignment of tokens gives them -> as one would have heard them. Pure.

An alignment tells when a token begins, so a pause counts to the word before or behind it. Words beside the end of a
sentence that are much longer than the others give the pause back.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from omnirt.wire.payload import Word

TYPICAL_S_MAX = 0.7
LONG = 2.0
"""Times the typical word."""
ENDS = (".", "!", "?", "\u3002", "\uff01", "\uff1f")


def without_pauses(words: Sequence[Word]) -> list[Word]:
    lengths = [word.end_s - word.start_s for word in words if word.end_s > word.start_s]
    limit_s = LONG * min(statistics.median(lengths), TYPICAL_S_MAX) if lengths else 0.0
    fitted: list[Word] = []
    begins = True
    for word in words:
        ends = word.text.rstrip().endswith(ENDS)
        is_long = word.end_s - word.start_s > limit_s
        start_s = word.end_s - limit_s if is_long and begins else word.start_s
        end_s = word.start_s + limit_s if is_long and ends and not begins else word.end_s
        fitted.append(Word(word.text, start_s, end_s, word.probability))
        begins = ends
    return fitted
