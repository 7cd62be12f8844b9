"""From a folder to the parts of an engine: configuration, memory plan, weights, rows, and who computes a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

import msgspec
import numpy as np

from omnirt.actors.engines.memory import MemoryPlan, Rows, free_bytes, lazy_zeros, planned, whole_blocks
from omnirt.actors.engines.prompt_cache import PromptCache
from omnirt.actors.models.decoder import model, native
from omnirt.actors.models.decoder.config import DecoderConfig, read_config
from omnirt.actors.models.decoder.pieces import BLOCK, Piece
from omnirt.actors.models.decoder.weights import Weights
from omnirt.errors import ConfigError
from omnirt.extras import extra
from omnirt.loader import did_you_mean

DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "int8": 1}


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """See LanguageEngine.load."""

    device: str
    dtype: str
    rows_max: int
    context_max: int
    prefill_tokens: int
    cache_blocks: int
    threads: int


class Decoder(Protocol):
    def run(self, pieces: Sequence[Piece], logits: np.ndarray) -> None:
        """Keys and values of every token into the rows, and of each piece that wants them its logits into the next row
        of `logits`."""
        ...


class Loaded(NamedTuple):
    config: DecoderConfig
    plan: MemoryPlan
    dtype: str
    decoder: Decoder
    rows: Rows
    prompts: PromptCache


def load_decoder(folder: Path, settings: Settings, report: Callable[[str], None]) -> Loaded:
    """Raises ConfigError."""
    for name in ("rows_max", "prefill_tokens", "threads"):
        if getattr(settings, name) < 1:
            raise ConfigError(f"{name} = {getattr(settings, name)} must be at least 1")
    config = read_config(folder)
    weights = Weights(folder, config)
    dtype = _dtype(config, settings)
    on_cpu = settings.device == "cpu"
    shape = native.shape_of(config) if on_cpu else None
    if dtype == "int8" and shape is None:
        raise ConfigError("dtype 'int8' is for CPUs, and for shapes that the kernel takes")
    plan = planned(
        config,
        weights_bytes=config.parameters * (4 if on_cpu and shape is None else DTYPE_BYTES[dtype]),
        rows=settings.rows_max,
        context_max=settings.context_max,
        cache_blocks=settings.cache_blocks,
        free_bytes=free_bytes() if on_cpu else _device_free_bytes(settings),
    )
    report(f"loading {folder.name} as {dtype}: up to {plan}")
    zeros = lazy_zeros if on_cpu else _device_zeros(settings)
    of_slot = (config.layers, config.kv_heads, whole_blocks(plan.context), config.head_dim)
    rows = Rows(zeros((settings.rows_max, *of_slot)), zeros((settings.rows_max, *of_slot)))
    prompts = PromptCache(zeros((settings.cache_blocks, 2, config.layers, config.kv_heads, BLOCK, config.head_dim)))
    if shape is not None:
        pass_rows = settings.prefill_tokens + settings.rows_max
        report("packing weights" if native.is_compiled() else f"packing weights, {native.COMPILING}")
        packed = native.packed(shape, weights, cast("native.Kept", dtype), pass_rows, settings.threads)
        decoder: Decoder = native.NativeDecoder(packed, config, (rows.keys, rows.values))
    else:
        decoder = _torch_decoder(config, weights, dtype, rows, settings)
    return Loaded(config, plan, dtype, decoder, rows, prompts)


def _dtype(config: DecoderConfig, settings: Settings) -> str:
    if settings.dtype == "auto":
        return "bfloat16" if config.dtype == "bfloat16" else "float32"
    if settings.dtype not in DTYPE_BYTES:
        raise ConfigError(f"there is no dtype {settings.dtype!r}{did_you_mean(settings.dtype, ('auto', *DTYPE_BYTES))}")
    return settings.dtype


def _torch_decoder(
    config: DecoderConfig, weights: Weights, dtype: str, rows: Rows, settings: Settings
) -> model.TorchDecoder:
    torch = _torch(settings.device if settings.device != "cpu" else "a model of this shape")
    torch.set_num_threads(settings.threads)
    cache = (rows.keys, rows.values)
    if settings.device == "cpu":
        cache = torch.from_numpy(rows.keys), torch.from_numpy(rows.values)
    return model.TorchDecoder(
        config, model.gathered(weights, config, dtype, settings.device), cache, alone=settings.device == "cpu"
    )


def _device_zeros(settings: Settings) -> Callable[[tuple[int, ...]], Any]:
    torch = _torch(settings.device)
    return lambda shape: torch.zeros(shape, dtype=torch.float32, device=settings.device)


def _device_free_bytes(settings: Settings) -> int:
    return _torch(settings.device).cuda.mem_get_info(settings.device)[0]


def _torch(for_what: str) -> Any:
    try:
        import torch
    except ImportError:
        raise ConfigError(f"{for_what} needs torch, which is not installed: {extra('torch')}") from None
    return torch
