"""What a codec-frame model will need of a device, worked out before anything is loaded.

The pages are the rest: as many as all rows at full length can use, fewer where memory is short, never less than one
row's. What was planned is allocated at the start, so a server that has started can hold what it admits.
"""

from __future__ import annotations

import msgspec

from omnirt.actors.engines.frame.pages import pages_for
from omnirt.errors import ConfigError
from omnirt.kernels.frame_layout import PAGE, FrameShape

SHARE = 0.9
"""Of the memory that is free on the device, what may be planned with; the rest is for what libraries keep."""


class FrameWants(msgspec.Struct, frozen=True, kw_only=True):
    rows: int
    """Sequences at the same time."""
    positions: int
    """That a prompt and its frames may have together."""
    lines: int
    """Of text that a row can have waiting."""
    number_bytes: int
    """Of a number of the weights and the cache: 2 or 4."""
    weights_bytes: int
    """In all the layouts that are kept."""
    other_bytes: int = 0
    """Whatever else the process keeps there: work space, graphs, a decoder."""
    bytes_max: int = 0
    """The plan stays below. 0: what is free decides."""


class FramePlan(msgspec.Struct, frozen=True):
    pages: int
    """For FrameRows.make: the one that is nobody's included."""
    row_pages: int
    weights_bytes: int
    rows_bytes: int
    pages_bytes: int
    other_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.weights_bytes + self.rows_bytes + self.pages_bytes + self.other_bytes

    def __str__(self) -> str:
        parts = (
            f"weights {_gib(self.weights_bytes)}, rows {_gib(self.rows_bytes)}, "
            f"{self.pages} pages {_gib(self.pages_bytes)}, other {_gib(self.other_bytes)}"
        )
        return f"{_gib(self.total_bytes)} GiB ({parts})"


def planned(shape: FrameShape, wants: FrameWants, free_bytes: int) -> FramePlan:
    """Raises ConfigError when not even one row of full length fits: what is needed, what is there, what would help."""
    usable = int(SHARE * free_bytes)
    if wants.bytes_max:
        usable = min(usable, wants.bytes_max)
    row_pages = pages_for(wants.positions)
    page_bytes = PAGE * shape.kv_bytes * wants.number_bytes // 2
    rows_bytes = state_bytes(shape, wants)
    left = usable - wants.weights_bytes - rows_bytes - wants.other_bytes
    pages = max(1 + row_pages, min(1 + wants.rows * row_pages, left // page_bytes))
    plan = FramePlan(pages, row_pages, wants.weights_bytes, rows_bytes, pages * page_bytes, wants.other_bytes)
    if plan.total_bytes > usable:
        raise ConfigError(
            f"the model does not fit: with one row's pages alone it needs {plan}, and {_gib(usable)} of "
            f"{_gib(free_bytes)} GiB free may be used; fewer rows (now {wants.rows}), fewer positions "
            f"(now {wants.positions}), fewer lines of text (now {wants.lines}), or a smaller type of number would help"
        )
    return plan


def state_bytes(shape: FrameShape, wants: FrameWants) -> int:
    """Of FrameRows without the pages."""
    width = shape.backbone.width
    row = (2 + wants.lines) * width * wants.number_bytes  # x, hidden, text
    row += 4 * (shape.books + pages_for(wants.positions))  # codes, table
    row += 8 + 4 * 6 + shape.vocab  # positions; steps, active, stopped, penalty, least, lines; seen
    row += 2 * (4 + 4 + 4 + 8)  # both samplings
    return (wants.rows + 1) * row + 4 * shape.vocab


def _gib(size: int) -> str:
    return f"{size / 2**30:.2f}"
