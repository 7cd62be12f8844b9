"""Where everything stands in a decoder's control block, an array of int64. See `decoder_native`."""

from __future__ import annotations

from omnirt.kernels.team import WORDS

FLOAT32, BFLOAT16, INT8, INT4 = range(4)
"""How a matrix is kept."""

GROUP = 64
"""A matrix has a whole number of groups of outputs; what is missing is zeros."""
NARROW = 32
"""Outputs of a piece of a small matrix, so that two threads end together."""
WIDE = 256
"""Outputs of a piece of the logits."""
PART = 48
"""Rows of a piece: eight times as many as are multiplied at once."""

M_AT, M_TILE, M_TERMS, M_KIND, M_PRODUCT, _MATRIX = range(6)
"""A matrix: its place, the bytes of a tile, the terms of an output, its kind, the address of the function for it."""

(
    LAYERS, D, HEADS, KV_HEADS, HEAD_DIM, VOCAB, EPS, HAS_QK_NORM, HAS_BIAS, HEAD_TILES,
    WEIGHTS, LAYER_BYTES, ATTN_NORM, MLP_NORM, BIAS, Q_NORM, K_NORM, NORM, ATTEND,
    X, Q, HIDDEN, HIDDEN_BYTES, SCRATCH, SCRATCH_BYTES, SCRATCH_OUT, SCRATCH_SCORES,
    ROWS, TOKENS, POSITIONS, SLOTS, KEYS, VALUES, KV_SLOT, KV_LAYER, KV_HEAD, COS, SIN,
    WANTED, WANTED_ROWS, LOGITS, LOGITS_BYTES, _MATRICES,
) = range(WORDS, WORDS + 43)  # fmt: skip
"""The shape; weights (places within a layer, but for WEIGHTS, NORM and ATTEND); buffers; the step."""

QKV, OUTPUT, GATE_UP, DOWN, EMBED, HEAD, END = range(_MATRICES, _MATRICES + 7 * _MATRIX, _MATRIX)
MATRICES = (QKV, OUTPUT, GATE_UP, DOWN, EMBED, HEAD)
