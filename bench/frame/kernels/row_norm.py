"""Root-mean-square norm of rows, and the gate of a feed-forward: what stays between library products at many rows.

    norm_rows(x_ck, weight_k, out_ck)
    gate_rows(both_c2f, out_cf)          # silu(first half) * second half

Tolerance against `norm_reference` and `gate_reference` in bfloat16: one rounding (2**-8 relative, element by element).
Letters: c row, k width, f feed-forward width.
"""

from __future__ import annotations

import torch.nn.functional as nn
import triton
import triton.language as tl
from torch import Tensor



def norm_reference(x_ck: Tensor, weight_k: Tensor, eps: float = 1e-6) -> Tensor:
    return nn.rms_norm(x_ck, x_ck.shape[-1:], weight_k, eps)


def gate_reference(both_c2f: Tensor) -> Tensor:
    gate, up = both_c2f.chunk(2, -1)
    return nn.silu(gate) * up


@triton.jit
def _norm(x, weight, out, K: tl.constexpr):
    row, k = tl.program_id(0), tl.arange(0, K)
    v = tl.load(x + row * K + k).to(tl.float32)
    scale = tl.rsqrt(tl.sum(v * v, 0) / K + 1e-6)
    y = (v * scale).to(tl.bfloat16).to(tl.float32) * tl.load(weight + k).to(tl.float32)
    tl.store(out + row * K + k, y.to(tl.bfloat16))


@triton.jit
def _gate(both, out, x, F: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    row, f = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    g = tl.load(both + row * 2 * F + f).to(tl.float32)
    u = tl.load(both + row * 2 * F + F + f).to(tl.float32)
    if WIDTH > 0:
        whole = tl.load(x + row * WIDTH + tl.arange(0, WIDTH)).to(tl.float32)
        by = tl.rsqrt(tl.sum(whole * whole, 0) / WIDTH + 1e-6)
        g, u = g * by, u * by
    tl.store(out + row * F + f, (g * tl.sigmoid(g) * u).to(tl.bfloat16))


def norm_rows(x_ck: Tensor, weight_k: Tensor, out_ck: Tensor) -> None:
    _norm[(x_ck.shape[0],)](x_ck, weight_k, out_ck, x_ck.shape[1], num_warps=4)


def gate_rows(both_c2f: Tensor, out_cf: Tensor, x_ck: Tensor | None = None) -> None:
    """With `x_ck`, `both` is a product of x before its norm (weights of the norm in the matrix): its scale is applied here."""
    rows, f = out_cf.shape
    x, width = (out_cf, 0) if x_ck is None else (x_ck, x_ck.shape[1])
    _gate[(rows, f // 1024)](both_c2f, out_cf, x, f, 1024, width, num_warps=4)
