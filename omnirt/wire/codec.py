"""Payload <-> (header, body): the header is msgpack, the body is the arrays' bytes, each aligned to 64.

The body is never built here: `Packing.write` copies each array once, straight into the place it will be read from
(a ring record or a slab slot); `unpack` returns a payload whose arrays are read-only views of that place.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec
import numpy as np

from omnirt.wire.payload import Payload

ALIGN = 64
_PLAIN = frozenset("?bBhHiIlLqQfd")  # dtypes whose buffers Python itself understands
P = TypeVar("P", bound=Payload)


class ArrayRef(msgspec.Struct, frozen=True, array_like=True):
    """Where an array lies in the body."""

    dtype: str
    shape: tuple[int, ...]
    offset: int


class Packing:
    """A payload ready to be written: `header` (bytes) and `nbytes` of body."""

    __slots__ = ("_arrays", "header", "nbytes")

    def __init__(self, payload: Payload) -> None:
        self._arrays: list[tuple[int, np.ndarray | memoryview]] = []
        self.nbytes = 0
        self.header = msgspec.msgpack.encode(payload, enc_hook=self._place)

    def _place(self, value: object) -> ArrayRef:
        array = _as_numpy(value)
        offset = self.nbytes
        plain = array.dtype.char in _PLAIN and array.nbytes and array.flags.c_contiguous
        self._arrays.append((offset, array.data.cast("B") if plain else array))
        self.nbytes = offset + (array.nbytes + ALIGN - 1) // ALIGN * ALIGN
        return ArrayRef(array.dtype.str, array.shape, offset)

    def write(self, into: np.ndarray | memoryview) -> None:
        """Copy every array into `into`: [>= nbytes] uint8."""
        target = memoryview(into)
        for offset, array in self._arrays:
            size = array.nbytes
            if isinstance(array, memoryview):  # a fifth of the cost of the general way, for small arrays
                target[offset : offset + size] = array
            elif size:
                place = np.frombuffer(target, array.dtype, array.size, offset)
                np.copyto(place.reshape(array.shape), array)


def unpack(kind: type[P], header: bytes | memoryview, body: np.ndarray) -> P:
    """The payload, its arrays read-only views of `body` ([nbytes] uint8).

    Raises msgspec.ValidationError when the header does not describe a `kind`, ValueError when an array would lie
    outside the body.
    """

    def view(_: type, value: object) -> np.ndarray:
        ref = msgspec.convert(value, ArrayRef)
        dtype = np.dtype(ref.dtype)
        count = 1
        for side in ref.shape:
            count *= side
        size = count * dtype.itemsize
        if dtype.hasobject or min(ref.shape, default=0) < 0 or ref.offset < 0 or ref.offset + size > body.nbytes:
            raise ValueError(f"array {ref.dtype}{list(ref.shape)} at {ref.offset} is outside a body of {body.nbytes} bytes")
        array = body[ref.offset : ref.offset + size].view(dtype).reshape(ref.shape)
        array.flags.writeable = False
        return array

    return msgspec.msgpack.decode(header, type=kind, dec_hook=view)


def _as_numpy(value: object) -> np.ndarray:
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            raise TypeError("arrays of objects do not travel; use a plain dtype")
        return value
    if hasattr(value, "detach"):  # a torch tensor; torch itself is never imported here
        return value.detach().cpu().numpy()
    if isinstance(value, np.generic):
        return np.asarray(value)
    raise TypeError(f"cannot send a {type(value).__name__} between stages")
