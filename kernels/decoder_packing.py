"""Weights of a decoder as its kernel reads them: matrices in tiles of 16 outputs, one layer after the other.

A tile holds, for each term k, the weights of 16 outputs side by side:

    float32    w[0..15]
    bfloat16   w[0], w[8], w[1], w[9], ...         a 32-bit word is an output of each of two vectors
    int8       blocks of 32 terms: scale[0..15] (float16), then q[0..15] for each term          w = scale * q
    int4       blocks of 32 terms: scale[0..15], offset[0..15], then words of four terms    w = scale * q + offset

Outputs are filled up with zeros: each head, and each matrix as a whole, to groups of 64.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from omnirt.kernels import decoder_layout as at

Kept = Literal["float32", "bfloat16", "int8"]
TILE = 16
BLOCK = 32
"""Terms that share a scale."""
LINE = 64
"""Bytes; everything starts at a line of the processor's cache."""


@dataclass(frozen=True)
class DecoderShape:
    layers: int
    d_model: int
    heads: int
    kv_heads: int
    head_dim: int
    d_ffn: int
    vocab: int
    rms_eps: float = 1e-5
    qk_norm: bool = False
    qkv_bias: bool = False

    def __post_init__(self) -> None:
        assert self.heads % self.kv_heads == 0
        assert self.head_dim % 32 == 0
        assert self.d_model % 32 == 0
        assert self.d_ffn % 32 == 0


@dataclass(frozen=True)
class Blocks:
    """A matrix in whole numbers: scale * values, plus offset where there is one (then values are 0 to 15)."""

    values: np.ndarray
    """int8 [outputs, terms]"""
    scale: np.ndarray
    """float16 [outputs, terms / BLOCK]"""
    offset: np.ndarray | None = None

    def floats(self) -> np.ndarray:
        values = self.values.reshape(*self.scale.shape, BLOCK).astype(np.float32)
        w = values * self.scale.astype(np.float32)[..., None]
        if self.offset is not None:
            w += self.offset.astype(np.float32)[..., None]
        return w.reshape(self.values.shape)


Matrix = np.ndarray | Blocks
"""[outputs, terms]; arrays are float32."""


def in_blocks(w: np.ndarray) -> Blocks:
    """To the nearest of 255 values: the largest of a block decides its scale."""
    blocks = w.reshape(len(w), -1, BLOCK)
    scale = (np.abs(blocks).max(axis=2) / 127).astype(np.float16)
    divisor = np.where(scale == 0, 1, scale).astype(np.float32)[..., None]
    return Blocks(np.clip(np.rint(blocks / divisor), -127, 127).astype(np.int8).reshape(w.shape), scale)


def bfloat16(w: np.ndarray) -> np.ndarray:
    """float32 to the nearest bfloat16, ties to even, as uint16."""
    bits = np.ascontiguousarray(w, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def rounded(matrix: Matrix, kept: Kept) -> np.ndarray:
    """What a matrix is worth, in float32, when it is kept so."""
    if kept == "int8":
        return (matrix if isinstance(matrix, Blocks) else in_blocks(matrix)).floats()
    w = matrix.floats() if isinstance(matrix, Blocks) else matrix
    return w if kept == "float32" else (bfloat16(w).astype(np.uint32) << 16).view(np.float32)


# ---------------------------------------------------------------- tiles


def tiled(parts: list[Matrix], rows: np.ndarray, kept: Kept) -> tuple[int, np.ndarray]:
    """(kind, bytes) of the matrices one above the other, in this order of outputs. -1 is an output of zeros."""
    if kept != "int8":
        w = np.concatenate([part.floats() if isinstance(part, Blocks) else part for part in parts])
        if kept == "float32":
            return at.FLOAT32, _flat(_in_tiles(_ordered(w, rows)))
        halves = _in_tiles(_ordered(bfloat16(w), rows))
        return at.BFLOAT16, _flat(halves.reshape(-1, w.shape[1], 2, TILE // 2).swapaxes(2, 3))
    blocks = [part if isinstance(part, Blocks) else in_blocks(part) for part in parts]
    if len({part.offset is None for part in blocks}) > 1:
        blocks = [in_blocks(part.floats()) for part in blocks]
    values = _in_tiles(_ordered(np.concatenate([part.values for part in blocks]), rows))
    heads = [_in_tiles(_ordered(np.concatenate([part.scale for part in blocks]), rows))]
    if blocks[0].offset is not None:
        heads.append(_in_tiles(_ordered(np.concatenate([part.offset for part in blocks]), rows)))
        values = _in_words(values)
    head = np.concatenate([np.ascontiguousarray(part).view(np.uint8) for part in heads], axis=2)
    body = np.ascontiguousarray(values).view(np.uint8).reshape(*head.shape[:2], -1)
    return at.INT8 if len(heads) == 1 else at.INT4, _flat(np.concatenate([head, body], axis=2))


def _ordered(array: np.ndarray, rows: np.ndarray) -> np.ndarray:
    return np.concatenate([array, np.zeros((1, array.shape[1]), array.dtype)])[rows]


def _in_tiles(array: np.ndarray) -> np.ndarray:
    """[outputs, terms] -> [tiles, terms, TILE]"""
    return array.reshape(-1, TILE, array.shape[1]).swapaxes(1, 2)


def _in_words(values: np.ndarray) -> np.ndarray:
    """[tiles, terms, TILE] of 4 bits -> [tiles, terms / 4, TILE / 2, 4] bytes: two outputs each, four terms a word."""
    low, high = values[..., : TILE // 2].astype(np.uint8), values[..., TILE // 2 :].astype(np.uint8)
    packed = low | high << 4
    return packed.reshape(len(values), -1, 4, TILE // 2).swapaxes(2, 3)


def _flat(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def in_groups(outputs: int, first: int = 0) -> np.ndarray:
    """Outputs in their order, filled up to whole groups."""
    rows = np.full(-(-outputs // at.GROUP) * at.GROUP, -1)
    rows[:outputs] = np.arange(first, first + outputs)
    return rows


def layer_matrices(shape: DecoderShape, weights: Mapping[str, Matrix], layer: int, kept: Kept):
    """(word of the control block, kind, bytes, terms) of each."""

    def named(*names: str) -> list[Matrix]:
        return [weights[f"{layer}.{name}"] for name in names]

    size, d, ffn = shape.head_dim, shape.d_model, shape.d_ffn
    heads = [in_groups(size, head * size) for head in range(shape.heads + 2 * shape.kv_heads)]
    gate_up = np.stack([in_groups(ffn).reshape(-1, at.GROUP), in_groups(ffn, ffn).reshape(-1, at.GROUP)], axis=1)
    yield at.QKV, *tiled(named("q", "k", "v"), np.concatenate(heads), kept), d
    yield at.OUTPUT, *tiled(named("o"), in_groups(d), kept), shape.heads * size
    yield at.GATE_UP, *tiled(named("gate", "up"), gate_up.reshape(-1), kept), d
    yield at.DOWN, *tiled(named("down"), in_groups(d), kept), ffn


def layer_vectors(shape: DecoderShape, weights: Mapping[str, Matrix], layer: int) -> dict[int, np.ndarray]:
    names: dict[int, tuple[str, ...]] = {at.ATTN_NORM: ("attn_norm",), at.MLP_NORM: ("mlp_norm",)}
    if shape.qkv_bias:
        names[at.BIAS] = ("q_bias", "k_bias", "v_bias")
    if shape.qk_norm:
        names |= {at.Q_NORM: ("q_norm",), at.K_NORM: ("k_norm",)}
    return {
        word: np.concatenate([np.asarray(weights[f"{layer}.{name}"], np.float32) for name in parts])
        for word, parts in names.items()
    }


# ---------------------------------------------------------------- memory


class Arena:
    """Arrays one after the other in memory that starts and continues at lines of the cache."""

    def __init__(self, size: int) -> None:
        self._memory = np.empty(size + LINE, np.uint8)
        start = -self._memory.ctypes.data % LINE
        self._view = self._memory[start : start + size]
        self.address: int = self._view.ctypes.data
        self.used = 0

    def add(self, array: np.ndarray) -> int:
        """The address of the copy."""
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        place, self.used = self.used, self.used + lines(data.nbytes)
        assert self.used <= self._view.nbytes
        self._view[place : place + data.nbytes] = data
        return self.address + place


def lines(size: int) -> int:
    return -(-size // LINE) * LINE
