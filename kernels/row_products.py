# pyright: basic, reportCallIssue=false
"""A matrix times one to six rows, a function of its own for each way weights are kept.

    product(rows, tiles, x, bytes of a row of x, w, terms, out)

All addresses are int64; the number of tiles is even; out is close-packed, [rows, tiles * 16] float32. The functions are
called by address: compiled with their callers, each of these large ones would be compiled again for every caller.
"""

from __future__ import annotations

from typing import Any

from numba import cfunc, njit

from omnirt.kernels import vector_products
from omnirt.kernels.decoder_layout import BFLOAT16, FLOAT32, INT8
from omnirt.kernels.native_memory import (
    CALL,
    byte_at,
    float_at,
    float_of,
    float_to,
    half_at,
    kept,
    short_at,
)
from omnirt.kernels.vector_code import LANES
from omnirt.kernels.vector_products import BLOCK, TILE

ROWS = 6
"""At most."""

_float32, _bfloat16 = vector_products.float32, vector_products.bfloat16
_int8, _int4 = vector_products.int8, vector_products.int4


def float32(rows, tiles, x, x_row, w, terms, out):
    _float32(rows, tiles, x, x_row, w, terms, out)


def bfloat16(rows, tiles, x, x_row, w, terms, out):
    _bfloat16(rows, tiles, x, x_row, w, terms, out)


def int8(rows, tiles, x, x_row, w, terms, out):
    _int8(rows, tiles, x, x_row, w, terms, out)


def int4(rows, tiles, x, x_row, w, terms, out):
    _int4(rows, tiles, x, x_row, w, terms, out)


def compiled(kind: str) -> Any:
    function = {"float32": float32, "bfloat16": bfloat16, "int8": int8, "int4": int4}[kind]
    return kept(cfunc, CALL, function)


@njit
def gather(kind, tile, j, terms, out):
    """The weights of a tile's output `j`."""
    for k in range(terms):
        if kind == FLOAT32:
            float_to(out, k, float_at(tile, k * TILE + j))
        elif kind == BFLOAT16:
            float_to(out, k, float_of(short_at(tile, k * TILE + j % LANES * 2 + j // LANES) << 16))
        elif kind == INT8:
            block = tile + k // BLOCK * (2 + BLOCK) * TILE
            float_to(out, k, half_at(block, j) * byte_at(block, (2 + k % BLOCK) * TILE + j))
        else:
            block = tile + k // BLOCK * (4 + BLOCK // 2) * TILE
            byte = byte_at(block, (4 + k % BLOCK // 4 * 2) * TILE + j % LANES * 4 + k % 4)
            value = byte >> (4 * (j // LANES)) & 15
            float_to(out, k, half_at(block, j) * value + half_at(block, TILE + j))
