"""Tokens of a window -> stretches of text with their times. Pure.

<0.00> Hello there. <1.20> <1.80> How are you? <2.60>          two stretches, all is said
<0.00> Hello there. <1.20> <1.20>                              one; the next one was begun: go on from 1.20
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

TIMESTAMP_S = 0.02


class Stretch(NamedTuple):
    """Seconds from the beginning of the window."""

    start_s: float
    stop_s: float
    tokens: tuple[int, ...]
    """Of text alone."""


class Reading(NamedTuple):
    stretches: list[Stretch]
    stop_s: float
    """Up to where the window was read; what is behind it was not written down."""
    is_broken_off: bool
    """Whether a stretch was begun and left."""
    is_beyond: bool
    """Whether there was text that begins behind the sound. It is left out."""


def read(tokens: Sequence[int], end_of_text: int, first_timestamp: int, length_s: float) -> Reading:
    """`length_s`: of the sound in the window; no time lies behind it, and text that begins there is not of it."""
    found: list[Stretch] = []
    text: list[int] = []
    start_s = stop_s = 0.0
    stamps = 0
    for token in tokens:
        if token < end_of_text:
            text.append(token)
            stamps = 0
        elif token >= first_timestamp:
            stop_s = (token - first_timestamp) * TIMESTAMP_S
            if text:
                found.append(Stretch(start_s, stop_s, tuple(text)))
                text = []
            start_s = stop_s
            stamps += 1
    if text:
        stop_s = length_s
        found.append(Stretch(start_s, stop_s, tuple(text)))
    inside = [
        Stretch(each.start_s, min(max(each.stop_s, each.start_s), length_s), each.tokens)
        for each in found
        if each.start_s < length_s
    ]
    return Reading(inside, min(stop_s, length_s), bool(found) and stamps > 1, len(inside) < len(found))
