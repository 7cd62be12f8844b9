# pyright: basic, reportCallIssue=false
"""A matrix times one to six rows in vectors, for each way weights are kept.

    out[r, o] = sum over k of x[r, k] * w[o, k]

Weights lie in tiles, see `decoder_packing`. Whatever is kept becomes float32 in a register.

Invariant: an element's terms are added by fused multiply-adds in ascending order, however many rows and tiles are
computed side by side. So a row's numbers do not depend on its neighbours, and ways of keeping weights differ by what
these are rounded to only.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.core import cgutils

from omnirt.kernels.vector_code import B8, F32, I64, LANES, V8, W8, Asm, block

TILE = 16
"""Outputs whose weights lie side by side: two vectors."""
AHEAD = 2048
"""Bytes. Fetched early, a matrix streams while it is multiplied: four rows take 15 ms instead of 21 (bfloat16)."""
BLOCK = 32
"""Terms that share a scale."""
LINE = 64
"""Bytes of a line of the cache."""


class _Float32:
    """A tile, or a block of one, read a line of the cache at a time."""

    term_bytes, head_bytes = 4 * TILE, 0
    tiles = {1: 2, 2: 2, 3: 1, 4: 1, 5: 1, 6: 1}
    """At a time, for so many rows: enough sums to hide an addition's latency, few enough for sixteen registers."""

    def __init__(self, asm: Asm, base: Any) -> None:
        self.asm = asm
        self.scales = [asm.half_floats(base, 2 * LANES * i) for i in range(self.head_bytes // (2 * LANES))]
        self.base = asm.builder.gep(base, [I64(self.head_bytes)])
        self.line: Any = I64(0)

    def pair(self, i: int) -> tuple[Any, Any]:
        """Both vectors of the line's term `i`."""
        return self.asm.load(self.base, self.line), self.asm.load(self.base, self.line, more=4 * LANES)


class _Bfloat16(_Float32):
    """A word holds an output of the first vector below one of the second."""

    term_bytes = 2 * TILE

    def pair(self, i: int) -> tuple[Any, Any]:
        asm, b = self.asm, self.asm.builder
        words = asm.load(self.base, self.line, W8, more=self.term_bytes * i)
        low, high = b.shl(words, asm.integers(16)), b.and_(words, asm.integers(0xFFFF0000))
        return b.bitcast(low, V8), b.bitcast(high, V8)


class _Int8(_Float32):
    """BLOCK terms: a scale (float16) for each output, then the terms."""

    term_bytes, head_bytes = TILE, 2 * TILE
    tiles = {**_Float32.tiles, 2: 1}

    def pair(self, i: int) -> tuple[Any, Any]:
        asm, b = self.asm, self.asm.builder
        halves = [asm.load(self.base, self.line, B8, more=self.term_bytes * i + more) for more in (0, LANES)]
        low, high = (b.sitofp(b.sext(half, W8), V8) for half in halves)
        return b.fmul(low, self.scales[0]), b.fmul(high, self.scales[1])


class _Int4(_Int8):
    """BLOCK terms: scales, offsets, then words that hold four terms of an output of each vector."""

    term_bytes, head_bytes = TILE // 2, 4 * TILE

    def pair(self, i: int) -> tuple[Any, Any]:
        asm, b = self.asm, self.asm.builder
        words = asm.load(self.base, self.line, W8, more=i // 4 * 2 * TILE)
        one, two = (b.and_(b.lshr(words, asm.integers(i % 4 * 8 + more)), asm.integers(15)) for more in (0, 4))
        low, high, low_offset, high_offset = self.scales
        return asm.fma(b.sitofp(one, V8), low, low_offset), asm.fma(b.sitofp(two, V8), high, high_offset)


def _multiply(
    asm: Asm, kind: Any, shape: tuple[int, int], x: tuple[Any, Any], w: Any, terms: Any, out: tuple[Any, Any]
) -> None:
    """x is (address, bytes of a row), so is out; w the address of the first tile."""
    b, (rows, tiles) = asm.builder, shape
    xs = [asm.pointer(x[0], r, x[1]) for r in range(rows)]
    ws = [asm.pointer(w, t, _tile_bytes(b, kind, terms)) for t in range(tiles)]
    sums = asm.variables(rows * tiles * 2, asm.constant(0.0))
    if kind.head_bytes:
        with cgutils.for_range(b, b.udiv(terms, I64(BLOCK)), intp=I64) as loop:
            place = b.mul(loop.index, I64(kind.head_bytes + BLOCK * kind.term_bytes))
            blocks = [kind(asm, b.gep(base, [place])) for base in ws]
            _add_terms(asm, sums, xs, blocks, b.mul(loop.index, I64(4 * BLOCK)), I64(BLOCK))
    else:
        _add_terms(asm, sums, xs, [kind(asm, base) for base in ws], I64(0), terms)
    for r in range(rows):
        base = asm.pointer(out[0], r, out[1])
        for j in range(tiles * 2):
            asm.store(b.load(sums[r * tiles * 2 + j]), base, I64(4 * LANES * j))


def _add_terms(asm: Asm, sums: list[Any], xs: list[Any], weights: list[Any], x_at: Any, terms: Any) -> None:
    """Terms whose first factors lie at `x_at` of each row, on to the sums."""
    b, width = asm.builder, 2 * len(weights)
    step = LINE // weights[0].term_bytes
    with cgutils.for_range(b, b.udiv(terms, I64(step)), intp=I64) as loop:
        for weight in weights:
            weight.line = b.mul(loop.index, I64(LINE))
            asm.prefetch(weight.base, weight.line, AHEAD)
        for i in range(step):
            at = b.add(x_at, b.mul(loop.index, I64(4 * step)))
            pairs = [vector for weight in weights for vector in weight.pair(i)]
            for r, x in enumerate(xs):
                factor = asm.splat(asm.load(x, at, F32, more=4 * i))
                for j, vector in enumerate(pairs):
                    slot = sums[r * width + j]
                    b.store(asm.fma(vector, factor, b.load(slot)), slot)


def _tile_bytes(builder: Any, kind: Any, terms: Any) -> Any:
    heads = builder.mul(builder.udiv(terms, I64(BLOCK)), I64(kind.head_bytes))
    return builder.add(builder.mul(terms, I64(kind.term_bytes)), heads)


def _product(kind: Any) -> Any:
    """(rows, tiles, x, bytes of a row of x, w, terms, out): an even number of tiles, out close-packed."""

    def write(asm, *arguments):
        b = asm.builder
        rows, tiles, x, x_row, w, terms, out = arguments
        out_row, tile_bytes = b.mul(tiles, I64(4 * TILE)), _tile_bytes(b, kind, terms)
        for shape in kind.tiles.items():
            turns = b.sdiv(tiles, I64(shape[1]))
            mine = b.icmp_signed("==", rows, I64(shape[0]))
            with b.if_then(mine), cgutils.for_range(b, turns, intp=I64) as loop:
                t = b.mul(loop.index, I64(shape[1]))
                tile, to = b.add(w, b.mul(t, tile_bytes)), b.add(out, b.mul(t, I64(4 * TILE)))
                _multiply(asm, kind, shape, (x, x_row), tile, terms, (to, out_row))

    return block(types.void, "iiiiiii", write)


float32, bfloat16, int8, int4 = _product(_Float32), _product(_Bfloat16), _product(_Int8), _product(_Int4)
