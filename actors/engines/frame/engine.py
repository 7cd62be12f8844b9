"""Continuous batching of a codec-frame model: sequences join and leave between frames.

    step n      prefill of a few | frame n launched | frame n - ahead read
    device        ... frame n - 2 | frame n - 1 | prefill | frame n

What always holds:
    a sequence's codes depend on its prompt, its text, its sampling and the weights, never on batch mates or on when it
    joined: on a processor bit for bit; on a GPU as far as FrameStep.run does not depend on the bucket, and prefill not
    on how it was cut;
    a step prefills at most `prefill_max` positions, so running rows wait for one piece at most;
    a sequence that was added holds its row and all its pages until it is over or removed;
    the host never waits for the newest frame, but for one that opens answers: a step only reads it, so that it can be
    passed on before anything else is launched, and in the meantime the host may do what it has to do for others;
    a sequence that is not given to a step stands still, and what was under way for it is kept until it is given;
    a step that raises has moved nothing that the same step would not do again.

Not thread-safe; everything happens in the caller's thread and, on a GPU, in its current stream.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

import msgspec
import numpy as np
from torch import Tensor

from omnirt.actors.engines.frame.joins import Joins
from omnirt.actors.engines.frame.outbox import Outbox
from omnirt.actors.engines.frame.pages import PagePool, Room, pages_for
from omnirt.actors.engines.frame.sequence import JOINED, OVER, FrameSampling, FrameSequence, Produced
from omnirt.actors.engines.frame.settings import RowSettings, moved
from omnirt.actors.engines.frame.step import FrameStep, Piece
from omnirt.actors.engines.shares import shares
from omnirt.errors import InvalidRequest, Overloaded
from omnirt.kernels.frame_layout import PAGE

__all__ = ["FrameEngine", "FrameFigures", "FrameSampling", "FrameSequence", "Produced"]


FEW_ROWS = 8
"""A bucket of so many opens answers whenever one of its rows begins."""
OPENING = 4
"""A frame is waited for where it is the first of every fourth row, or where so few rows run: the device then has only
their first samples to make until the next one is launched. Where one of many begins, others need not wait for that."""


class FrameFigures(msgspec.Struct, frozen=True):
    """For the operator. The first three count since the start."""

    frames: int
    """Read and handed on."""
    launches: int
    prefilled: int
    """Positions."""
    rows_used: int
    pages_used: int


class _Launch(NamedTuple):
    """A frame that was not read yet. It names its sequences, so what it holds never reaches a row's next owner."""

    bucket: int
    sequences: list[FrameSequence]
    opens: bool
    """Answers begin with it, and not only one of many: what it made goes on before there is more work."""


class FrameEngine:
    def __init__(self, step: FrameStep, *, ahead: int | None = None) -> None:
        """`ahead`: frames that the device may be before the host; None: 1 on a GPU (the host needs less time than a
        frame, and whoever joins waits for all that are launched), 0 on a processor, where a frame is over when its
        call returns."""
        state = step.state
        self._step, self._state = step, state
        self._ahead = ahead if ahead is not None else int(state.x.is_cuda)
        self.rows_max = step.buckets[-1]
        self.positions_max = state.tables.shape[1] * PAGE
        """That a prompt and its frames may have together."""
        self.lines_max = state.text.shape[1]
        """Of text. More are taken only where `frames_max` frames cannot come to them."""
        self._pages = PagePool(state.keys.shape[1])
        self._settings = RowSettings(state)
        self._joins = Joins(state)
        self._outbox = Outbox(state.codes, self._ahead + 2)
        self._free_rows = list(range(self.rows_max))  # a heap: low ones first, so that buckets stay small
        self._joined: dict[FrameSequence, None] = {}  # in order of arrival
        self._pending: deque[_Launch] = deque()
        self._frames = self._launches = self._prefilled = 0

    @property
    def rows_free(self) -> int:
        return len(self._free_rows)

    @property
    def pages_free(self) -> int:
        return self._pages.free

    @property
    def pages_max(self) -> int:
        return self._pages.total

    @property
    def figures(self) -> FrameFigures:
        pages_used = self._pages.total - self._pages.free
        return FrameFigures(self._frames, self._launches, self._prefilled, len(self._joined), pages_used)

    def room(self) -> Room:
        """What can be added now, counted by whoever adds several at a time."""
        return Room(len(self._free_rows), self._pages.free)

    def fits(self, prompt_rows: int, frames_max: int, lines: int = 0) -> bool:
        """Whether such a sequence can be added now, with so much text. Raises InvalidRequest when it never can."""
        self._kept_lines(0, lines, frames_max)
        most = min(self.positions_max, self._pages.total * PAGE)
        if prompt_rows < 1:
            raise InvalidRequest("the prompt is empty", param="input")
        if prompt_rows + frames_max > most:
            raise InvalidRequest(
                f"the prompt has {prompt_rows} positions; with {frames_max} frames it is more than {most}",
                param="input" if prompt_rows >= most else "frames_max",
            )
        return bool(self._free_rows) and pages_for(prompt_rows + frames_max) <= self._pages.free

    def add(
        self, prompt_tw: Tensor, sampling: FrameSampling, text_tw: Tensor, *, text_open: bool = False
    ) -> FrameSequence:
        """Take a row and all pages. `prompt_tw` [P, W]: inputs of the backbone. `text_tw` [T, W]: what is added to the
        inputs after it, one line a frame; after the last line it is that one again, so it is the padding, unless
        `text_open`: then more comes with `extend`, and there may be none yet.

        Raises InvalidRequest when it can never be, Overloaded when no row or not enough pages are free (see `fits`).
        """
        sampling.check()
        positions, lines = prompt_tw.shape[0], text_tw.shape[0]
        if not text_open and not lines:
            raise InvalidRequest("there is no line of text", param="input")
        lines = self._kept_lines(0, lines, sampling.frames_max)
        if not self.fits(positions, sampling.frames_max):
            lacking = "pages of the cache are taken" if self._free_rows else f"{self.rows_max} rows are taken"
            raise Overloaded(f"all {lacking}")
        kept = text_tw[:lines] if lines < text_tw.shape[0] else text_tw
        prompt, text = moved(prompt_tw, self._state.x), moved(kept, self._state.x)
        row = heapq.heappop(self._free_rows)
        pages = self._pages.take(pages_for(positions + sampling.frames_max))
        sequence = FrameSequence(sampling, prompt, row, pages)
        sequence.lines, sequence.text_open = lines, text_open
        self._joins.add(sequence, prompt, text)
        self._settings.join(row, sampling, pages)
        self._settings.set_lines(row, lines)
        self._joined[sequence] = None
        return sequence

    def extend(self, sequence: FrameSequence, text_tw: Tensor, last: bool) -> None:
        """More lines for one whose text is open; with `last` there will be no others, and the padding must be the last
        line. Nothing happens to one that is over, or that has a line for each of its frames. Raises InvalidRequest when
        they are too many; none is kept then."""
        if sequence.state == OVER or sequence.lines >= sequence.sampling.frames_max:
            sequence.text_open = False
            return
        assert sequence.text_open, "its text is complete"
        assert not last or sequence.lines + len(text_tw), "the padding is missing"
        count = self._kept_lines(sequence.lines, len(text_tw), sequence.sampling.frames_max)
        if count:
            place = self._state.text[sequence.row, sequence.lines : sequence.lines + count]
            place.copy_(moved(text_tw[:count], place))
            sequence.lines += count
            self._settings.set_lines(sequence.row, sequence.lines)
        sequence.text_open = not last and sequence.lines < sequence.sampling.frames_max

    def step(self, sequences: Iterable[FrameSequence]) -> list[Produced]:
        """Advance exactly these: prefill first, then one frame of each one that can go on, or wait for the frame that
        opens answers. What comes back is what was read of them meanwhile."""
        asked = dict.fromkeys(sequences)
        opening = self._opening()
        for _ in range(opening):
            self._read()
        if not opening:
            self._advance([sequence for sequence in self._joined if sequence in asked])
        return [self._handed_out(sequence) for sequence in asked if sequence.held or sequence.last_unsaid]

    def remove(self, sequence: FrameSequence) -> None:
        """Give its row and its pages back, at any time and as often as one likes. One that was not over becomes over,
        without a finish reason; what was not handed out is lost."""
        sequence.held, sequence.last_unsaid = [], False
        if sequence.state == JOINED:
            self._release(sequence)

    def _kept_lines(self, have: int, more: int, frames_max: int) -> int:
        """How many of these lines to keep: none that no frame can come to."""
        count = min(more, frames_max - have)
        if have + count > self.lines_max:
            raise InvalidRequest(
                f"the text has {have + more} lines, a row holds {self.lines_max}: say it in parts", param="input"
            )
        return count

    def _advance(self, rows: list[FrameSequence]) -> None:
        self._joins.settle()
        self._prefill([sequence for sequence in rows if sequence.to_prefill])
        launched = self._launch([sequence for sequence in rows if sequence.ready])
        while self._pending and (not launched or len(self._pending) > self._ahead):
            self._read()

    def _prefill(self, waiting: list[FrameSequence]) -> None:
        counts = shares(waiting, _left, self._step.prefill_max)
        if not counts:
            return
        pieces = []
        for sequence, count in counts.items():
            start, prompt = sequence.prefilled, sequence.prompt
            assert prompt is not None
            pieces.append(Piece(sequence.row, start, prompt[start : start + count]))
        self._settings.send()
        self._step.prefill(pieces)
        for sequence, count in counts.items():
            sequence.prefilled += count
            self._prefilled += count
            if not sequence.to_prefill:
                sequence.prompt = None

    def _launch(self, ready: list[FrameSequence]) -> bool:
        if not ready:
            return False
        rows = [sequence.row for sequence in ready]
        highest = max(rows)
        bucket = next(size for size in self._step.buckets if size > highest)
        self._settings.set_active(rows)
        self._settings.send()
        self._step.run(bucket)
        self._outbox.send(bucket)
        firsts = 0
        for sequence in ready:
            firsts += not sequence.launched
            sequence.launched += 1
        self._launches += 1
        opens = bool(firsts) and (bucket <= FEW_ROWS or firsts * OPENING >= len(ready))
        self._pending.append(_Launch(bucket, ready, opens))
        return True

    def _opening(self) -> int:
        """How many frames to read, so that those are read that open answers."""
        return max((at for at, launch in enumerate(self._pending, 1) if launch.opens), default=0)

    def _read(self) -> None:
        launch = self._pending[0]
        codes = self._outbox.receive(launch.bucket)
        self._pending.popleft()
        firsts, stop_code = codes[:, 0].tolist(), self._step.shape.stop_code
        for sequence in launch.sequences:
            if sequence.state == OVER:  # the host did not know it yet
                continue
            if firsts[sequence.row] == stop_code:
                self._finish(sequence, "stop")
                continue
            sequence.held.append(codes[sequence.row])
            sequence.frames += 1
            self._frames += 1
            if sequence.frames == sequence.sampling.frames_max:
                self._finish(sequence, "length")

    def _finish(self, sequence: FrameSequence, reason: str) -> None:
        sequence.finish_reason, sequence.last_unsaid = reason, True
        self._release(sequence)

    def _release(self, sequence: FrameSequence) -> None:
        del self._joined[sequence]
        sequence.state, sequence.prompt = OVER, None
        self._joins.drop(sequence)
        heapq.heappush(self._free_rows, sequence.row)
        self._pages.give(sequence.pages)
        self._settings.leave(sequence.row)

    def _handed_out(self, sequence: FrameSequence) -> Produced:
        held = sequence.held
        if len(held) == 1:
            codes = held[0][None]  # nearly always; a twentieth of what stacking costs
        else:
            codes = np.stack(held) if held else np.empty((0, self._state.codes.shape[1]), np.int32)
        reason = sequence.finish_reason if sequence.last_unsaid else ""
        sequence.held, sequence.last_unsaid = [], False
        return Produced(sequence, codes, reason)


def _left(sequence: FrameSequence) -> int:
    return sequence.to_prefill
