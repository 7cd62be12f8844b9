"""A prompt and its frames while they are computed. The engine writes it, everyone else reads."""

from __future__ import annotations

import msgspec
import numpy as np
from torch import Tensor

from omnirt.errors import InvalidRequest

JOINED, OVER = "joined", "over"


class FrameSampling(msgspec.Struct, frozen=True):
    """How a sequence draws its codes, and when it ends.

    temperature 0 is greedy. Order of work: repetition penalty, suppression, temperature, top_k, top_p, draw. The
    penalty looks at the first codes of the frames so far. What starts with `inner` is for the codes after the first.
    """

    temperature: float = 0.9
    top_k: int = 50
    """0: all."""
    top_p: float = 1.0
    repetition_penalty: float = 1.05
    inner_temperature: float = 0.9
    inner_top_k: int = 50
    inner_top_p: float = 1.0
    seed: int = 0
    """Any integer; its lower 64 bits count."""
    frames_max: int = 2048
    frames_min: int = 2
    """No stop code is drawn before there are so many."""
    ignore_stop: bool = False
    """The stop code is never drawn: there will be `frames_max` frames."""

    def check(self) -> None:
        """Raises InvalidRequest."""
        for name in ("temperature", "top_k", "inner_temperature", "inner_top_k", "frames_min"):
            if not getattr(self, name) >= 0:
                raise InvalidRequest(f"{name} must not be negative", param=name)
        for name in ("top_p", "inner_top_p"):
            if not 0 < getattr(self, name) <= 1:
                raise InvalidRequest(f"{name} must be above 0 and at most 1", param=name)
        if not self.repetition_penalty > 0:
            raise InvalidRequest("repetition_penalty must be above 0", param="repetition_penalty")
        if self.frames_max < 1:
            raise InvalidRequest("frames_max must be at least 1", param="frames_max")


class FrameSequence:
    """joined (prefill, then a frame each step unless it waits for text) -> over"""

    __slots__ = (
        "finish_reason",
        "frames",
        "held",
        "last_unsaid",
        "launched",
        "lines",
        "pages",
        "prefilled",
        "prompt",
        "prompt_rows",
        "row",
        "sampling",
        "state",
        "text_open",
    )

    def __init__(self, sampling: FrameSampling, prompt: Tensor, row: int, pages: list[int]) -> None:
        self.sampling = sampling
        self.prompt_rows = prompt.shape[0]
        self.state = JOINED
        self.finish_reason = ""
        """Empty until over: `stop`, `length` (frames_max); stays so if removed."""
        self.frames = 0
        """That the host has read."""

        # The engine's own.
        self.row = row
        self.pages = pages
        self.prompt: Tensor | None = prompt
        """Until it is prefilled."""
        self.prefilled = 0
        self.launched = 0
        self.lines = 0
        self.text_open = False
        self.held: list[np.ndarray] = []
        """Frames that were read and not handed out yet, [Q] each."""
        self.last_unsaid = False
        """It is over, and that was not handed out yet."""

    @property
    def waits_for_text(self) -> bool:
        """Nothing will come of it before more text does."""
        return self.state == JOINED and self._dry and self.frames == self.launched and not self.held

    @property
    def to_prefill(self) -> int:
        """Of the prompt. Its last row is not: the first frame takes it."""
        return self.prompt_rows - 1 - self.prefilled

    @property
    def ready(self) -> bool:
        """For another frame."""
        return (
            self.launched < self.sampling.frames_max
            and self.prefilled == self.prompt_rows - 1
            and not (self.text_open and self.launched >= self.lines)
            and self.state == JOINED
        )

    @property
    def _dry(self) -> bool:
        return self.text_open and self.launched >= self.lines and not self.to_prefill


class Produced(msgspec.Struct, frozen=True):
    """What there is new of one sequence."""

    sequence: FrameSequence
    codes: np.ndarray
    """[n, Q] int32. n is 0 when all there is to say is that it is over: the frame of a stop code is none."""
    finish_reason: str = ""
    """Not empty: these are the last ones, and its row is free again."""
