"""What a form of the decoder offers: slots on a device, and calls of some sizes. Plain torch here, kernels elsewhere.

Nothing but `Result.rows` waits for the device; work is in the order of the calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from omnirt.actors.engines.codec import plain
from omnirt.actors.engines.codec.memory import PLAIN_SIZES
from omnirt.actors.engines.codec.rounds import Sizes
from omnirt.kernels.codec_layout import CodecShape


class Snapshot(NamedTuple):
    """What a slot held after `position` frames, on the device."""

    position: int
    tensors: dict[str, Tensor]


class Row(NamedTuple):
    slot: int
    codes: np.ndarray
    """[frames, books], at least one frame and no more than the call's size has."""


class Result(Protocol):
    def ready(self) -> bool: ...

    def rows(self) -> list[np.ndarray]:
        """Waits. [frames * samples] of each row, float32, to be used before the next call of this."""
        ...


class Form(Protocol):
    sizes: Sizes

    def clear(self, slot: int) -> None:
        """A new request."""
        ...

    def run(self, size: int, rows: list[Row], *, heard: bool) -> Result:
        """Nobody looks at the samples of what is not `heard`."""
        ...

    def snapshot(self, slot: int, position: int) -> Snapshot: ...

    def restore(self, slot: int, snapshot: Snapshot) -> None: ...


class Done(NamedTuple):
    """A result that is there."""

    samples: list[np.ndarray]

    def ready(self) -> bool:
        return True

    def rows(self) -> list[np.ndarray]:
        return self.samples


class Later:
    """Samples that a device may still be computing."""

    def __init__(self, samples: Tensor) -> None:
        self._samples = samples
        self._event = torch.cuda.Event()
        self._event.record()

    def ready(self) -> bool:
        return self._event.query()

    def rows(self) -> list[np.ndarray]:
        return list(self._samples.cpu().numpy())


class PlainForm:
    def __init__(
        self, s: CodecShape, weights: Mapping[str, np.ndarray], slots: int, device: str, kind: torch.dtype
    ) -> None:
        # A call costs hardly anything beside its frames, so that pieces of different lengths never share one.
        self.sizes = Sizes(PLAIN_SIZES, 1e-3, 1.0)
        self._decoder = plain.PlainDecoder(s, weights, device, kind)
        self._state = plain.State(s, slots, device, kind)

    def clear(self, slot: int) -> None:
        self._state.clear(slot)

    def run(self, size: int, rows: list[Row], *, heard: bool) -> Result:
        slots = [row.slot for row in rows]
        with torch.inference_mode():
            kept = self._state.rows(slots)
            samples = self._decoder.decode(np.stack([row.codes for row in rows]), self._state.positions[slots], kept)
            self._state.keep(slots, kept, len(rows[0].codes))
            samples = samples.float()
        return Later(samples) if samples.is_cuda else Done(list(samples.numpy()))

    def snapshot(self, slot: int, position: int) -> Snapshot:
        return Snapshot(position, {name: tensor[slot].clone() for name, tensor in self._state.tensors.items()})

    def restore(self, slot: int, snapshot: Snapshot) -> None:
        self._state.positions[slot] = snapshot.position
        for name, tensor in snapshot.tensors.items():
            self._state.tensors[name][slot].copy_(tensor)
