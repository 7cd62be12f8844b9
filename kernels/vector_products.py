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


class _Float32:
    step, step_bytes, head_bytes = 1, 4 * TILE, 0
    tiles = {1: 2, 2: 2, 3: 1, 4: 1, 5: 1, 6: 1}
    """At a time, for so many rows: enough sums to hide an addition's latency, few enough for sixteen registers."""

    def __init__(self, asm: Asm, tile: Any) -> None:
        self.asm, self.tile = asm, tile

    def pairs(self, offset: Any) -> list[tuple[Any, Any]]:
        """The two vectors of each of `step` terms."""
        return [(self.asm.load(self.tile, offset), self.asm.load(self.tile, offset, more=4 * LANES))]


class _Bfloat16(_Float32):
    """A word holds an output of the first vector below one of the second."""

    step_bytes = 2 * TILE

    def pairs(self, offset: Any) -> list[tuple[Any, Any]]:
        asm, b = self.asm, self.asm.builder
        words = asm.load(self.tile, offset, W8)
        low, high = b.shl(words, asm.integers(16)), b.and_(words, asm.integers(0xFFFF0000))
        return [(b.bitcast(low, V8), b.bitcast(high, V8))]


class _Int8(_Float32):
    """BLOCK terms: a scale (float16) for each output, then the terms."""

    step_bytes, head_bytes = TILE, 2 * TILE
    tiles = {**_Float32.tiles, 2: 1}

    def __init__(self, asm: Asm, tile: Any) -> None:
        """`tile` is a block of one here."""
        super().__init__(asm, asm.builder.gep(tile, [I64(self.head_bytes)]))
        self.scales = [asm.half_floats(tile, 2 * LANES * i) for i in range(self.head_bytes // (2 * LANES))]

    def pairs(self, offset: Any) -> list[tuple[Any, Any]]:
        asm, b = self.asm, self.asm.builder
        halves = [asm.load(self.tile, offset, B8, more=more) for more in (0, LANES)]
        low, high = (b.fmul(b.sitofp(b.sext(half, W8), V8), scale) for half, scale in zip(halves, self.scales))
        return [(low, high)]


class _Int4(_Int8):
    """BLOCK terms: scales, offsets, then words that hold four terms of an output of each vector."""

    step, step_bytes, head_bytes = 4, 2 * TILE, 4 * TILE

    def pairs(self, offset: Any) -> list[tuple[Any, Any]]:
        asm, b = self.asm, self.asm.builder
        words = asm.load(self.tile, offset, W8)
        low, high, low_offset, high_offset = self.scales
        found = []
        for i in range(self.step):
            one, two = (b.and_(b.lshr(words, asm.integers(8 * i + more)), asm.integers(15)) for more in (0, 4))
            pair = asm.fma(b.sitofp(one, V8), low, low_offset), asm.fma(b.sitofp(two, V8), high, high_offset)
            found.append(pair)
        return found


def _multiply(asm: Asm, kind: Any, shape: tuple[int, int], x: tuple[Any, Any], w: Any, terms: Any, out: tuple[Any, Any]):
    """x is (address, bytes of a row), so is out; w the address of the first tile."""
    b, (rows, tiles) = asm.builder, shape
    xs = [asm.pointer(x[0], r, x[1]) for r in range(rows)]
    ws = [asm.pointer(w, t, _tile_bytes(b, kind, terms)) for t in range(tiles)]
    sums = asm.variables(rows * tiles * 2, asm.constant(0.0))

    def add(weights: list[Any], x_at: Any, count: Any) -> None:
        with cgutils.for_range(b, b.udiv(count, I64(kind.step)), intp=I64) as loop:
            pairs = [weight.pairs(b.mul(loop.index, I64(kind.step_bytes))) for weight in weights]
            for weight in weights:
                asm.prefetch(weight.tile, b.mul(loop.index, I64(kind.step_bytes)), AHEAD)
            for i in range(kind.step):
                at = b.add(x_at, b.add(b.mul(loop.index, I64(4 * kind.step)), I64(4 * i)))
                for r in range(rows):
                    factor = asm.splat(asm.load(xs[r], at, F32))
                    for j in range(tiles * 2):
                        slot = sums[r * tiles * 2 + j]
                        b.store(asm.fma(pairs[j // 2][i][j % 2], factor, b.load(slot)), slot)

    if kind.head_bytes:
        with cgutils.for_range(b, b.udiv(terms, I64(BLOCK)), intp=I64) as loop:
            place = b.mul(loop.index, I64(_block_bytes(kind)))
            add([kind(asm, b.gep(base, [place])) for base in ws], b.mul(loop.index, I64(4 * BLOCK)), I64(BLOCK))
    else:
        add([kind(asm, base) for base in ws], I64(0), terms)
    for r in range(rows):
        base = asm.pointer(out[0], r, out[1])
        for j in range(tiles * 2):
            asm.store(b.load(sums[r * tiles * 2 + j]), base, I64(4 * LANES * j))


def _block_bytes(kind: Any) -> int:
    return kind.head_bytes + BLOCK // kind.step * kind.step_bytes


def _tile_bytes(builder: Any, kind: Any, terms: Any) -> Any:
    if kind.head_bytes:
        return builder.mul(builder.udiv(terms, I64(BLOCK)), I64(_block_bytes(kind)))
    return builder.mul(terms, I64(kind.step_bytes))


def _product(kind: Any) -> Any:
    """(rows, tiles, x, bytes of a row of x, w, terms, out): one to six rows, an even number of tiles, out close-packed."""

    def write(asm, rows, tiles, x, x_row, w, terms, out):
        b = asm.builder
        out_row, tile_bytes = b.mul(tiles, I64(4 * TILE)), _tile_bytes(b, kind, terms)
        for shape in kind.tiles.items():
            with b.if_then(b.icmp_signed("==", rows, I64(shape[0]))):
                with cgutils.for_range(b, b.sdiv(tiles, I64(shape[1])), intp=I64) as loop:
                    t = b.mul(loop.index, I64(shape[1]))
                    tile, to = b.add(w, b.mul(t, tile_bytes)), b.add(out, b.mul(t, I64(4 * TILE)))
                    _multiply(asm, kind, shape, (x, x_row), tile, terms, (to, out_row))

    return block(types.void, "iiiiiii", write)


float32, bfloat16, int8, int4 = _product(_Float32), _product(_Bfloat16), _product(_Int8), _product(_Int4)
