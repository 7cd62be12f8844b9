"""Payload <-> (header, body): the header is msgpack, the body is the arrays' bytes, each aligned to 64.

The body is never built here: `Packing.write` copies each array once, straight into the place it will be read from
(a ring record or a slab slot); `unpack` returns a payload whose arrays are read-only views of that place.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

import msgspec
import numpy as np

from omnirt.wire.payload import Payload

ALIGN = 64
INLINE_BYTES_MAX = 4096
"""Bodies up to this size travel in the record itself and are copied out on read; larger ones take a slab slot."""
_PLAIN = frozenset("?bBhHiIlLqQfd")  # dtypes whose buffers Python itself understands
P = TypeVar("P", bound=Payload)

# A dtype makes its name anew each time it is asked, and a name is parsed each time: both cost more than the copy.
_NAMES: dict[np.dtype, str] = {}
_DTYPES: dict[str, np.dtype] = {}
_DTYPES_MAX = 256


class ArrayRef(msgspec.Struct, frozen=True, array_like=True, gc=False):
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
        dtype = array.dtype
        offset, size = self.nbytes, array.nbytes
        # Python copies a plain buffer in a fifth of the time numpy takes to begin: small arrays are all beginning.
        plain = size and dtype.char in _PLAIN and array.flags.c_contiguous
        self._arrays.append((offset, array.data.cast("B") if plain else array))
        self.nbytes = offset + ((size + ALIGN - 1) & -ALIGN)
        name = _NAMES.get(dtype) or _NAMES.setdefault(dtype, dtype.str)
        return ArrayRef(name, array.shape, offset)

    def write(self, into: np.ndarray | memoryview, at: int = 0) -> None:
        """Copy every array into `into[at:]`: [>= at + nbytes] uint8."""
        target = into if isinstance(into, memoryview) else memoryview(into)
        for offset, array in self._arrays:
            start = at + offset
            if isinstance(array, memoryview):
                target[start : start + array.nbytes] = array
            elif array.nbytes:
                place = np.frombuffer(target, array.dtype, array.size, start)
                np.copyto(place.reshape(array.shape), array)


def unpack(kind: type[P], header: bytes | memoryview, body: np.ndarray | memoryview | bytes) -> P:
    """The payload, its arrays read-only views of `body` ([nbytes] uint8).

    Raises msgspec.ValidationError when the header does not describe a `kind` or an array would lie outside the body.
    """

    def view(_: type, value: Any) -> np.ndarray:
        try:
            name, shape, offset = value
            array = np.ndarray(shape, _DTYPES.get(name) or _dtype(name), body, offset)  # numpy checks that it fits
        except (TypeError, ValueError) as error:
            size = len(body)
            raise ValueError(f"array {value} does not lie in a body of {size} bytes: {error}") from error
        if array.flags.writeable:
            array.flags.writeable = False
        return array

    return msgspec.msgpack.decode(header, type=kind, dec_hook=view)


def _dtype(name: object) -> np.dtype:
    """The dtype of a name from another process; only plain ones."""
    if not isinstance(name, str):
        raise TypeError("a dtype is named by a string")
    dtype = np.dtype(name)
    if dtype.hasobject:
        raise TypeError("arrays of objects do not travel")
    if len(_DTYPES) < _DTYPES_MAX:
        _DTYPES[name] = dtype
    return dtype


def _as_numpy(value: Any) -> np.ndarray:
    if isinstance(value, np.ndarray):
        if cast("np.ndarray", value).dtype.hasobject:
            raise TypeError("arrays of objects do not travel; use a plain dtype")
        return cast("np.ndarray", value)
    if hasattr(value, "detach"):  # a torch tensor; torch itself is never imported here
        return value.detach().cpu().numpy()
    if isinstance(value, np.generic):
        return np.asarray(cast("Any", value))
    raise TypeError(f"cannot send a {type(value).__name__} between stages")
