"""GGUF files as folders in the checkpoint layout: config.json, model.safetensors (bfloat16), tokenizer.json,
tokenizer_config.json and generation_config.json.

    metadata -> config, vocabulary        tensors -> [dequantise, reorder rows] -> weights, a slice at a time

A file is converted once: the folder is kept under the hash of the file's bytes. What the format can hold and we cannot
read (another architecture, quantisation or kind of vocabulary) is a ConfigError that names it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from omnirt.actors.models import cache
from omnirt.actors.models.gguf.config import generation_config, model_config
from omnirt.actors.models.gguf.metadata import Metadata
from omnirt.actors.models.gguf.vocabulary import tokenizer_config, write_tokenizer
from omnirt.actors.models.gguf.weights import write_weights
from omnirt.actors.models.pinned import sha256_of

LAYOUT = 1
"""Raised when this package makes other folders from the same files."""


def converted(path: Path, report: Callable[[str], None], sha256: str = "", root: Path | None = None) -> Path:
    """The folder made from a GGUF file. `sha256` is the file's, when it is known already. Raises ConfigError."""
    name = _name(sha256 or sha256_of(path))
    return cache.cached(name, lambda part: convert(path, part, report), root)


def already_converted(sha256: str, root: Path | None = None) -> Path | None:
    """The folder made from the file with these bytes, if it is there."""
    return cache.existing(_name(sha256), root)


def convert(path: Path, folder: Path, report: Callable[[str], None]) -> None:
    """Fill `folder` from the file at `path`. Raises ConfigError."""
    report(f"reading {path.name}")
    metadata = Metadata.of(path)
    config = model_config(metadata)
    _write(folder / "config.json", config)
    _write(folder / "generation_config.json", generation_config(metadata))
    _write(folder / "tokenizer_config.json", tokenizer_config(metadata))
    write_tokenizer(metadata, folder / "tokenizer.json")
    write_weights(metadata, config, folder / "model.safetensors", report)


def _name(sha256: str) -> str:
    return f"gguf-{sha256[:32]}-v{LAYOUT}"


def _write(path: Path, values: dict[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
