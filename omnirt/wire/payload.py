"""What travels between stages: small structs whose array fields are numpy arrays.

A payload class is a msgspec Struct; array fields are annotated `np.ndarray` and travel as raw bytes beside the
header (see `codec`). Stages declare the classes they accept and emit, so no registry is needed. The four classes of
the field are here (hidden states, codec codes, KV blocks, latents) with what goes to and comes from clients; a stage
family may define its own payloads beside itself.

A received array is read-only and belongs to the receiver for the duration of the step; copy it to keep it beyond.
What a step emits may hold it: the cell copies what it must.
"""

from __future__ import annotations

from typing import Any, Self, TypeVar

import msgspec
import numpy as np


class Payload(msgspec.Struct, frozen=True):
    """Base of everything that travels on an edge."""

    @classmethod
    def joined(cls, parts: list[Self]) -> Self:
        """One payload holding `parts` in order: text and arrays are concatenated (axis 0), the rest is the first's."""
        if len(parts) == 1:
            return parts[0]
        values: dict[str, object] = {}
        for name in cls.__struct_fields__:
            column = [getattr(part, name) for part in parts]
            if isinstance(column[0], np.ndarray):
                values[name] = np.concatenate(column)
            elif isinstance(column[0], str):
                values[name] = "".join(column)
            else:
                values[name] = column[0]
        return cls(**values)

    def nbytes(self) -> int:
        """Bytes held in array fields."""
        values = (getattr(self, name) for name in self.__struct_fields__)
        return sum(value.nbytes for value in values if isinstance(value, np.ndarray))


P = TypeVar("P", bound=Payload)


class Text(Payload, frozen=True):
    text: str


class Pcm(Payload, frozen=True):
    """Mono audio. `samples`: [T] int16 or float32 in -1..1; `rate` in Hz."""

    samples: np.ndarray
    rate: int


class CodecFrames(Payload, frozen=True):
    """RVQ codes, one row per codec frame. `codes`: [F, Q] integers."""

    codes: np.ndarray


class HiddenStates(Payload, frozen=True):
    """`states`: [T, D]; `ids`: [T] the tokens they belong to."""

    states: np.ndarray
    ids: np.ndarray


class Latents(Payload, frozen=True):
    """`latents`: model-specific shape."""

    latents: np.ndarray


class KvBlocks(Payload, frozen=True):
    """`blocks`: [N, ...] cache blocks; `layer` they belong to."""

    blocks: np.ndarray
    layer: int


class Frames(Payload, frozen=True):
    """Pictures. `pixels`: [N, H, W, 3] uint8."""

    pixels: np.ndarray


class Actions(Payload, frozen=True):
    """`actions`: [H, D] float32, one row per control step."""

    actions: np.ndarray


def owned(payload: P, borrowed: list[np.ndarray]) -> P:
    """`payload`, with those of its arrays copied that lie in `borrowed` memory (a lease that is about to end)."""
    copies: dict[str, object] = {}
    for name in payload.__struct_fields__:
        value = getattr(payload, name)
        is_tensor = hasattr(value, "data_ptr") and value.device.type == "cpu"  # of torch, which is never imported here
        array: Any = value.detach().numpy() if is_tensor else value
        if type(array) is np.ndarray and any(np.may_share_memory(array, view) for view in borrowed):
            copies[name] = value.clone() if is_tensor else value.copy()
    return msgspec.structs.replace(payload, **copies) if copies else payload


MODALITIES: dict[str, type[Payload]] = {
    "text": Text,
    "audio": Pcm,
    "image": Frames,
    "video": Frames,
    "actions": Actions,
}
"""What a client edge of each modality carries."""
