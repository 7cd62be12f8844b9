# pyright: basic, reportCallIssue=false
"""Attention of one token over the keys and values before it: all query heads that share them.

    attend(queries, heads, head_dim, keys, values, length, scores)

Everything is float32; keys and values are [position, head_dim]; queries are [heads, head_dim], and the result takes
their place; scores is the thread's own, SIDE_BY_SIDE * (length, filled up to whole vectors). All addresses are int64.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import cfunc, njit

from omnirt.kernels import vector_attention, vector_rows
from omnirt.kernels.native_memory import CALL, FLOAT, float_to, kept
from omnirt.kernels.vector_attention import MIXED
from omnirt.kernels.vector_code import LANES

SIDE_BY_SIDE = 3
"""Query heads for which a key is read once."""

_softmax, _scale = vector_attention.softmax, vector_rows.scale
_scores_1, _scores_2, _scores_3 = (vector_attention.scores[heads] for heads in (1, 2, 3))
_scores_1_of_one, _scores_2_of_one, _scores_3_of_one = (vector_attention.scores_of_one[heads] for heads in (1, 2, 3))
_mix_1, _mix_2, _mix_3 = (vector_attention.mix[heads] for heads in (1, 2, 3))
_AT_ONCE = np.array([0, *vector_attention.SCORED.values()])


def attend(queries, group, head_dim, keys, values, length, scores):
    size, padded = head_dim * FLOAT, (length + LANES - 1) // LANES * LANES
    head = 0
    while head < group:
        heads, at = min(SIDE_BY_SIDE, group - head), queries + head * size
        _score(heads, (at, size), keys, length, (scores, padded * FLOAT))
        for h in range(heads):
            _weigh(scores + h * padded * FLOAT, length, padded, head_dim)
        _blend(heads, (scores, padded * FLOAT), (values, size), length, at)
        head += heads


@njit
def _score(heads, queries, keys, length, out):
    address, size = queries
    vectors = size // (LANES * FLOAT)
    whole = length // _AT_ONCE[heads] * _AT_ONCE[heads]
    for p in range(0, whole, _AT_ONCE[heads]):
        k, to = keys + p * size, out[0] + p * FLOAT
        if heads == 1:
            _scores_1(address, size, k, size, to, out[1], vectors)
        elif heads == 2:
            _scores_2(address, size, k, size, to, out[1], vectors)
        else:
            _scores_3(address, size, k, size, to, out[1], vectors)
    for p in range(whole, length):
        k, to = keys + p * size, out[0] + p * FLOAT
        if heads == 1:
            _scores_1_of_one(address, size, k, size, to, out[1], vectors)
        elif heads == 2:
            _scores_2_of_one(address, size, k, size, to, out[1], vectors)
        else:
            _scores_3_of_one(address, size, k, size, to, out[1], vectors)


@njit
def _weigh(x, length, padded, head_dim):
    """Scores to probabilities. What fills the last vector weighs nothing."""
    for p in range(length, padded):
        float_to(x, p, np.float32(-np.inf))
    inverse = _softmax(x, padded // LANES, np.float32(1.0 / math.sqrt(head_dim)))
    _scale(x, padded // LANES, inverse)


@njit
def _blend(heads, scores, values, length, out):
    """The head's dimensions, MIXED at a time."""
    size = values[1]
    for offset in range(0, size, MIXED * FLOAT):
        v, to = values[0] + offset, out + offset
        if heads == 1:
            _mix_1(scores[0], scores[1], v, size, length, to, size)
        elif heads == 2:
            _mix_2(scores[0], scores[1], v, size, length, to, size)
        else:
            _mix_3(scores[0], scores[1], v, size, length, to, size)


def compiled() -> Any:
    return kept(cfunc, CALL, attend)
