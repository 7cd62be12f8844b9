"""What rows begin with, written for all that joined since the step before: a few launches, however many there are.

Invariant: a row's beginning is on the device before anything of the row is computed, and never after its row was given
back. Asked again after an error, the same is written again.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from omnirt.actors.engines.frame.sequence import FrameSequence
from omnirt.actors.engines.frame.settings import moved
from omnirt.kernels.frame_layout import FrameRows


class Joins:
    def __init__(self, state: FrameRows) -> None:
        self._state = state
        self._lines = state.text.view(-1, state.text.shape[2])
        self._waiting: dict[FrameSequence, tuple[Tensor, Tensor]] = {}
        """The last row of its prompt, and its lines of text."""

    def add(self, sequence: FrameSequence, prompt_tw: Tensor, text_tw: Tensor) -> None:
        """All of the device's type and on it."""
        self._waiting[sequence] = prompt_tw[-1], text_tw

    def drop(self, sequence: FrameSequence) -> None:
        """Its row is another's from now on."""
        self._waiting.pop(sequence, None)

    def settle(self) -> None:
        if not self._waiting:
            return
        state, count, room = self._state, len(self._waiting), self._state.text.shape[1]
        rows = np.fromiter((one.row for one in self._waiting), np.int64, count)
        ends = np.fromiter((one.prompt_rows - 1 for one in self._waiting), np.int64, count)
        lasts, texts = zip(*self._waiting.values(), strict=True)
        lines = [np.arange(row * room, row * room + text.shape[0]) for row, text in zip(rows, texts, strict=True)]
        places = moved(torch.from_numpy(np.concatenate([rows, ends, *lines])), state.positions)
        at = places[:count]
        state.x.index_copy_(0, at, torch.stack(lasts))
        state.positions.index_copy_(0, at, places[count : 2 * count])
        for counted in (state.steps, state.stopped, state.seen):
            counted.index_fill_(0, at, 0)
        self._lines.index_copy_(0, places[2 * count :], torch.cat(texts))
        self._waiting.clear()
