# pyright: basic, reportCallIssue=false
"""The parts of attention in vectors, for one to three query heads that share keys and values.

    scores    out[h, p] = sum over d of q[h, d] * k[p, d]
    softmax   probabilities, not yet divided by their sum; and one over the sum
    mix       out[h, d] = sum over p of probability[h, p] * v[p, d]

Invariant: an element's terms are added in one order (`scores`: eight lanes, then a tree; `mix`: ascending), however
many heads and positions are computed side by side.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from omnirt.kernels.vector_code import F32, I64, LANES, VECTOR, Asm, block

MIXED = 32
"""Dimensions of a head that `mix` sums up at a time."""
SCORED = {1: 8, 2: 4, 3: 3}
"""Positions that are scored at a time, for so many heads."""


def _scores(heads: int, positions: int) -> Any:
    """(q, bytes of a head, k, bytes of a position, out, bytes of a head of out, vectors of a head)"""

    def write(asm, *arguments):
        b = asm.builder
        q, q_head, k, k_position, out, out_head, vectors = arguments
        qs = [asm.pointer(q, h, q_head) for h in range(heads)]
        ks = [asm.pointer(k, p, k_position) for p in range(positions)]
        sums = asm.variables(heads * positions, asm.constant(0.0))
        with asm.vectors(vectors) as offset:
            keys = [asm.load(base, offset) for base in ks]
            for h in range(heads):
                query = asm.load(qs[h], offset)
                for p in range(positions):
                    at = sums[h * positions + p]
                    b.store(asm.fma(keys[p], query, b.load(at)), at)
        for h in range(heads):
            base = asm.pointer(out, h, out_head)
            for p in range(positions):
                asm.store(asm.halves(b.load(sums[h * positions + p]), b.fadd), base, I64(4 * p))

    return block(types.void, "iiiiiii", write)


def _mix(heads: int, vectors: int) -> Any:
    """(probabilities, bytes of a head, v, bytes of a position, positions, out, bytes of a head of out)"""

    def write(asm, *arguments):
        b = asm.builder
        probabilities, p_head, v, v_position, positions, out, out_head = arguments
        ps = [asm.pointer(probabilities, h, p_head) for h in range(heads)]
        base = asm.pointer(v)
        sums = asm.variables(heads * vectors, asm.constant(0.0))
        with cgutils.for_range(b, positions, intp=I64) as loop:
            offset = b.mul(loop.index, v_position)
            values = [asm.load(base, offset, more=VECTOR * j) for j in range(vectors)]
            for h in range(heads):
                factor = asm.splat(asm.load(ps[h], b.mul(loop.index, I64(4)), F32))
                for j in range(vectors):
                    at = sums[h * vectors + j]
                    b.store(asm.fma(values[j], factor, b.load(at)), at)
        for h in range(heads):
            to = asm.pointer(out, h, out_head)
            for j in range(vectors):
                asm.store(b.load(sums[h * vectors + j]), to, I64(VECTOR * j))

    return block(types.void, "iiiiiii", write)


def _softmax(asm: Asm, x: Any, vectors: Any, scale: Any) -> Any:
    """exp(scale * (x - max)) in place of x; gives one over the sum."""
    b = asm.builder
    base = asm.pointer(x)
    (largest,) = asm.variables(1, asm.constant(-3.0e38))
    with asm.vectors(vectors) as offset:
        value = asm.load(base, offset)
        b.store(asm.call("maxnum", value, b.load(largest)), largest)
    scales = asm.splat(scale)
    most = asm.splat(asm.halves(b.load(largest), lambda low, high: b.select(b.fcmp_ordered(">", low, high), low, high)))
    (total,) = asm.variables(1, asm.constant(0.0))
    with asm.vectors(vectors) as offset:
        value = asm.load(base, offset)
        distance = b.fmul(b.fsub(value, most), scales)
        value = b.select(b.fcmp_ordered(">", distance, asm.constant(-87.0)), asm.exp(distance), asm.constant(0.0))
        asm.store(value, base, offset)
        b.store(b.fadd(b.load(total), value), total)
    return b.fdiv(ir.Constant(F32, 1.0), asm.halves(b.load(total), b.fadd))


scores = {heads: _scores(heads, positions) for heads, positions in SCORED.items()}
scores_of_one = {heads: _scores(heads, 1) for heads in SCORED}
mix = {heads: _mix(heads, MIXED // LANES) for heads in SCORED}
softmax = block(types.float32, "iif", _softmax)
