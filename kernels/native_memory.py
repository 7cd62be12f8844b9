# pyright: basic, reportCallIssue=false, reportIndexIssue=false
"""What compiled code that lives on addresses needs: words of memory, calls by address, a cache that knows its sources.

numba keeps compiled functions by name and by their own file; ours depend on several files, so a name carries their
digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

FLOAT = 4
CALL = types.void(*[types.int64] * 7)
"""A function that is called by its address."""

_SOURCES = (
    "cached_attention", "decoder_layout", "decoder_native", "native_memory", "row_products", "team",
    "vector_attention", "vector_code", "vector_products", "vector_rows",
)  # fmt: skip


@cache
def _digest() -> str:
    folder = Path(__file__).parent
    digest = hashlib.sha256()
    for name in _SOURCES:
        digest.update((folder / f"{name}.py").read_bytes())
    return digest.hexdigest()[:16]


def _versioned(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function under the name that numba keeps it by."""
    if not function.__qualname__.endswith(_digest()):
        function.__qualname__ += "_" + _digest()
    return function


def kept(compiler: Callable[..., Any], signature: Any, function: Callable[..., Any]) -> Any:
    """Compiled, and kept beside its file or in the user's cache. Where nothing may be written, every start compiles."""
    try:
        return compiler(signature, nogil=True, cache=True)(_versioned(function))
    except RuntimeError as error:
        if "cannot cache" not in str(error):
            raise
        return compiler(signature, nogil=True)(_versioned(function))


@intrinsic
def call(typingctx, address, values):
    """Of seven int64."""

    def codegen(context, builder, signature, arguments):
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(64)] * 7)
        builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), cgutils.unpack_tuple(builder, arguments[1]))
        return context.get_dummy_value()

    return types.void(types.int64, types.UniTuple(types.int64, 7)), codegen


def _reader(kind: Any, result: Any, widen: Callable[[Any, Any], Any]) -> Any:
    """array[index] of an array at an address."""

    @intrinsic
    def read(typingctx, array, index):
        def codegen(context, builder, signature, arguments):
            base = builder.inttoptr(arguments[0], kind.as_pointer())
            return widen(builder, builder.load(builder.gep(base, [arguments[1]])))

        return result(types.int64, types.int64), codegen

    return read


_I64, _F32 = ir.IntType(64), ir.FloatType()
byte_at = _reader(ir.IntType(8), types.int64, lambda builder, value: builder.sext(value, _I64))
short_at = _reader(ir.IntType(16), types.int64, lambda builder, value: builder.zext(value, _I64))
int_at = _reader(ir.IntType(32), types.int64, lambda builder, value: builder.sext(value, _I64))
half_at = _reader(ir.HalfType(), types.float32, lambda builder, value: builder.fpext(value, _F32))
float_at = _reader(_F32, types.float32, lambda builder, value: value)


@intrinsic
def float_to(typingctx, array, index, value):
    def codegen(context, builder, signature, arguments):
        base = builder.inttoptr(arguments[0], _F32.as_pointer())
        builder.store(arguments[2], builder.gep(base, [arguments[1]]))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.float32), codegen


@intrinsic
def float_of(typingctx, bits):
    """The float32 with these bits."""

    def codegen(context, builder, signature, arguments):
        return builder.bitcast(builder.trunc(arguments[0], ir.IntType(32)), _F32)

    return types.float32(types.int64), codegen
