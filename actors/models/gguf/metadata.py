"""What a GGUF file says of itself: keys, typed, and tensors as they lie in the file."""

from __future__ import annotations

import struct
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from omnirt.errors import ConfigError

T = TypeVar("T")
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
"""Kinds of token."""


class Metadata:
    """Keys of a file. `arch` ones are prefixed with the architecture's name."""

    def __init__(self, values: dict[str, Any], tensors: dict[str, Any], name: str) -> None:
        self._values = values
        self.tensors = tensors
        """By name: `data` (rows of blocks, or of numbers), `tensor_type`, `shape` (innermost first)."""
        self.name = name
        self.architecture = self.need("general.architecture", str)

    @classmethod
    def of(cls, path: Path) -> Metadata:
        """Read a file. Its tensors stay on disk until they are looked at."""
        from gguf import GGUFReader

        try:
            reader = GGUFReader(path)
            values = {key: field.contents() for key, field in reader.fields.items()}
        except (ValueError, KeyError, IndexError, OSError, struct.error) as error:
            raise ConfigError(f"{path} cannot be read as a GGUF file: {error}") from error
        return cls(values, {tensor.name: tensor for tensor in reader.tensors}, path.name)

    def get(self, key: str, default: T) -> T:
        """The value of a key that may be missing."""
        value = self._values.get(key, default)
        return value if default is None else type(default)(value)  # type: ignore[call-arg]

    def need(self, key: str, kind: type[T]) -> T:
        if key not in self._values:
            raise ConfigError(f"{self.name} lacks the key {key}")
        return kind(self._values[key])  # type: ignore[call-arg]

    def arch(self, key: str, kind: type[T]) -> T:
        return self.need(f"{self.architecture}.{key}", kind)

    def arch_get(self, key: str, default: T) -> T:
        return self.get(f"{self.architecture}.{key}", default)

    def arch_float(self, key: str) -> float:
        """As it was written before it became a 32-bit number: 1e-05, not 9.999999747378752e-06."""
        return shortest(self.arch(key, float))

    def token_id(self, role: str) -> int | None:
        """Of `bos`, `eos`, `padding`, ..."""
        return self.get(f"tokenizer.ggml.{role}_token_id", None)

    @cached_property
    def tokens(self) -> list[str]:
        return self.need("tokenizer.ggml.tokens", list)

    @cached_property
    def token_kinds(self) -> list[int]:
        kinds = self.get("tokenizer.ggml.token_type", [])
        return kinds or [NORMAL] * len(self.tokens)


def shortest(value: float) -> float:
    return float(str(np.float32(value)))
