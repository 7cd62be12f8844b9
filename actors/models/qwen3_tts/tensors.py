"""Tensors of a checkpoint straight from its files to a device: no copy of the checkpoint in host memory.

with a folder of one safetensors file, or of shards and their index:
found = StoredTensors(folder)
found.copy("talker.codec_head.weight", into)      a piece at a time, converted to the kind of `into`
"""

from __future__ import annotations

import json
import math
import mmap
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from omnirt.actors.models.decoder.safetensors import Tensors
from omnirt.actors.models.decoder.weights import INDEX, SINGLE
from omnirt.errors import ConfigError

if TYPE_CHECKING:
    import torch

PIECE_BYTES = 64 << 20
"""What is mapped and converted at a time."""
_SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}


class StoredTensors:
    def __init__(self, folder: Path) -> None:
        """Raises ConfigError for files that are not there, cut off, or of a kind that is not read."""
        self.folder = folder
        self._place = {name: file for file in map(_File, _files(folder)) for name in file}

    def __iter__(self) -> Iterator[str]:
        return iter(self._place)

    def __contains__(self, name: str) -> bool:
        return name in self._place

    def shape(self, name: str) -> tuple[int, ...]:
        return self._place[name].shape(name)

    def count(self, name: str) -> int:
        """Numbers in it."""
        return math.prod(self.shape(name))

    def copy(self, name: str, into: torch.Tensor) -> None:
        """Fills `into`, which has the tensor's shape and is contiguous."""
        flat = into.view(-1)
        file = self._place[name]
        kind, size = file.kind(name)
        step = PIECE_BYTES // size
        for start in range(0, flat.numel(), step):
            end = min(start + step, flat.numel())
            flat[start:end].copy_(file.piece(name, kind, start, end), non_blocking=False)

    def floats(self, name: str) -> np.ndarray:
        """As float32."""
        return self._place[name].read(name)


class _File(Tensors):
    def kind(self, name: str) -> tuple[torch.dtype, int]:
        import torch

        stored = self._entries[name]["dtype"]
        kinds = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
        return kinds[stored], _SIZES[stored]

    def piece(self, name: str, kind: torch.dtype, start: int, end: int) -> torch.Tensor:
        """A view of the file."""
        import torch

        offset = self._data + self._entries[name]["data_offsets"][0] + start * kind.itemsize
        page = offset - offset % mmap.PAGESIZE
        self._map.madvise(mmap.MADV_WILLNEED, page, offset - page + (end - start) * kind.itemsize)
        with warnings.catch_warnings():  # that the view cannot be written to: it never is
            warnings.simplefilter("ignore", UserWarning)
            return torch.frombuffer(self._map, dtype=kind, count=end - start, offset=offset)


def _files(folder: Path) -> list[Path]:
    index = folder / INDEX
    if not index.is_file():
        if not (folder / SINGLE).is_file():
            raise ConfigError(f"{folder} holds neither {SINGLE} nor {INDEX}")
        return [folder / SINGLE]
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{index} is no index of shards: {error!r}") from None
    absent = [name for name in names if not (folder / name).is_file()]
    if absent:
        raise ConfigError(f"{index} lists files that are not there: {', '.join(absent[:5])}")
    return [folder / name for name in names]
