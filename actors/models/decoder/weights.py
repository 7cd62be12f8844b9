"""The tensors of a checkpoint under our names: one safetensors file, or the shards that its index lists.

Names and shapes are compared with the configuration before anything is read, and all that is missing, unexpected or of
another shape is named at once. A tensor is read when it is asked for, so that no float32 copy of all of them exists.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from omnirt.actors.models.decoder.config import DecoderConfig
from omnirt.actors.models.decoder.safetensors import Tensors
from omnirt.errors import ConfigError

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
NAMED_MAX = 5
"""How many names a complaint lists."""
COMPUTED = (".rotary_emb.inv_freq",)
"""Endings of tensors that old checkpoints hold and nobody needs."""

ENDS = {"embed": "model.embed_tokens.weight", "norm": "model.norm.weight", "lm_head": "lm_head.weight"}
LAYER = {
    "attn_norm": "input_layernorm.weight",
    "q": "self_attn.q_proj.weight",
    "k": "self_attn.k_proj.weight",
    "v": "self_attn.v_proj.weight",
    "q_bias": "self_attn.q_proj.bias",
    "k_bias": "self_attn.k_proj.bias",
    "v_bias": "self_attn.v_proj.bias",
    "q_norm": "self_attn.q_norm.weight",
    "k_norm": "self_attn.k_norm.weight",
    "o": "self_attn.o_proj.weight",
    "mlp_norm": "post_attention_layernorm.weight",
    "gate": "mlp.gate_proj.weight",
    "up": "mlp.up_proj.weight",
    "down": "mlp.down_proj.weight",
}


def shapes(config: DecoderConfig) -> dict[str, tuple[int, ...]]:
    """Our names, `embed`, `norm`, `lm_head` and `<layer>.<name>`; a tied `lm_head` is not among them."""
    q, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim
    layer: dict[str, tuple[int, ...]] = {
        "attn_norm": (config.hidden,),
        "q": (q, config.hidden),
        "k": (kv, config.hidden),
        "v": (kv, config.hidden),
        "o": (config.hidden, q),
        "mlp_norm": (config.hidden,),
        "gate": (config.ffn, config.hidden),
        "up": (config.ffn, config.hidden),
        "down": (config.hidden, config.ffn),
    }
    if config.qkv_bias:
        layer |= {"q_bias": (q,), "k_bias": (kv,), "v_bias": (kv,)}
    if config.head_norm:
        layer |= {"q_norm": (config.head_dim,), "k_norm": (config.head_dim,)}
    found: dict[str, tuple[int, ...]] = {"embed": (config.vocab_size, config.hidden), "norm": (config.hidden,)}
    if not config.tied:
        found["lm_head"] = (config.vocab_size, config.hidden)
    return found | {f"{i}.{name}": shape for i in range(config.layers) for name, shape in layer.items()}


def stored_name(name: str) -> str:
    """What checkpoints call `name`."""
    layer, dot, part = name.partition(".")
    return f"model.layers.{layer}.{LAYER[part]}" if dot else ENDS[name]


class Weights(Mapping[str, np.ndarray]):
    """float32 arrays by our names. A tied `lm_head` is there, and is the very array `embed`."""

    def __init__(self, folder: Path, config: DecoderConfig) -> None:
        self._tied = config.tied
        self._shapes = shapes(config)
        self._place = {stored: tensors for tensors in map(Tensors, _files(folder)) for stored in tensors}
        self._embed: np.ndarray | None = None
        complaints = self._complaints()
        if complaints:
            raise ConfigError(f"{folder}: the weights do not fit config.json; {complaints}")

    def __getitem__(self, name: str) -> np.ndarray:
        if name == "embed" or (name == "lm_head" and self._tied):
            self._embed = self._read("embed") if self._embed is None else self._embed
            return self._embed
        return self._read(name)

    def __iter__(self) -> Iterator[str]:
        yield from self._shapes
        if self._tied:
            yield "lm_head"

    def __len__(self) -> int:
        return len(self._shapes) + self._tied

    def _read(self, name: str) -> np.ndarray:
        if name not in self._shapes:
            raise KeyError(name)
        stored = stored_name(name)
        return self._place[stored].read(stored)

    def _complaints(self) -> str:
        wanted = {stored_name(name): shape for name, shape in self._shapes.items()}
        there = {stored: tensors.shape(stored) for stored, tensors in self._place.items()}
        spare = {ENDS["lm_head"]} if self._tied else set()
        found = {
            "missing": [stored for stored in wanted if stored not in there],
            "unexpected": [s for s in there if s not in wanted and s not in spare and not s.endswith(COMPUTED)],
            "of another shape": [
                f"{stored} is {list(there[stored])}, config.json says {list(shape)}"
                for stored, shape in wanted.items()
                if stored in there and there[stored] != shape
            ],
        }
        return "; ".join(f"{kind}: {_listed(names)}" for kind, names in found.items() if names)


def _files(folder: Path) -> list[Path]:
    index = folder / INDEX
    if not index.is_file():
        if not (folder / SINGLE).is_file():
            raise ConfigError(f"{folder} holds neither {SINGLE} nor {INDEX}")
        return [folder / SINGLE]
    names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    absent = [name for name in names if not (folder / name).is_file()]
    if absent:
        raise ConfigError(f"{index} lists files that are not there: {_listed(absent)}")
    return [folder / name for name in names]


def _listed(names: list[str]) -> str:
    more = len(names) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
