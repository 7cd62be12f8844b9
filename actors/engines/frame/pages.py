"""Which pages of the cache are whose. Pure.

A sequence takes all its pages when it joins, so nothing runs out while it speaks. Page 0 is nobody's: unused places of
a table point there, and rows that no sequence has write there.
"""

from __future__ import annotations

from omnirt.kernels.frame_layout import PAGE


def pages_for(positions: int) -> int:
    return -(-positions // PAGE)


class Room:
    """How many rows and pages are free, beside those that were taken of it."""

    def __init__(self, rows: int, pages: int) -> None:
        self._rows, self._pages = rows, pages

    def take(self, positions: int) -> bool:
        """Whether there is room for so many in a row."""
        pages = pages_for(positions)
        if not self._rows or pages > self._pages:
            return False
        self._rows, self._pages = self._rows - 1, self._pages - pages
        return True


class PagePool:
    def __init__(self, pages: int) -> None:
        assert pages > 1, "page 0 is nobody's"
        self.total = pages - 1
        """Pages that sequences can have."""
        self._free = list(range(pages - 1, 0, -1))  # the last one goes first: a warm one, or the lowest at the start

    @property
    def free(self) -> int:
        return len(self._free)

    def take(self, count: int) -> list[int]:
        assert 0 < count <= self.free
        return [self._free.pop() for _ in range(count)]

    def give(self, pages: list[int]) -> None:
        self._free.extend(reversed(pages))
        assert self.free <= self.total
