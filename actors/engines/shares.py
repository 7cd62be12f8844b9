"""How a step's prefill is shared out. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

S = TypeVar("S")


def shares(waiting: Sequence[S], left_of: Callable[[S], int], most: int) -> dict[S, int]:
    """How many positions of whose prompts to compute, `most` in all; `waiting` in order of arrival.

    The oldest has the first half, so that it gets on whatever comes after it; what is left goes to the shortest, so
    that a short prompt never waits for a long one.
    """
    if not waiting:
        return {}
    oldest, *younger = waiting
    younger.sort(key=left_of)
    left, counts = most, dict.fromkeys(waiting, 0)
    for one, share in [(oldest, -(-left // 2)), *((one, most) for one in younger), (oldest, most)]:
        count = min(share, left, left_of(one) - counts[one])
        counts[one] += count
        left -= count
    return {one: count for one, count in counts.items() if count}
