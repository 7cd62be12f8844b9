"""Which calls decode pieces of any lengths. Pure.

A device offers calls of some sizes; one costs a fixed time and a time for each frame of each row, and its rows are all
taken to be as long as the longest. So a long piece among many short ones is better decoded alone, and some pieces of
about one length together. What is longer than a call goes on in the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Size(NamedTuple):
    rows: int
    frames: int


class Take(NamedTuple):
    """Frames `first` to `last` - 1 of a piece."""

    piece: int
    first: int
    last: int


class Round(NamedTuple):
    size: int
    """Which of the sizes."""
    takes: list[Take]


class Sizes:
    def __init__(self, sizes: Sequence[Size], call_ms: float, frame_ms: float) -> None:
        """The time of a call: `call_ms`, and `frame_ms` for each frame of each row."""
        self.sizes = tuple(sizes)
        self._call_ms, self._frame_ms = call_ms, frame_ms

    def rounds(self, lengths: Sequence[int]) -> list[Round]:
        """All frames of pieces of these lengths, those of one piece in order."""
        order = sorted(range(len(lengths)), key=lambda piece: -lengths[piece])
        return [
            part
            for first, last in self._groups([lengths[piece] for piece in order])
            for part in self._group(order[first:last], lengths)
        ]

    def _groups(self, lengths: list[int]) -> list[tuple[int, int]]:
        """Cuts of pieces from long to short, by least time; equal lengths stay together."""
        cuts = [i for i in range(len(lengths)) if not i or lengths[i] != lengths[i - 1]] + [len(lengths)]
        best: list[tuple[float, list[tuple[int, int]]]] = [(0.0, [])]
        for j in range(1, len(cuts)):
            ways = []
            for i in range(j):
                spent, groups = best[i]
                time = self._best(cuts[j] - cuts[i], lengths[cuts[i]])[0]
                ways.append((spent + time, [*groups, (cuts[i], cuts[j])]))
            best.append(min(ways, key=lambda way: way[0]))
        return best[-1][1]

    def _best(self, pieces: int, frames: int) -> tuple[float, int]:
        """Time and size for so many pieces of up to `frames` each; of equally fast sizes the smallest."""

        def time(size: Size) -> float:
            calls = -(-pieces // size.rows) * -(-frames // size.frames)
            return calls * self._call_ms + pieces * frames * self._frame_ms

        found = [(time(size), size.rows * size.frames, i) for i, size in enumerate(self.sizes)]
        best = min(found)
        return best[0], best[2]

    def _group(self, pieces: list[int], lengths: Sequence[int]) -> list[Round]:
        """`pieces`: from long to short."""
        longest = lengths[pieces[0]]
        if not longest:
            return []
        index = self._best(len(pieces), longest)[1]
        size, found = self.sizes[index], []
        for first in range(0, longest, size.frames):
            going = [piece for piece in pieces if lengths[piece] > first]
            for row in range(0, len(going), size.rows):
                rows = going[row : row + size.rows]
                takes = [Take(piece, first, min(lengths[piece], first + size.frames)) for piece in rows]
                frames = max(take.last - take.first for take in takes)
                found.append(Round(self._smallest(len(takes), frames, index), takes))
        return found

    def _smallest(self, rows: int, frames: int, index: int) -> int:
        """Later calls of a group may be small again."""
        fits = [
            (size.rows * size.frames, i)
            for i, size in enumerate(self.sizes)
            if size.rows >= rows and size.frames >= frames
        ]
        return min([*fits, (self.sizes[index].rows * self.sizes[index].frames, index)])[1]
