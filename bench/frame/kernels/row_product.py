"""y = W norm(x) for a single row, with everything around it in the same kernel: norm, gate, residual, bias.

    multiply_row(weight_nk, x_k, y_n, norm=..., gated=..., residual=..., bias=..., normed=...)

A matrix-vector product reads each weight once, so the only question is how early the reads begin: the first tile of
weights is asked for before the kernel waits for the one before it (`early`).
Tolerance against `reference` in float32: 5e-3 relative (Frobenius).
Letters: n output, k input.
"""

from __future__ import annotations

import torch.nn.functional as nn
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


def reference(weight_nk: Tensor, x_k: Tensor, *, norm: Tensor | None = None, gated: bool = False,
              residual: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
    x = x_k.float() if norm is None else nn.rms_norm(x_k.float(), x_k.shape[-1:], norm.float(), 1e-6)
    y = nn.linear(x, weight_nk.float(), None if bias is None else bias.float())
    if gated:
        gate, up = y.chunk(2, -1)
        y = nn.silu(gate) * up
    return y if residual is None else y + residual.float()


@triton.jit
def _product(weight, x, y, norm, bias, normed, N, K: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, NORM: tl.constexpr,
             GATED: tl.constexpr, ADD: tl.constexpr, BIAS: tl.constexpr, NORMED: tl.constexpr, EARLY: tl.constexpr):
    n, k = tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, BK)
    at = weight + n[:, None] * K + k[None, :]
    if EARLY:
        gdc_launch_dependents()
    w0 = tl.load(at, eviction_policy="evict_first")
    if GATED:
        w1 = tl.load(at + N * K, eviction_policy="evict_first")
    if EARLY:
        gdc_wait()
    scale = 1.0
    if NORM:
        whole = tl.arange(0, K)
        v = tl.load(x + whole).to(tl.float32)
        scale = tl.rsqrt(tl.sum(v * v, 0) / K + 1e-6)
        if NORMED:
            if tl.program_id(0) == 0:
                h = (v * scale).to(tl.bfloat16).to(tl.float32) * tl.load(norm + whole).to(tl.float32)
                tl.store(normed + whole, h.to(tl.bfloat16))
    total = tl.zeros((BN,), tl.float32)
    total_up = tl.zeros((BN,), tl.float32)
    for first in tl.static_range(0, K, BK):
        v = tl.load(x + first + k).to(tl.float32)
        if NORM:
            v = ((v * scale).to(tl.bfloat16).to(tl.float32) * tl.load(norm + first + k).to(tl.float32)).to(tl.bfloat16)
            v = v.to(tl.float32)
        w = w0
        if first > 0:
            w = tl.load(at + first, eviction_policy="evict_first")
        total += tl.sum(w.to(tl.float32) * v[None, :], 1)
        if GATED:
            u = w1
            if first > 0:
                u = tl.load(at + N * K + first, eviction_policy="evict_first")
            total_up += tl.sum(u.to(tl.float32) * v[None, :], 1)
    if GATED:
        total = total * tl.sigmoid(total) * total_up
    if BIAS:
        total += tl.load(bias + n).to(tl.float32)
    if ADD:
        total += tl.load(y + n).to(tl.float32)
    tl.store(y + n, total.to(tl.bfloat16))


def multiply_row(weight_nk: Tensor, x_k: Tensor, y_n: Tensor, *, norm: Tensor | None = None, gated: bool = False,
                 add: bool = False, bias: Tensor | None = None, normed: Tensor | None = None, early: bool = False,
                 outputs_a_block: int = 4, warps: int = 4) -> None:
    """`add`: to what is in y. `gated`: the weight holds gates, then ups. `normed` gets norm(x)."""
    n, k = weight_nk.shape
    n = n // 2 if gated else n
    none = weight_nk
    _product[(n // outputs_a_block,)](
        weight_nk, x_k, y_n, none if norm is None else norm, none if bias is None else bias,
        none if normed is None else normed, n, k, outputs_a_block, 1024, norm is not None, gated, add, bias is not None,
        normed is not None, early, num_warps=warps, launch_pdl=early)
