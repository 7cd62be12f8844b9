"""What every node is doing, for the head to see without asking: one progress word and the step's slots per node.

    node   slots, count -> progress + 1 (odd: in a step) -> ... work ... -> progress + 1 (even: idle)
    head   progress, slots, progress again

Invariants
* each line has one writer, its node; only the head reads
* `progress` rises by one at the begin and by one at the end of a step. Unchanged while odd for longer than the stage's
  limit means hung; the words outlive the process, so after a death they still name the requests that were in the step.
"""

from __future__ import annotations

from typing import Self

from omnirt.shm.atomics import begin_step, full_fence, load_acquire, store_release
from omnirt.shm.segment import Segment

STEP_SLOTS_MAX = 64
"""Requests of one step that are noted; a larger batch notes its first ones."""

_WORD = 8
_COUNT = 1
_SLOTS = 2
_LINE_WORDS = (_SLOTS + STEP_SLOTS_MAX + 15) // 16 * 16  # whole pairs of cache lines: no false sharing between nodes


class Board:
    def __init__(self, segment: Segment, nodes: int) -> None:
        """Use `create` (head) or `attach` (nodes)."""
        self.segment = segment
        self.nodes = nodes
        self._words = memoryview(segment.array[: nodes * _LINE_WORDS * _WORD]).cast("B").cast("q")
        self._address = segment.address

    @classmethod
    def create(cls, nodes: int) -> Self:
        return cls(Segment.create(board_bytes(nodes)), nodes)

    @classmethod
    def attach(cls, fd: int, nodes: int) -> Self:
        return cls(Segment.attach(fd, board_bytes(nodes)), nodes)

    @property
    def fd(self) -> int:
        return self.segment.fd

    def begin_step(self, node: int, slots: list[int]) -> None:
        """Node only."""
        words, line = self._words, node * _LINE_WORDS
        progress = words[line]
        assert progress & 1 == 0, "a step has begun and not ended"
        if len(slots) == 1:  # the same in one call: it stands before every step of a lone request
            begin_step(self._address + line * _WORD, slots[0])
            return
        full_fence()  # the slots of this step must not be seen under the even word of the last one's end
        noted = slots[:STEP_SLOTS_MAX]
        words[line + _COUNT] = len(noted)
        for index, slot in enumerate(noted):
            words[line + _SLOTS + index] = slot
        store_release(self._address + line * _WORD, progress + 1)

    def end_step(self, node: int) -> None:
        """Node only. The work of the step is done, well or not."""
        line = node * _LINE_WORDS
        progress = self._words[line]
        assert progress & 1 == 1, "no step has begun"
        store_release(self._address + line * _WORD, progress + 1)

    def progress(self, node: int) -> int:
        return load_acquire(self._address + node * _LINE_WORDS * _WORD)

    def in_step(self, node: int) -> list[int]:
        """Slots of the step in progress; empty when there is none, or when the node moves on while this reads."""
        line = node * _LINE_WORDS
        before = self.progress(node)
        if before & 1 == 0:
            return []
        count = self._words[line + _COUNT]
        slots = self._words[line + _SLOTS : line + _SLOTS + min(count, STEP_SLOTS_MAX)].tolist()
        full_fence()
        return slots if self.progress(node) == before else []

    def reset(self, node: int) -> None:
        """Head only, when no process writes the line: the place of a dead node is made ready for the next one."""
        progress = self.progress(node)
        store_release(self._address + node * _LINE_WORDS * _WORD, progress + (progress & 1))

    def close(self) -> None:
        self.segment.close()


def board_bytes(nodes: int) -> int:
    return (nodes * _LINE_WORDS * _WORD + 4095) // 4096 * 4096
