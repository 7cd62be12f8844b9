"""Tensors below one prefix of a checkpoint's files, against the shapes that their configuration asks for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from omnirt.actors.models.qwen3_tts.tensors import StoredTensors
from omnirt.errors import ConfigError

NAMED_MAX = 5
"""How many names a complaint lists."""

Shapes = Mapping[str, tuple[int, ...]]


class WeightsBelow:
    def __init__(self, folder: Path, prefix: str) -> None:
        """Raises ConfigError for files that cannot be read."""
        self._stored = StoredTensors(folder)
        self._prefix = prefix

    def tensors(self, shapes: Shapes) -> dict[str, torch.Tensor]:
        """float32 on the CPU, by their names below the prefix. Raises ConfigError naming all that do not fit."""
        stored, full = self._stored, {name: self._prefix + name for name in shapes}
        missing = [each for each in full.values() if each not in stored]
        other = [
            f"{full[name]} is {list(stored.shape(full[name]))}, config.json says {list(shape)}"
            for name, shape in shapes.items()
            if full[name] in stored and stored.shape(full[name]) != shape
        ]
        found = {"missing": missing, "of another shape": other}
        complaints = "; ".join(f"{kind}: {_listed(names)}" for kind, names in found.items() if names)
        if complaints:
            raise ConfigError(f"{stored.folder}: the weights do not fit config.json; {complaints}")
        tensors = {name: torch.empty(shape) for name, shape in shapes.items()}
        for name, tensor in tensors.items():
            stored.copy(full[name], tensor)
        return tensors


def _listed(names: list[str]) -> str:
    more = len(names) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
