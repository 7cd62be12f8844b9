# pyright: basic, reportMissingImports=false, reportIndexIssue=false
"""y = W norm(x) for a single row, with everything around it in the same kernel: norm, gate, residual.

    multiply_row(weight_nk, x_k, y_n, norm=..., gated=..., add=..., normed=...)

A matrix-vector product reads each weight once; the first tile of them is asked for before anything of x is.
Tolerance against `reference` in float32: 5e-3 relative (Frobenius).
Letters: n output, k input (a power of two or a multiple of 1024).
"""

from __future__ import annotations

from typing import NamedTuple

import torch.nn.functional as nn
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 1024


def reference(
    weight_nk: Tensor, x_k: Tensor, *, norm: Tensor | None = None, gated: bool = False, residual: Tensor | None = None
) -> Tensor:
    x = x_k.float() if norm is None else nn.rms_norm(x_k.float(), x_k.shape[-1:], norm.float(), 1e-6)
    y = nn.linear(x, weight_nk.float())
    if gated:
        gate, up = y.chunk(2, -1)
        y = nn.silu(gate) * up
    return y if residual is None else y + residual.float()


class _Places(NamedTuple):
    weight: Tensor
    x: Tensor
    y: Tensor
    norm: Tensor | None
    normed: Tensor | None


@triton.jit
def _input(at, k, scale):
    v = tl.load(at.x + k).to(tl.float32)
    if at.norm is not None:
        v = (v * scale).to(tl.bfloat16).to(tl.float32) * tl.load(at.norm + k).to(tl.float32)
        v = v.to(tl.bfloat16).to(tl.float32)
    return v


@triton.jit
def _product(
    at, outputs, width: tl.constexpr, block: tl.constexpr, part: tl.constexpr, gated: tl.constexpr, add: tl.constexpr
):
    n, k = tl.program_id(0) * block + tl.arange(0, block), tl.arange(0, part)
    place = at.weight + n[:, None] * width + k[None, :]
    w0 = tl.load(place, eviction_policy="evict_first")
    if gated:
        w1 = tl.load(place + outputs * width, eviction_policy="evict_first")
    scale = 1.0
    if at.norm is not None:
        whole = tl.arange(0, width)
        v = tl.load(at.x + whole).to(tl.float32)
        scale = tl.rsqrt(tl.sum(v * v, 0) / width + 1e-6)
        if at.normed is not None:
            h = (v * scale).to(tl.bfloat16).to(tl.float32) * tl.load(at.norm + whole).to(tl.float32)
            tl.store(at.normed + whole, h.to(tl.bfloat16), (whole < width) & (tl.program_id(0) == 0))
    total = tl.zeros((block,), tl.float32)
    total_up = tl.zeros((block,), tl.float32)
    for first in tl.static_range(0, width, part):
        v = _input(at, first + k, scale)
        w = w0
        if first > 0:
            w = tl.load(place + first, eviction_policy="evict_first")
        total += tl.sum(w.to(tl.float32) * v[None, :], 1)
        if gated:
            u = w1
            if first > 0:
                u = tl.load(place + outputs * width + first, eviction_policy="evict_first")
            total_up += tl.sum(u.to(tl.float32) * v[None, :], 1)
    if gated:
        total = total * tl.sigmoid(total) * total_up
    if add:
        total += tl.load(at.y + n).to(tl.float32)
    tl.store(at.y + n, total.to(tl.bfloat16))


def multiply_row(
    weight_nk: Tensor,
    x_k: Tensor,
    y_n: Tensor,
    *,
    norm: Tensor | None = None,
    gated: bool = False,
    add: bool = False,
    normed: Tensor | None = None,
) -> None:
    """`add`: to what is in y. `gated`: the weight holds gates, then ups. `normed` gets norm(x)."""
    n, k = weight_nk.shape
    outputs, warps = (8, 8) if gated else (4, 4)
    n = n // 2 if gated else n
    at = _Places(weight_nk, x_k, y_n, norm, normed)
    _product[(n // outputs,)](at, n, k, outputs, min(_BLOCK, k), gated, add, num_warps=warps)
