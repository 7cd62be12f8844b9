# pyright: basic, reportMissingImports=false, reportIndexIssue=false
"""Root-mean-square norm of rows, and the gate of a feed-forward: what stays between library products at many rows.

    norm_rows(x_ck, weight_k, out_ck)
    gate_rows(both_c2f, out_cf)          # silu(first half) * second half
    gate_rows(both_c2f, out_cf, x_ck)    # the same, where `both` is a product of rows x that were not normed

Tolerance against `norm_reference` and `gate_reference` in bfloat16: one rounding (2**-8 relative, element by element).
Letters: c row, k width (a power of two), f feed-forward width (a multiple of 1024).
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
def _norm(x, weight, out, width: tl.constexpr):
    row, k = tl.program_id(0), tl.arange(0, width)
    v = tl.load(x + row * width + k).to(tl.float32)
    scale = tl.rsqrt(tl.sum(v * v, 0) / width + 1e-6)
    y = (v * scale).to(tl.bfloat16).to(tl.float32) * tl.load(weight + k).to(tl.float32)
    tl.store(out + row * width + k, y.to(tl.bfloat16))


@triton.jit
def row_scale(x, row, width: tl.constexpr):
    """What a norm multiplies a row of x by, before its weights."""
    v = tl.load(x + row * width + tl.arange(0, width)).to(tl.float32)
    return tl.rsqrt(tl.sum(v * v, 0) / width + 1e-6)


@triton.jit
def _gate(both, out, x, feed: tl.constexpr, block: tl.constexpr, width: tl.constexpr):
    row, f = tl.program_id(0), tl.program_id(1) * block + tl.arange(0, block)
    g = tl.load(both + row * 2 * feed + f).to(tl.float32)
    u = tl.load(both + row * 2 * feed + feed + f).to(tl.float32)
    if x is not None:
        scale = row_scale(x, row, width)
        g, u = g * scale, u * scale
    tl.store(out + row * feed + f, (g * tl.sigmoid(g) * u).to(tl.bfloat16))


def norm_rows(x_ck: Tensor, weight_k: Tensor, out_ck: Tensor) -> None:
    _norm[(x_ck.shape[0],)](x_ck, weight_k, out_ck, x_ck.shape[1], num_warps=4)


def gate_rows(both_c2f: Tensor, out_cf: Tensor, x_ck: Tensor | None = None) -> None:
    rows, f = out_cf.shape
    width = 0 if x_ck is None else x_ck.shape[1]
    _gate[(rows, f // 1024)](both_c2f, out_cf, x_ck, f, 1024, width, num_warps=4)
