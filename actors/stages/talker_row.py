"""A request of the talker: what it brought, its answer once that has begun, and whose frames leave when."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np

from omnirt.actors.models.qwen3_tts.voice import SpeakerVoice
from omnirt.actors.stages.chunking import Chunks
from omnirt.actors.stages.talker_params import TalkerWishes

if TYPE_CHECKING:
    from omnirt.actors.engines.frame.engine import FrameSampling, FrameSequence, Produced
    from omnirt.actors.models.qwen3_tts.prompt import Prompt
    from omnirt.actors.models.qwen3_tts.tokens import IncomingText

COMPANY = 16
"""Rows whose frames leave together: a call of the decoder for so many costs little more for each frame than one for 64,
and does not keep whoever comes meanwhile waiting for four times as long."""


class TalkerRow:
    """A request: what it brought, and its answer once that has begun."""

    def __init__(
        self, wished: TalkerWishes, sampling: FrameSampling, incoming: IncomingText | None, chunks: Chunks
    ) -> None:
        self.wishes, self.sampling = wished, sampling
        self.incoming, self.chunks = incoming, chunks
        """`incoming`: None for a text that is only spoken once all of it is there."""
        self.text: list[str] = []
        """Of such a text, what there is."""
        self.ids: list[int] = []
        self.closed = False
        self.voice: SpeakerVoice | None = None
        self.prompt: Prompt | None = None
        """Made, and waiting for room since `since_ns`."""
        self.is_open = False
        """More text may come behind the prompt."""
        self.since_ns = 0
        self.sequence: FrameSequence | None = None
        self.later: deque[tuple[list[int], bool]] = deque()
        """Ids of text that came after the prompt was made; the last ones are marked."""
        self.lines = 0
        """That these are, the end and the padding behind it included."""
        self.frames: list[np.ndarray] = []
        """Made and not sent, [n, Q] each; `ready` frames in all."""
        self.ready = 0
        self.sent = 0
        self.tokens = 0

    def take(self, one: Produced, now_ns: int) -> None:
        """What the engine made of it."""
        if len(one.codes):
            self.frames.append(one.codes)
            self.ready += len(one.codes)
            self.chunks.made(now_ns)


def leaving_of(rows: Collection[TalkerRow], now_ns: int) -> set[TalkerRow]:
    """Whose frames leave now: those that are due, and of the same company whoever may go along with a grown chunk."""
    leaving = {row for row in rows if row.chunks.is_due(row.ready, now_ns)}
    calls = {_company(row) for row in leaving if row.chunks.is_grown}
    if calls:
        leaving |= {row for row in rows if _company(row) in calls and row.chunks.may_join(row.ready)}
    return leaving


def _company(row: TalkerRow) -> int:
    assert row.sequence is not None
    return row.sequence.row // COMPANY
