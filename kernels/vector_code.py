# pyright: basic, reportCallIssue=false
"""Code in vectors of eight floats, written as LLVM instructions for functions that numba compiles.

    Asm     a builder with vectors: load, store, fma, exp, ...
    block   a function that writes instructions, as one that compiled code can call

Addresses travel as int64.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 8
VECTOR = 4 * LANES
"""Bytes."""

I32, I64, F32 = ir.IntType(32), ir.IntType(64), ir.FloatType()
BYTES = ir.IntType(8).as_pointer()
V8 = ir.VectorType(F32, LANES)
W8 = ir.VectorType(I32, LANES)
B8 = ir.VectorType(ir.IntType(8), LANES)


class Asm:
    """A builder with vectors: what the blocks below are written in."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder

    def pointer(self, address: Any, index: Any = 0, stride: Any = 0) -> Any:
        """address + index * stride"""
        b = self.builder
        return b.inttoptr(b.add(address, b.mul(I64(index), stride) if index else I64(0)), BYTES)

    def load(self, base: Any, offset: Any, kind: Any = V8, more: int = 0) -> Any:
        b = self.builder
        at = b.gep(base, [b.add(offset, I64(more))])
        return b.load(b.bitcast(at, kind.as_pointer()), align=4 if kind != B8 else 1)

    def store(self, value: Any, base: Any, offset: Any, more: int = 0) -> None:
        b = self.builder
        at = b.gep(base, [b.add(offset, I64(more))])
        b.store(value, b.bitcast(at, value.type.as_pointer()), align=4)

    def prefetch(self, base: Any, offset: Any, ahead: int) -> None:
        b = self.builder
        kind = ir.FunctionType(ir.VoidType(), [BYTES, I32, I32, I32])
        function = cgutils.get_or_insert_function(b.module, kind, "llvm.prefetch.p0")
        b.call(function, [b.gep(base, [b.add(offset, I64(ahead))]), I32(0), I32(3), I32(1)])

    @contextlib.contextmanager
    def vectors(self, count: Any) -> Any:
        """A loop over vectors; gives the offset of each."""
        with cgutils.for_range(self.builder, count, intp=I64) as loop:
            yield self.builder.mul(loop.index, I64(VECTOR))

    def half_floats(self, base: Any, offset: int) -> Any:
        b = self.builder
        at = b.bitcast(b.gep(base, [I64(offset)]), ir.VectorType(ir.HalfType(), LANES).as_pointer())
        return b.fpext(b.load(at, align=2), V8)

    def splat(self, value: Any) -> Any:
        b = self.builder
        one = b.insert_element(ir.Constant(ir.VectorType(value.type, LANES), ir.Undefined), value, I32(0))
        return b.shuffle_vector(one, one, ir.Constant(W8, [0] * LANES))

    def constant(self, value: float) -> Any:
        return ir.Constant(V8, [value] * LANES)

    def integers(self, value: int) -> Any:
        return ir.Constant(W8, [value] * LANES)

    def call(self, name: str, *arguments: Any) -> Any:
        kind = ir.FunctionType(arguments[0].type, [argument.type for argument in arguments])
        suffix = "v8f32" if arguments[0].type == V8 else "f32"
        return self.builder.call(
            cgutils.get_or_insert_function(self.builder.module, kind, f"llvm.{name}.{suffix}"), arguments
        )

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        return self.call("fma", a, b, c)

    def variables(self, count: int, value: Any) -> list[Any]:
        """On the stack for LLVM to keep in registers."""
        slots = [cgutils.alloca_once(self.builder, value.type) for _ in range(count)]
        for slot in slots:
            self.builder.store(value, slot)
        return slots

    def halves(self, vector: Any, combine: Callable[[Any, Any], Any]) -> Any:
        """Eight lanes to one, as a tree."""
        b = self.builder
        width = LANES
        while width > 1:
            width //= 2
            order = ir.VectorType(I32, width)
            low = b.shuffle_vector(vector, vector, ir.Constant(order, list(range(width))))
            high = b.shuffle_vector(vector, vector, ir.Constant(order, list(range(width, 2 * width))))
            vector = combine(low, high)
        return b.extract_element(vector, I32(0))

    def exp(self, x: Any) -> Any:
        """e^x to about one unit in the last place (Cody and Waite, then a polynomial of degree 6); 0 far below."""
        b = self.builder
        x = self.call("maxnum", self.call("minnum", x, self.constant(88.0)), self.constant(-87.0))
        n = self.call("rint", b.fmul(x, self.constant(1.4426950408889634)))
        r = self.fma(n, self.constant(-0.693145751953125), x)
        r = self.fma(n, self.constant(-1.428606765330187e-06), r)
        y = self.constant(1 / 720)
        for coefficient in (1 / 120, 1 / 24, 1 / 6, 0.5, 1.0, 1.0):
            y = self.fma(y, r, self.constant(coefficient))
        power = b.shl(b.add(b.fptosi(n, W8), self.integers(127)), self.integers(23))
        return b.fmul(y, b.bitcast(power, V8))


def block(result: Any, parameters: str, write: Callable[..., Any]) -> Any:
    """`write(asm, *arguments)` as a function of int64 (i) and float32 (f) for compiled code."""
    kinds = [types.int64 if letter == "i" else types.float32 for letter in parameters]

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        value = write(Asm(builder), *arguments)
        return context.get_dummy_value() if value is None else value

    body = [
        lambda t, a, b, c: (result(*kinds), codegen),
        lambda t, a, b, c, d: (result(*kinds), codegen),
        lambda t, a, b, c, d, e: (result(*kinds), codegen),
        lambda t, a, b, c, d, e, f: (result(*kinds), codegen),
        lambda t, a, b, c, d, e, f, g: (result(*kinds), codegen),
    ]
    return intrinsic(body[len(kinds) - 3])
