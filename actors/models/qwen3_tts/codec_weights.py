"""The decoder of the 12 Hz speech tokenizer: its configuration and its weights, from a checkpoint's folder.

    read_codec(folder)      # checkpoint/speech_tokenizer: config.json and *.safetensors, tensors under `decoder.`

Names and shapes are compared with the configuration before anything is read; a tensor is read when it is asked for. Two
things are computed on the way: a codebook is divided by how often its entries were used and projected to the width that
the codebooks share, and keys and values of grouped heads are repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from omnirt.actors.models.decoder.safetensors import Tensors
from omnirt.actors.models.json_object import read_json
from omnirt.actors.models.qwen3_tts.config_fields import decimal
from omnirt.errors import ConfigError
from omnirt.kernels.codec_layout import DILATIONS, CodecShape, weight_sizes

PREFIX = "decoder."
USAGE_LEAST = 1e-5
"""Entries that were used less count as used so often."""
SEMANTIC_BOOKS = 1
MODEL_TYPE = "qwen3_tts_tokenizer_12hz"
NAMED_MAX = 5
"""How many names a complaint lists."""

DEFAULTS: Mapping[str, Any] = {
    "codebook_size": 2048,
    "hidden_size": 1024,
    "latent_dim": 1024,
    "rope_theta": 10000.0,
    "num_attention_heads": 16,
    "sliding_window": 72,
    "intermediate_size": 3072,
    "rms_norm_eps": 1e-5,
    "num_hidden_layers": 8,
    "num_quantizers": 16,
    "upsample_rates": [8, 5, 4, 3],
    "upsampling_ratios": [2, 2],
    "decoder_dim": 1536,
}
"""What a key that is not there means."""
REFUSED: Mapping[str, tuple[Any, ...]] = {
    "attention_bias": (False,),
    "hidden_act": ("silu",),
    "rope_scaling": (),
    "num_semantic_quantizers": (SEMANTIC_BOOKS,),
}
"""Keys with the values that are implemented; absent and null are always fine."""

LAYER = {
    "output": "self_attn.o_proj.weight",
    "gate": "mlp.gate_proj.weight",
    "up": "mlp.up_proj.weight",
    "down": "mlp.down_proj.weight",
    "norm1": "input_layernorm.weight",
    "norm2": "post_attention_layernorm.weight",
    "scale1": "self_attn_layer_scale.scale",
    "scale2": "mlp_layer_scale.scale",
}
UP = {"depth": "1.dwconv.conv", "ln": "1.norm", "wide": "1.pwconv1", "narrow": "1.pwconv2"}


class Codec(NamedTuple):
    shape: CodecShape
    sample_rate: int
    frame_s: float
    weights: Mapping[str, np.ndarray]
    """float32, by the names of codec_layout."""


def read_codec(folder: Path) -> Codec:
    """Raises ConfigError naming the file and the key or the tensor."""
    path = folder / "config.json"
    raw = read_json(path)
    try:
        if raw.get("model_type") not in (None, MODEL_TYPE):
            raise ConfigError(f"model_type = {raw['model_type']!r} is not supported, only {MODEL_TYPE!r} is")
        shape, kv_heads = _shape(_object(raw, "decoder_config"))
        rate = _positive(raw, "output_sample_rate", 24000)
        if _positive(raw, "decode_upsample_rate", 1920) != shape.samples:
            raise ConfigError(
                f"decode_upsample_rate = {raw['decode_upsample_rate']}, but upsample_rates and upsampling_ratios "
                f"make {shape.samples} samples of a frame"
            )
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.message}") from None
    return Codec(shape, rate, shape.samples / rate, CodecWeights(folder, shape, kv_heads))


class CodecWeights(Mapping[str, np.ndarray]):
    def __init__(self, folder: Path, shape: CodecShape, kv_heads: int) -> None:
        self._shape, self._kv_heads = shape, kv_heads
        self._names = stored_names(shape)
        files = sorted(folder.glob("*.safetensors"))
        if not files:
            raise ConfigError(f"{folder} holds no .safetensors file")
        self._place = {stored: tensors for tensors in map(Tensors, files) for stored in tensors}
        complaints = self._complaints()
        if complaints:
            raise ConfigError(f"{folder}: the weights do not fit config.json; {complaints}")

    def __getitem__(self, name: str) -> np.ndarray:
        if name == "tables":
            return np.stack([self._table(book) for book in range(self._shape.books)])
        if name.endswith(".qkv"):
            layer = _layer(name)
            q, k, v = (self._read(f"{layer}.self_attn.{part}_proj.weight") for part in "qkv")
            return np.concatenate([q, self._repeated(k), self._repeated(v)])
        return self._read(self._names[name])

    def __iter__(self) -> Iterator[str]:
        return iter(weight_sizes(self._shape))

    def __len__(self) -> int:
        return len(weight_sizes(self._shape))

    def _read(self, stored: str) -> np.ndarray:
        return self._place[PREFIX + stored].read(PREFIX + stored)

    def _table(self, book: int) -> np.ndarray:
        group, codebook = _codebook(book)
        usage = np.maximum(self._read(f"{codebook}.cluster_usage"), np.float32(USAGE_LEAST))
        embedding = self._read(f"{codebook}.embedding_sum") / usage[:, None]
        return embedding @ self._read(f"{group}.output_proj.weight")[:, :, 0].T

    def _repeated(self, heads: np.ndarray) -> np.ndarray:
        parts = heads.reshape(self._kv_heads, self._shape.head, -1)
        return parts.repeat(self._shape.heads // self._kv_heads, axis=0).reshape(-1, heads.shape[1])

    def _complaints(self) -> str:
        wanted = {PREFIX + stored: size for stored, size in self._wanted().items()}
        missing = [name for name in wanted if name not in self._place]
        other = [
            f"{name} is {list(self._place[name].shape(name))}, config.json says {list(size)}"
            for name, size in wanted.items()
            if name in self._place and self._place[name].shape(name) != size
        ]
        found = {"missing": missing, "of another shape": other}
        return "; ".join(f"{kind}: {_listed(names)}" for kind, names in found.items() if names)

    def _wanted(self) -> dict[str, tuple[int, ...]]:
        s, sizes = self._shape, weight_sizes(self._shape)
        wanted = {stored: sizes[name] for name, stored in self._names.items()}
        for i in range(s.layers):
            attention = f"pre_transformer.layers.{i}.self_attn"
            wanted[f"{attention}.q_proj.weight"] = (s.heads * s.head, s.hidden)
            for part in "kv":
                wanted[f"{attention}.{part}_proj.weight"] = (self._kv_heads * s.head, s.hidden)
        for book in range(s.books):
            group, codebook = _codebook(book)
            wanted[f"{group}.output_proj.weight"] = (s.width, s.width // 2, 1)
            wanted[f"{codebook}.embedding_sum"] = (s.codes, s.width // 2)
            wanted[f"{codebook}.cluster_usage"] = (s.codes,)
        return wanted


def stored_names(s: CodecShape) -> dict[str, str]:
    """Ours -> what checkpoints call it after `decoder.`, of all that is stored as it is used."""
    names = {"norm": "pre_transformer.norm.weight"}
    names |= _biased("pre", "pre_conv.conv")
    names |= _biased("enter", "pre_transformer.input_proj") | _biased("leave", "pre_transformer.output_proj")
    for i in range(s.layers):
        names |= {f"layer{i}.{ours}": f"{_layer(f'layer{i}.qkv')}.{stored}" for ours, stored in LAYER.items()}
    for i in range(len(s.stretch)):
        names |= _biased(f"up{i}", f"upsample.{i}.0.conv") | {f"up{i}.gamma": f"upsample.{i}.1.gamma"}
        for ours, stored in UP.items():
            names |= _biased(f"up{i}.{ours}", f"upsample.{i}.{stored}")
    names |= _biased("first", "decoder.0.conv")
    for i in range(len(s.rates)):
        block = f"decoder.{i + 1}.block"
        names |= _snake(f"block{i}", f"{block}.0") | _biased(f"block{i}.stretch", f"{block}.1.conv")
        for j, d in enumerate(DILATIONS):
            ours, unit = f"block{i}.{d}", f"{block}.{j + 2}"
            names |= _snake(f"{ours}.a", f"{unit}.act1") | _snake(f"{ours}.b", f"{unit}.act2")
            names |= _biased(f"{ours}.wide", f"{unit}.conv1.conv") | _biased(f"{ours}.point", f"{unit}.conv2.conv")
    end = len(s.rates) + 1
    return names | _snake("final", f"decoder.{end}") | _biased("last", f"decoder.{end + 1}.conv")


def _biased(ours: str, stored: str) -> dict[str, str]:
    return {ours: f"{stored}.weight", f"{ours}.bias": f"{stored}.bias"}


def _snake(ours: str, stored: str) -> dict[str, str]:
    return {f"{ours}.{part}": f"{stored}.{part}" for part in ("alpha", "beta")}


def _layer(name: str) -> str:
    return f"pre_transformer.layers.{name.removeprefix('layer').removesuffix('.qkv')}"


def _codebook(book: int) -> tuple[str, str]:
    """The group of a codebook, whose projection it shares, and the codebook itself."""
    group, i = ("first", book) if book < SEMANTIC_BOOKS else ("rest", book - SEMANTIC_BOOKS)
    return f"quantizer.rvq_{group}", f"quantizer.rvq_{group}.vq.layers.{i}._codebook"


def _shape(raw: Mapping[str, Any]) -> tuple[CodecShape, int]:
    for key, valid in REFUSED.items():
        if raw.get(key) is not None and raw[key] not in valid:
            said = " or ".join(repr(value) for value in valid)
            raise ConfigError(f"decoder_config.{key} = {raw[key]!r} is not supported" + (said and f", only {said} is"))

    def size(key: str, default: int | None = None) -> int:
        return _positive(raw, key, default or DEFAULTS.get(key), "decoder_config.")

    def sizes(key: str) -> tuple[int, ...]:
        return tuple(_positive({key: item}, key, None, "decoder_config.") for item in raw.get(key, DEFAULTS[key]))

    heads = size("num_attention_heads")
    kv_heads = size("num_key_value_heads", 16)
    if heads % kv_heads:
        raise ConfigError(f"decoder_config: {heads} num_attention_heads cannot share {kv_heads} num_key_value_heads")
    shape = CodecShape(
        books=size("num_quantizers"),
        codes=size("codebook_size"),
        width=size("codebook_dim"),
        latent=size("latent_dim"),
        hidden=size("hidden_size"),
        feed=size("intermediate_size"),
        layers=size("num_hidden_layers"),
        heads=heads,
        head=size("head_dim", size("hidden_size") // heads),
        window=size("sliding_window"),
        stretch=sizes("upsampling_ratios"),
        channels=size("decoder_dim"),
        rates=sizes("upsample_rates"),
        eps=decimal(raw, "rms_norm_eps", "decoder_config.", DEFAULTS["rms_norm_eps"]),
        theta=decimal(raw, "rope_theta", "decoder_config.", DEFAULTS["rope_theta"]),
    )
    if shape.channels % 2 ** len(shape.rates):
        raise ConfigError(f"decoder_config.decoder_dim = {shape.channels} cannot be halved {len(shape.rates)} times")
    if shape.books <= SEMANTIC_BOOKS or shape.width % 2 or shape.head % 2:
        raise ConfigError("decoder_config: num_quantizers must be more than 1, codebook_dim and head_dim even")
    return shape, kv_heads


def _positive(raw: Mapping[str, Any], key: str, default: int | None, where: str = "") -> int:
    value = raw.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"{where}{key} is missing or no positive integer")
    return value


def _object(raw: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    if not isinstance(raw.get(key), dict):
        raise ConfigError(f"{key} is missing or no object; is this the folder of a 12 Hz speech tokenizer?")
    return raw[key]


def _listed(names: list[str]) -> str:
    more = len(names) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
