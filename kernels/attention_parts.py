"""How the positions of a row are cut for attention, and the room for the sums of its parts.

    room = AttentionRoom.make(rows, heads, device)

A row is cut into the fewest parts of a longest length, at most PARTS, and these are as even as whole pages allow. So a
cut depends on a row's own length only.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

PARTS = 16
"""Of a row and key/value head, at most."""
_SUMS = 2 * 128
"""Of a part: what two query heads have seen; beside them, the largest score and the sum of weights of each."""


LONGEST = 384
"""Positions of a part, among any number of rows. A shorter one makes the others wait less, but many long rows more:
each part begins with its queries."""
LONGEST_ALONE = 64
"""Of a row that has the device to itself."""


class AttentionRoom(NamedTuple):
    """Kept between calls: counts return to zero."""

    sums: Tensor
    weights: Tensor
    counts: Tensor

    @staticmethod
    def make(rows: int, heads: int, device: torch.device | str) -> AttentionRoom:
        parts = rows * heads * PARTS
        sums, weights = torch.empty(parts * _SUMS, device=device), torch.empty(parts * 4, device=device)
        return AttentionRoom(sums, weights, torch.zeros(rows * heads, device=device, dtype=torch.int32))


def room_bytes(rows: int, heads: int) -> int:
    return 4 * rows * heads * (PARTS * (_SUMS + 4) + 1)
