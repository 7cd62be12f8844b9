# pyright: basic, reportCallIssue=false
"""A matrix times one to six rows, a function of its own for each way weights are kept.

    product(rows, tiles, x, bytes of a row of x, w, terms, out)

All addresses are int64; the number of tiles is even; out is close-packed, [rows, tiles * 16] float32. The functions are
called by address: compiled with their callers, each of these large ones would be compiled again for every caller.
"""

from __future__ import annotations

from typing import Any

from numba import cfunc

from omnirt.kernels import vector_products
from omnirt.kernels.native_memory import CALL, versioned

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
    return cfunc(CALL, cache=True)(versioned(function))
