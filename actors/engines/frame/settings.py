"""What the host alone decides about the rows: sampling, tables, who is active. Kept here too, sent when it changed.

An array goes whole: a few hundred bytes to tens of kilobytes, in one copy that nobody waits for. Ours lie in one block,
so that all that goes together is put into pinned memory at once.
"""

from __future__ import annotations

import msgspec
import numpy as np
import torch
from torch import Tensor

from omnirt.actors.engines.frame.sequence import FrameSampling
from omnirt.kernels.frame_layout import FrameRows

GREEDY_BELOW = 1e-5
"""Temperatures below are greedy: logits divided by less leave the range of float32."""
_NEVER = 2**31 - 1
ALIGN = 64


class RowSettings:
    def __init__(self, state: FrameRows) -> None:
        self._theirs: dict[str, Tensor] = {
            name: getattr(state, name) for name in ("active", "lines", "tables", "penalty", "least")
        }
        for name, sampling in (("first", state.first), ("inner", state.inner)):
            self._theirs |= {f"{name}.{field}": value for field, value in vars(sampling).items()}
        self._ours: dict[str, np.ndarray] = {}
        """Parts of `_block`."""
        self._places: dict[str, slice] = {}
        end = 0
        for name, theirs in self._theirs.items():
            self._places[name] = slice(end, end + theirs.nbytes)
            end += -(-theirs.nbytes // ALIGN) * ALIGN
        self._block = np.zeros(end, np.uint8)
        for name, place in self._places.items():
            theirs = self._theirs[name].cpu().numpy()
            self._ours[name] = self._block[place].view(theirs.dtype).reshape(theirs.shape)
            self._ours[name][:] = theirs
        self._changed: set[str] = set()
        self._active_rows: list[int] = []
        self._joined_as: dict[int, FrameSampling] = {}
        """How each row drew last, with no seed and no end: most who join draw alike."""

    def join(self, row: int, sampling: FrameSampling, pages: list[int]) -> None:
        self._ours["tables"][row, : len(pages)] = pages  # the rest is as `leave` left it
        self._changed.add("tables")
        seed = (sampling.seed + 2**63) % 2**64 - 2**63
        self._set("first.seed", row, seed)
        self._set("inner.seed", row, seed)
        alike = msgspec.structs.replace(sampling, seed=0, frames_max=1)
        if self._joined_as.get(row) == alike:
            return
        self._joined_as[row] = alike
        self._set("penalty", row, sampling.repetition_penalty)
        self._set("least", row, _NEVER if sampling.ignore_stop else sampling.frames_min)
        self._draw("first", row, sampling.temperature, sampling.top_k, sampling.top_p)
        self._draw("inner", row, sampling.inner_temperature, sampling.inner_top_k, sampling.inner_top_p)

    def leave(self, row: int) -> None:
        """Whatever the row still writes must not reach pages that were its own."""
        self._ours["tables"][row] = 0
        self._changed.add("tables")

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
        if not self._changed:
            return
        block = pinned(torch.from_numpy(self._block), self._theirs["active"])
        for name in list(self._changed):
            theirs = self._theirs[name]
            theirs.copy_(block[self._places[name]].view(theirs.dtype).view(theirs.shape), non_blocking=True)
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


def pinned(ours: Tensor, theirs: Tensor) -> Tensor:
    """`ours`, to be copied to where `theirs` is: for a GPU a copy from where nobody waits for the sending, which torch
    keeps until that is over."""
    return ours.pin_memory() if theirs.is_cuda else ours


def send(theirs: Tensor, ours: np.ndarray) -> None:
    theirs.copy_(pinned(torch.from_numpy(ours), theirs), non_blocking=True)


def moved(values: Tensor, like: Tensor) -> Tensor:
    """On the device and of the type of `like`; through pinned memory, so that nobody waits."""
    if values.dtype == like.dtype and values.device == like.device:
        return values
    values = values.to(like.dtype)
    if not values.is_cuda:
        values = pinned(values, like)
    return values.to(like.device, non_blocking=True)
