"""What a language model will need, worked out before anything is loaded, and memory that costs nothing until used.

Rows are planned at their full length: a server that has started can hold what it admits.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from omnirt.actors.models.decoder.config import DecoderConfig
from omnirt.actors.models.decoder.pieces import BLOCK
from omnirt.errors import ConfigError

SHARE = 0.8
"""Of the memory that is free, what an engine may plan with."""
CONTEXT_MIN = 512
"""Less is no use for a chat; a shorter context has to be asked for."""
KEPT_TOKENS = 1024
"""A row that was longer gives its pages back when it is free."""


class MemoryPlan(msgspec.Struct, frozen=True):
    context: int
    weights_bytes: int
    rows_bytes: int
    cache_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.weights_bytes + self.rows_bytes + self.cache_bytes

    def __str__(self) -> str:
        parts = f"weights {_gib(self.weights_bytes)}, rows {_gib(self.rows_bytes)}, prompts {_gib(self.cache_bytes)}"
        return f"{_gib(self.total_bytes)} GiB ({parts}; a context of {self.context})"


def planned(
    config: DecoderConfig, *, weights_bytes: int, rows: int, context_max: int, cache_blocks: int, free_bytes: int
) -> MemoryPlan:
    """Raises ConfigError when it does not fit: what is needed, what is there, and what would help."""
    if context_max > config.context:
        raise ConfigError(
            f"context_max = {context_max} is more than max_position_embeddings = {config.context} of the model"
        )
    cache_bytes = cache_blocks * BLOCK * config.kv_bytes
    usable = int(SHARE * free_bytes)
    context = context_max
    if not context:
        fits = max(usable - weights_bytes - cache_bytes, 0) // (rows * config.kv_bytes) // BLOCK * BLOCK
        context = min(config.context, max(fits, CONTEXT_MIN))
    plan = MemoryPlan(context, weights_bytes, rows * whole_blocks(context) * config.kv_bytes, cache_bytes)
    if plan.total_bytes > usable:
        raise ConfigError(
            f"the model does not fit: it needs {plan}, {_gib(usable)} of {_gib(free_bytes)} GiB free may be used; "
            f"less rows_max (now {rows}), context_max or cache_blocks, or a smaller dtype would help"
        )
    return plan


class Rows:
    """Keys and values of the sequences that are worked on, [slots, layers, kv, positions, d]."""

    def __init__(self, keys: Any, values: Any) -> None:
        """Arrays as `lazy_zeros` makes them, or tensors of a device."""
        self.keys = keys
        self.values = values

    def block(self, slot: int, start: int) -> tuple[Any, Any]:
        """Keys and values of one block, [layers, kv, BLOCK, d]; views."""
        return self.keys[slot, :, :, start : start + BLOCK], self.values[slot, :, :, start : start + BLOCK]

    def give_back(self, slot: int, tokens: int) -> None:
        """Nothing of the slot is needed any more, of which `tokens` were used."""
        if tokens > KEPT_TOKENS and isinstance(self.keys, np.ndarray):
            for array in (self.keys, self.values):
                _forget(array, slot)


def whole_blocks(tokens: int) -> int:
    return -(-tokens // BLOCK) * BLOCK


def free_bytes() -> int:
    """What this process may still take: of the machine, and of its control group."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return min(int(line.split()[1]) << 10, _group_free_bytes())
    raise ConfigError("/proc/meminfo names no MemAvailable")


def lazy_zeros(shape: tuple[int, ...]) -> np.ndarray:
    """float32 zeros whose pages exist from the first touch on. Small pages: a row's keys lie in many places, and with a
    large page for each the first token would cost the whole context."""
    memory = mmap.mmap(-1, max(1, int(np.prod(shape)) * 4), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.ndarray(shape, np.float32, buffer=memory)


def _forget(array: np.ndarray, slot: int) -> None:
    """The whole pages of a slot become zeros that take no memory."""
    memory, size = array.base, array[0].nbytes
    assert isinstance(memory, mmap.mmap)
    first, last = -(-slot * size // mmap.PAGESIZE), (slot + 1) * size // mmap.PAGESIZE
    if last > first:
        memory.madvise(mmap.MADV_DONTNEED, first * mmap.PAGESIZE, (last - first) * mmap.PAGESIZE)


def _group_free_bytes() -> int:
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if not limit.is_file() or limit.read_text().strip() == "max":
        return 1 << 62
    return max(0, int(limit.read_text()) - int(used.read_text()))


def _gib(size: int) -> str:
    return f"{size / 2**30:.2f}"
