"""config.json and generation_config.json from a GGUF file's metadata.

The decoder families are those that the language engine runs: Llama, Qwen2 and Qwen3, all dense.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from omnirt.actors.models.gguf.metadata import CONTROL, Metadata, shortest
from omnirt.errors import ConfigError

CLASSES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
_ENDS = ("<|endoftext|>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>")
"""Control tokens after which no model goes on, whichever of them its file calls the end."""
_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
"""How every Llama 3 stretches its context; a file holds only the resulting factors."""


def model_config(metadata: Metadata) -> dict[str, Any]:
    """Raises ConfigError for what the engine does not run."""
    family = metadata.architecture
    if family not in CLASSES:
        raise ConfigError(f"{metadata.name} is of architecture {family!r}; read are {', '.join(CLASSES)}")
    if metadata.arch_get("expert_count", 0):
        raise ConfigError(f"{metadata.name} is a mixture of experts; read are dense models")
    heads = metadata.arch("attention.head_count", int)
    hidden = metadata.arch("embedding_length", int)
    config = {
        "architectures": [CLASSES[family]],
        "model_type": family,
        "hidden_size": hidden,
        "intermediate_size": metadata.arch("feed_forward_length", int),
        "num_hidden_layers": metadata.arch("block_count", int),
        "num_attention_heads": heads,
        "num_key_value_heads": metadata.arch_get("attention.head_count_kv", heads),
        "head_dim": metadata.arch_get("attention.key_length", hidden // heads),
        "hidden_act": "silu",
        "max_position_embeddings": metadata.arch("context_length", int),
        "rms_norm_eps": metadata.arch_float("attention.layer_norm_rms_epsilon"),
        "rope_theta": shortest(metadata.arch_get("rope.freq_base", 10000.0)),
        "rope_scaling": _rope_scaling(metadata),
        "attention_bias": "blk.0.attn_q.bias" in metadata.tensors,
        "mlp_bias": False,
        "tie_word_embeddings": "output.weight" not in metadata.tensors,
        "vocab_size": int(_tensor(metadata, "token_embd.weight").shape[1]),
        "bos_token_id": metadata.token_id("bos"),
        "eos_token_id": metadata.token_id("eos"),
        "pad_token_id": metadata.token_id("padding"),
        "torch_dtype": "bfloat16",
    }
    if metadata.arch_get("rope.dimension_count", config["head_dim"]) != config["head_dim"]:
        raise ConfigError(f"{metadata.name} turns only a part of each head's positions")
    return config


def generation_config(metadata: Metadata) -> dict[str, Any]:
    """Where answers end. How to sample is not in the file."""
    named = [metadata.token_id(role) for role in ("eos", "eot", "eom")]
    tokens = zip(metadata.tokens, metadata.token_kinds, strict=True)
    known = [number for number, (token, kind) in enumerate(tokens) if kind == CONTROL and token in _ENDS]
    ends = list(dict.fromkeys(number for number in [*named, *known] if number is not None))
    return {
        "bos_token_id": metadata.token_id("bos"),
        "eos_token_id": ends,
        "pad_token_id": metadata.token_id("padding"),
    }


def _rope_scaling(metadata: Metadata) -> dict[str, Any] | None:
    factors = metadata.tensors.get("rope_freqs.weight")
    if factors is not None:
        return _llama3_scaling(metadata, np.asarray(factors.data, np.float32))
    kind = metadata.arch_get("rope.scaling.type", "none")
    if kind == "none":
        return None
    scaling: dict[str, Any] = {"rope_type": kind, "factor": metadata.arch_float("rope.scaling.factor")}
    if kind == "yarn":
        original = metadata.arch("rope.scaling.original_context_length", int)
        scaling["original_max_position_embeddings"] = original
    return scaling


def _llama3_scaling(metadata: Metadata, factors: np.ndarray) -> dict[str, Any]:
    """The parameters behind the factors, checked by computing the factors from them."""
    scaling = {"rope_type": "llama3", "factor": float(factors.max()), **_LLAMA3}
    theta = metadata.arch_get("rope.freq_base", 10000.0)
    angles = theta ** (-np.arange(len(factors)) / len(factors))  # of each frequency, a position
    turns = angles * _LLAMA3["original_max_position_embeddings"] / (2 * np.pi)
    low, high = _LLAMA3["low_freq_factor"], _LLAMA3["high_freq_factor"]
    smooth = np.clip((turns - low) / (high - low), 0.0, 1.0)
    if not np.allclose(factors, 1 / ((1 - smooth) / scaling["factor"] + smooth), rtol=1e-3):
        raise ConfigError(f"{metadata.name} stretches its positions in a way that is not known (rope_freqs.weight)")
    return scaling


def _tensor(metadata: Metadata, name: str) -> Any:
    if name not in metadata.tensors:
        raise ConfigError(f"{metadata.name} lacks the tensor {name}")
    return metadata.tensors[name]
