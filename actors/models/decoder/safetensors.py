"""The safetensors format: a header that says where each tensor lies, then their bytes. Mapped, never copied whole.

    u64 length | JSON {name: {dtype, shape, data_offsets: [from, to]}} | bytes

It is read here, not by a library, because numpy has no bfloat16 and torch is a second of start and 200 MB of memory
that a server on CPU does without.
"""

from __future__ import annotations

import json
import math
import mmap
from pathlib import Path
from typing import Any

import numpy as np

from omnirt.errors import ConfigError

HEADER_BYTES_MAX = 100 << 20
_KINDS = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2"), "F64": np.dtype("<f8")}


class Tensors:
    """One file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            start = file.read(8)
            length = int.from_bytes(start, "little")
            if len(start) < 8 or not 2 <= length <= min(HEADER_BYTES_MAX, path.stat().st_size - 8):
                raise ConfigError(f"{path} is no safetensors file, or is cut off")
            try:
                header = json.loads(file.read(length))
            except ValueError as error:
                raise ConfigError(f"{path} is no safetensors file: {error}") from None
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        header.pop("__metadata__", None)
        self._entries: dict[str, dict[str, Any]] = header
        self._data = 8 + length
        for name, entry in self._entries.items():
            self._check(name, entry)

    def __iter__(self):
        return iter(self._entries)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._entries[name]["shape"])

    def read(self, name: str) -> np.ndarray:
        """As float32: a copy, unless it is stored so."""
        entry = self._entries[name]
        count = math.prod(entry["shape"])
        raw = np.frombuffer(self._map, _KINDS[entry["dtype"]], count, self._data + entry["data_offsets"][0])
        if entry["dtype"] == "BF16":  # the upper half of a float32
            raw = (raw.astype(np.uint32) << 16).view(np.float32)
        return raw.astype(np.float32, copy=False).reshape(entry["shape"])

    def _check(self, name: str, entry: dict[str, Any]) -> None:
        kind = _KINDS.get(entry["dtype"])
        if kind is None:
            raise ConfigError(f"{self.path}: {name} is stored as {entry['dtype']}; supported: {', '.join(_KINDS)}")
        first, last = entry["data_offsets"]
        size = math.prod(entry["shape"]) * kind.itemsize
        if first < 0 or last - first != size or self._data + last > len(self._map):
            raise ConfigError(f"{self.path}: {name} does not lie in the file; is it cut off?")
