"""The decoder step in plain numpy: the slow twin of `decoder_step`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from omnirt.kernels.decoder_packing import DecoderShape

Weights = Mapping[str, np.ndarray]
Pair = tuple[np.ndarray, np.ndarray]


def reference(
    shape: DecoderShape,
    weights: Weights,
    rows: tuple[np.ndarray, np.ndarray, np.ndarray],
    cache: Pair,
    rotation: Pair,
) -> np.ndarray:
    """`rows`: tokens, positions, slots. Writes keys and values into the cache; gives logits of every row."""
    tokens, positions, slots = rows
    x = weights["embed"][tokens]
    for layer in range(shape.layers):

        def named(name: str, layer: int = layer) -> np.ndarray:
            return weights[f"{layer}.{name}"]

        h = _norm(x, named("attn_norm"), shape)
        q, k, v = (_project(h, name, named, shape) for name in "qkv")
        if shape.qk_norm:
            q, k = _norm(q, named("q_norm"), shape), _norm(k, named("k_norm"), shape)
        q, k = _rotate(q, positions, rotation), _rotate(k, positions, rotation)
        cache[0][slots, layer, :, positions] = k
        cache[1][slots, layer, :, positions] = v
        mixed = [
            _attend(q[r], cache[0][slots[r], layer, :, : positions[r] + 1], cache[1][slots[r], layer])
            for r in range(len(x))
        ]
        x = x + np.stack(mixed).reshape(len(x), -1) @ named("o").T
        h = _norm(x, named("mlp_norm"), shape)
        gate = h @ named("gate").T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ named("up").T)) @ named("down").T
    return _norm(x, weights["norm"], shape) @ weights["lm_head"].T


def _norm(x: np.ndarray, weight: np.ndarray, shape: DecoderShape) -> np.ndarray:
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(shape.rms_eps)) * weight


def _project(h: np.ndarray, name: str, named, shape: DecoderShape) -> np.ndarray:
    y = h @ named(name).T
    if shape.qkv_bias:
        y = y + named(f"{name}_bias")
    return y.reshape(len(h), -1, shape.head_dim)


def _rotate(x: np.ndarray, positions: np.ndarray, rotation: Pair) -> np.ndarray:
    cos, sin = (table[positions][:, None] for table in rotation)
    low, high = np.split(x, 2, axis=-1)
    return x * cos + np.concatenate([-high, low], axis=-1) * sin


def _attend(q: np.ndarray, keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    """q: [heads, head_dim]; keys: [kv_heads, positions, head_dim]."""
    q = q.reshape(len(keys), -1, q.shape[-1])
    scores = np.einsum("ghd,gpd->ghp", q, keys) / np.sqrt(np.float32(q.shape[-1]))
    weight = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weight /= weight.sum(axis=-1, keepdims=True)
    return np.einsum("ghp,gpd->ghd", weight, values[:, : keys.shape[1]]).reshape(-1, q.shape[-1])
