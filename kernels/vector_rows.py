# pyright: basic, reportCallIssue=false
"""What a decoder does to a row besides multiplying it, in vectors. Sizes are whole vectors, places are addresses."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from omnirt.kernels.vector_code import F32, I64, LANES, VECTOR, Asm, block

_STEP = 4
"""Vectors of squares that are summed up side by side."""


def _rms_norm(asm: Asm, x: Any, weight: Any, out: Any, size: Any, eps: Any) -> None:
    """x / sqrt(mean of squares + eps) * weight; out may be x, size is a multiple of 32."""
    b = asm.builder
    xs, weights, to = asm.pointer(x), asm.pointer(weight), asm.pointer(out)
    sums = asm.variables(_STEP, asm.constant(0.0))
    with cgutils.for_range(b, b.udiv(size, I64(_STEP * LANES)), intp=I64) as loop:
        for i, total in enumerate(sums):
            value = asm.load(xs, b.mul(loop.index, I64(_STEP * VECTOR)), more=VECTOR * i)
            b.store(asm.fma(value, value, b.load(total)), total)
    one, two, three, four = (b.load(total) for total in sums)
    squares = asm.halves(b.fadd(b.fadd(one, two), b.fadd(three, four)), b.fadd)
    mean = b.fdiv(squares, b.sitofp(size, F32))
    scale = asm.splat(b.fdiv(ir.Constant(F32, 1.0), asm.call("sqrt", b.fadd(mean, eps))))
    with asm.vectors(b.udiv(size, I64(LANES))) as offset:
        asm.store(b.fmul(b.fmul(asm.load(xs, offset), scale), asm.load(weights, offset)), to, offset)


def _rotate(asm: Asm, x: Any, cos: Any, sin: Any, out: Any, vectors: Any) -> None:
    """The rotary embedding whose pairs lie half a head apart; `vectors` of half a head."""
    b = asm.builder
    half = b.mul(vectors, I64(VECTOR))
    xs, coss, sins, to = (asm.pointer(address) for address in (x, cos, sin, out))
    with asm.vectors(vectors) as low:
        high = b.add(low, half)
        one, two = asm.load(xs, low), asm.load(xs, high)
        first = b.fsub(b.fmul(one, asm.load(coss, low)), b.fmul(two, asm.load(sins, low)))
        second = b.fadd(b.fmul(two, asm.load(coss, high)), b.fmul(one, asm.load(sins, high)))
        asm.store(first, to, low)
        asm.store(second, to, high)


def _gate(asm: Asm, gate: Any, up: Any, out: Any, vectors: Any) -> None:
    """silu(gate) * up"""
    b = asm.builder
    gates, ups, to = asm.pointer(gate), asm.pointer(up), asm.pointer(out)
    with asm.vectors(vectors) as offset:
        g, u = asm.load(gates, offset), asm.load(ups, offset)
        silu = b.fdiv(g, b.fadd(asm.constant(1.0), asm.exp(b.fsub(asm.constant(0.0), g))))
        asm.store(b.fmul(silu, u), to, offset)


def _add(asm: Asm, out: Any, x: Any, vectors: Any) -> None:
    """out += x"""
    xs, to = asm.pointer(x), asm.pointer(out)
    with asm.vectors(vectors) as offset:
        asm.store(asm.builder.fadd(asm.load(to, offset), asm.load(xs, offset)), to, offset)


def _scale(asm: Asm, x: Any, vectors: Any, factor: Any) -> None:
    xs, factors = asm.pointer(x), asm.splat(factor)
    with asm.vectors(vectors) as offset:
        asm.store(asm.builder.fmul(asm.load(xs, offset), factors), xs, offset)


def _copy(asm: Asm, out: Any, x: Any, size: Any) -> None:
    """`size` bytes."""
    cgutils.raw_memcpy(asm.builder, asm.pointer(out), asm.pointer(x), size, 1)


rms_norm = block(types.void, "iiiif", _rms_norm)
rotate = block(types.void, "iiiii", _rotate)
gate = block(types.void, "iiii", _gate)
add = block(types.void, "iii", _add)
scale = block(types.void, "iif", _scale)
copy = block(types.void, "iii", _copy)
