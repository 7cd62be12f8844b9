"""Frames on their way to the host: a ring of buffers, each with an event on a GPU. In order; one reader."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


class Outbox:
    def __init__(self, codes: Tensor, slots: int) -> None:
        """`codes` [R, Q] of the device; `slots`: frames that may be on their way."""
        self._codes = codes
        on_gpu = codes.is_cuda
        self._buffers = [torch.empty(codes.shape, dtype=codes.dtype, pin_memory=on_gpu) for _ in range(slots)]
        self._arrays = [buffer.numpy() for buffer in self._buffers]
        self._events = [torch.cuda.Event() if on_gpu else None for _ in range(slots)]
        self._sent = self._read = 0

    def send(self, rows: int) -> None:
        """The codes of the first `rows` rows as the work so far leaves them."""
        assert self._sent - self._read < len(self._buffers)
        slot = self._sent % len(self._buffers)
        self._buffers[slot][:rows].copy_(self._codes[:rows], non_blocking=True)
        event = self._events[slot]
        if event is not None:
            event.record()
        self._sent += 1

    def receive(self, rows: int) -> np.ndarray:
        """The oldest that was not received, a copy. Waits for it."""
        assert self._read < self._sent
        slot = self._read % len(self._buffers)
        event = self._events[slot]
        if event is not None:
            event.synchronize()
        self._read += 1
        return self._arrays[slot][:rows].copy()
