"""Rotary positions: one table of cosines and sines for all positions, made once.

Angles are float32, position times inverse frequency, as checkpoints were trained with. A pair is (i, i + head_dim / 2),
so both halves of a row of the tables are equal.
"""

from __future__ import annotations

import math

import numpy as np

from omnirt.actors.models.decoder.config import DecoderConfig, Rope


def rotary_tables(config: DecoderConfig, positions: int) -> tuple[np.ndarray, np.ndarray]:
    """cosines, sines: [positions, head_dim] float32."""
    angles = (
        np.arange(positions, dtype=np.float32)[:, None] * inverse_frequencies(config.rope, config.head_dim)[None, :]
    )
    angles = np.concatenate((angles, angles), axis=1).astype(np.float64)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def inverse_frequencies(rope: Rope, head_dim: int) -> np.ndarray:
    """[head_dim / 2] float32."""
    powers = rope.theta ** (np.arange(0, head_dim, 2) / head_dim)
    plain = np.float32(1.0) / powers.astype(np.float32)
    if rope.kind == "linear":
        return plain / np.float32(rope.factor)
    if rope.kind == "llama3":
        return _stretched(plain, rope).astype(np.float32)
    return plain


def _stretched(plain: np.ndarray, rope: Rope) -> np.ndarray:
    """Long waves are slowed down by `factor`, short ones stay, those between are mixed."""
    waves = 2 * math.pi / plain
    share = (rope.original_context / waves - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    mixed = (1 - share) * plain / rope.factor + share * plain
    slowed = np.where(waves > rope.original_context / rope.low_freq_factor, plain / rope.factor, mixed)
    return np.where(waves < rope.original_context / rope.high_freq_factor, plain, slowed)
