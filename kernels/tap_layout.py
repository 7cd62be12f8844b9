# pyright: basic, reportMissingImports=false, reportIndexIssue=false
"""What the kernels of a codec's decoder are told of a launch: where buffers lie, tiles, how many positions count."""

from __future__ import annotations

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor


@dataclass(frozen=True)
class View:
    """Where a buffer's positions start: a tensor, numbers from row to row, numbers before the first position."""

    data: Tensor
    row: int
    first: int = 0


@dataclass(frozen=True)
class Tile:
    """Rows, columns and depth of a block of the product; warps; loads under way."""

    m: int
    n: int
    k: int
    warps: int
    stages: int


@dataclass(frozen=True)
class Extent:
    """What a launch covers: `frames` frames, of `each` positions, of `rows` rows. With `live` (int32 on the device:
    rows, frames) only so many of them, which may change between two replays of a graph."""

    rows: int
    frames: int
    each: int
    live: Tensor | None = None
    early: bool = False
    """Start while the launch before ends, and let the next one in after the products."""

    @property
    def positions(self) -> int:
        return self.rows * self.frames * self.each

    def arguments(self, unused: Tensor) -> tuple[Tensor, int, int, int]:
        """As a kernel takes them. Counts stand alone there, since a tuple's numbers would each be compiled for."""
        return self.live if self.live is not None else unused, self.rows, self.frames, self.each


@triton.jit
def positions_of(live, rows, frames, each, is_live: tl.constexpr):
    """Of a row, and of all rows."""
    if is_live:
        rows = tl.load(live)
        frames = tl.load(live + 1)
    return frames * each, rows * frames * each
