"""What the frame engine asks of a device: the rows it keeps there, prefill, and one frame for the first rows of them.

Everything is asynchronous and in the order of the calls (one stream); nothing here waits for the device.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from torch import Tensor

from omnirt.kernels.frame_layout import FrameRows, FrameShape


class Piece(NamedTuple):
    """`rows` [T, W]: inputs of the backbone at positions `start`, `start` + 1, ... of a row."""

    row: int
    start: int
    rows: Tensor


class FrameStep(Protocol):
    shape: FrameShape
    state: FrameRows
    buckets: tuple[int, ...]
    """Sizes it can run, ascending; the last one is all rows that can be used."""
    prefill_max: int
    """Positions that one call of `prefill` takes."""

    def prefill(self, pieces: list[Piece]) -> None:
        """Keys and values of these inputs. Causal within a piece and over what the row's pages hold before it."""
        ...

    def run(self, bucket: int) -> None:
        """One frame: rows 0 to `bucket` - 1, of which those that are active go on (see FrameRows)."""
        ...
