"""What the host alone decides about the rows: sampling, tables, who is active. Kept here too, sent when it changed.

An array goes whole: a few hundred bytes to a few kilobytes, in one copy that nobody waits for.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from omnirt.actors.engines.frame.sequence import FrameSampling
from omnirt.kernels.frame_layout import FrameRows

GREEDY_BELOW = 1e-5
"""Temperatures below are greedy: logits divided by less leave the range of float32."""
_NEVER = 2**31 - 1


class RowSettings:
    def __init__(self, state: FrameRows) -> None:
        self._theirs: dict[str, Tensor] = {
            name: getattr(state, name) for name in ("active", "lines", "tables", "penalty", "least")
        }
        for name, sampling in (("first", state.first), ("inner", state.inner)):
            self._theirs |= {f"{name}.{field}": value for field, value in vars(sampling).items()}
        self._ours = {name: tensor.cpu().numpy().copy() for name, tensor in self._theirs.items()}
        self._changed: set[str] = set()
        self._active_rows: list[int] = []

    def join(self, row: int, sampling: FrameSampling, pages: list[int]) -> None:
        self._set_table(row, pages)
        self._set("penalty", row, sampling.repetition_penalty)
        self._set("least", row, _NEVER if sampling.ignore_stop else sampling.frames_min)
        self._draw("first", row, sampling.temperature, sampling.top_k, sampling.top_p)
        self._draw("inner", row, sampling.inner_temperature, sampling.inner_top_k, sampling.inner_top_p)
        seed = (sampling.seed + 2**63) % 2**64 - 2**63
        self._set("first.seed", row, seed)
        self._set("inner.seed", row, seed)

    def leave(self, row: int) -> None:
        """Whatever the row still writes must not reach pages that were its own."""
        self._set_table(row, [])

    def set_lines(self, row: int, lines: int) -> None:
        self._set("lines", row, max(1, lines))  # also of a row that has none yet, the device looks one up

    def set_active(self, rows: list[int]) -> None:
        if rows != self._active_rows:
            active = self._ours["active"]
            active[:] = 0
            active[rows] = 1
            self._changed.add("active")
            self._active_rows = rows

    def send(self) -> None:
        """What changed since. In the order of the device's work; nothing is waited for."""
        for name in list(self._changed):
            send(self._theirs[name], self._ours[name])
            self._changed.remove(name)

    def _draw(self, which: str, row: int, temperature: float, top_k: int, top_p: float) -> None:
        self._set(f"{which}.temperature", row, temperature if temperature >= GREEDY_BELOW else 0.0)
        self._set(f"{which}.top_k", row, min(top_k, _NEVER))
        self._set(f"{which}.top_p", row, top_p)

    def _set(self, name: str, row: int, value: float) -> None:
        ours = self._ours[name]
        kept = ours.item(row)
        ours[row] = value
        if ours.item(row) != kept:
            self._changed.add(name)

    def _set_table(self, row: int, pages: list[int]) -> None:
        table = self._ours["tables"][row]
        table[: len(pages)] = pages
        table[len(pages) :] = 0
        self._changed.add("tables")


def send(theirs: Tensor, ours: np.ndarray) -> None:
    """From pinned memory, which torch keeps until the copy is over."""
    source = torch.from_numpy(ours)
    if theirs.is_cuda:
        theirs.copy_(source.pin_memory(), non_blocking=True)
    else:
        theirs.copy_(source)


def moved(values: Tensor, like: Tensor) -> Tensor:
    """On the device and of the type of `like`; through pinned memory, so that nobody waits."""
    values = values.to(like.dtype)
    if like.is_cuda and not values.is_cuda:
        values = values.pin_memory()
    return values.to(like.device, non_blocking=True)
