"""config.json of a decoder, read once: every dimension from the file, and a refusal that names the key of anything that
would change the numbers and is not implemented.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from omnirt.actors.models.json_object import read_json
from omnirt.errors import ConfigError
from omnirt.loader import did_you_mean

FAMILIES = {"LlamaForCausalLM": "llama", "Qwen2ForCausalLM": "qwen2", "Qwen3ForCausalLM": "qwen3"}
ROPE_TYPES = ("default", "linear", "llama3")
REQUIRED = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "max_position_embeddings",
)
REFUSED: Mapping[str, tuple[Any, ...]] = {
    "hidden_act": ("silu",),
    "attention_bias": (False,),  # of these families: a bias of the output projection, too
    "mlp_bias": (False,),
    "quantization_config": (),
    "partial_rotary_factor": (1.0,),
    "pretraining_tp": (1,),
}
"""Keys with the values that are implemented; absent and null are always fine."""


class Rope(msgspec.Struct, frozen=True):
    """How positions turn into angles. The last four are for `llama3`, `factor` also for `linear`."""

    theta: float
    kind: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_context: int = 0


class DecoderConfig(msgspec.Struct, frozen=True):
    family: str
    vocab_size: int
    hidden: int
    ffn: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    context: int
    """Positions that the model was made for."""
    norm_eps: float
    rope: Rope
    tied: bool
    """The output projection is the embedding."""
    qkv_bias: bool
    head_norm: bool
    eos_ids: tuple[int, ...]
    dtype: str
    """What the checkpoint says it is stored in: `float32`, `bfloat16`, `float16`."""

    @property
    def kv_bytes(self) -> int:
        """Keys and values of one token, in float32."""
        return 2 * self.layers * self.kv_heads * self.head_dim * 4

    @property
    def parameters(self) -> int:
        """Without norms and biases."""
        attention = 2 * self.hidden * self.head_dim * (self.heads + self.kv_heads)
        tables = self.vocab_size * self.hidden * (1 if self.tied else 2)
        return self.layers * (attention + 3 * self.hidden * self.ffn) + tables


def read_config(folder: Path) -> DecoderConfig:
    """Raises ConfigError naming the file, the key and what it may be."""
    path = folder / "config.json"
    raw = read_json(path)
    try:
        return _config(raw, _eos_ids(folder, raw))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.message}") from None


def _config(raw: Mapping[str, Any], eos_ids: tuple[int, ...]) -> DecoderConfig:
    family = _family(raw)
    for key in REQUIRED:
        if not isinstance(raw.get(key), int) or raw[key] < 1:
            raise ConfigError(f"{key} is missing or no positive integer")
    for key, valid in REFUSED.items():
        if raw.get(key) is not None and raw[key] not in valid:
            said = " or ".join(repr(value) for value in valid)
            raise ConfigError(f"{key} = {_short(raw[key])} is not supported" + (f", only {said} is" if said else ""))
    context = raw["max_position_embeddings"]
    _refuse_window(raw, context)
    heads = raw["num_attention_heads"]
    config = DecoderConfig(
        family=family,
        vocab_size=raw["vocab_size"],
        hidden=raw["hidden_size"],
        ffn=raw["intermediate_size"],
        layers=raw["num_hidden_layers"],
        heads=heads,
        kv_heads=raw.get("num_key_value_heads") or heads,
        head_dim=raw.get("head_dim") or (128 if family == "qwen3" else raw["hidden_size"] // heads),
        context=context,
        norm_eps=float(raw.get("rms_norm_eps", 1e-6)),
        rope=_rope(raw, context),
        tied=bool(raw.get("tie_word_embeddings", False)),
        qkv_bias=family == "qwen2",
        head_norm=family == "qwen3",
        eos_ids=eos_ids,
        dtype=str(raw.get("dtype") or raw.get("torch_dtype") or "float32").removeprefix("torch."),
    )
    if config.heads % config.kv_heads:
        raise ConfigError(f"num_attention_heads = {heads} is no multiple of num_key_value_heads = {config.kv_heads}")
    if config.head_dim % 2:
        raise ConfigError(f"head_dim = {config.head_dim} is odd, rotary positions need pairs")
    return config


def _family(raw: Mapping[str, Any]) -> str:
    names = raw.get("architectures") or []
    known = [FAMILIES[name] for name in names if name in FAMILIES]
    if not known:
        named = ", ".join(map(str, names)) or "nothing"
        raise ConfigError(f"architectures names {named}; supported: {', '.join(FAMILIES)}")
    return known[0]


def _refuse_window(raw: Mapping[str, Any], context: int) -> None:
    """A window as long as the context changes nothing; a shorter one is not implemented."""
    window = raw.get("sliding_window") if raw.get("use_sliding_window", False) else None
    if window is not None and window < context:
        raise ConfigError(f"use_sliding_window with sliding_window = {window} is not supported")
    other = {kind for kind in raw.get("layer_types") or [] if kind != "full_attention"}
    if other and window is None:
        raise ConfigError(f"layer_types with {', '.join(sorted(other))} is not supported, only full_attention is")


def _rope(raw: Mapping[str, Any], context: int) -> Rope:
    """transformers 5 writes `rope_parameters`; earlier versions `rope_theta` and `rope_scaling`."""
    key = "rope_parameters" if raw.get("rope_parameters") else "rope_scaling"
    scaling = raw.get(key) or {}
    theta = float(scaling.get("rope_theta") or raw.get("rope_theta") or 10_000.0)
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    if kind not in ROPE_TYPES:
        raise ConfigError(f"{key}.rope_type = {kind!r} is not supported{did_you_mean(kind, ROPE_TYPES)}")
    if scaling.get("partial_rotary_factor", 1.0) != 1.0:
        raise ConfigError(f"{key}.partial_rotary_factor is not supported")
    needed = {"linear": ("factor",), "llama3": ("factor", "low_freq_factor", "high_freq_factor")}.get(kind, ())
    for name in needed:
        if not isinstance(scaling.get(name), int | float):
            raise ConfigError(f"{key}.{name} is missing, rope_type {kind!r} needs it")
    numbers = {name: float(scaling[name]) for name in needed}
    original = scaling.get("original_max_position_embeddings") or raw.get("original_max_position_embeddings") or context
    return Rope(theta=theta, kind=kind, original_context=int(original), **numbers)


def _eos_ids(folder: Path, raw: Mapping[str, Any]) -> tuple[int, ...]:
    """generation_config.json goes before config.json: chat checkpoints name the end of a turn only there."""
    path = folder / "generation_config.json"
    generation = read_json(path) if path.is_file() else {}
    ids = generation.get("eos_token_id")
    ids = raw.get("eos_token_id") if ids is None else ids
    if ids is None:
        return ()
    return tuple(ids) if isinstance(ids, list) else (int(ids),)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
