# ruff: noqa: N803, SIM102  (Triton: constants are capitals)
# pyright: reportMissingImports=false, reportIndexIssue=false
"""Convolutions too thin for matrix tiles: one channel out, and each channel on its own.

    last_conv(s, weight, bias, out, extent, tile)     # to one channel, limited to [-1, 1], float32
    depth_conv_norm(x, depth, extent, out)            # each channel alone, then a layer norm over the channels

Inputs lie as in tap_conv, their history in front. TOLERANCE is against `reference_*` on the same numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from omnirt.kernels.tap_conv import Extent, Tile, View, count

TOLERANCE = 1e-2
FLOAT32_TOLERANCE = 2e-6
WARPS = 4


class Depth(NamedTuple):
    """weight [taps * channels], the norm's weight and bias, all float32."""

    weight: Tensor
    bias: Tensor
    norm: Tensor
    norm_bias: Tensor


@triton.jit(do_not_specialize=["rows", "frames", "each"])
def _last(
    s, w, bias, out, live, rows, frames, each, s_row, C: tl.constexpr, TAPS: tl.constexpr, LIVE: tl.constexpr, EARLY: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    if EARLY:
        gdc_wait()
    t_count, m_count = count(live, rows, frames, each, LIVE)
    if LIVE:
        if tl.program_id(0) * BM >= m_count:
            return
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    c = tl.arange(0, BC)
    safe = tl.minimum(m, m_count - 1)
    row = safe // t_count
    t = safe - row * t_count
    have = (m < m_count)[:, None] & (c < C)[None, :]
    acc = tl.zeros((BM, BC), tl.float32)
    for tap in tl.static_range(TAPS):
        x = tl.load(s + (row * s_row + (t + tap) * C)[:, None] + c[None, :], mask=have, other=0.0)
        acc += x.to(tl.float32) * tl.load(w + tap * C + c, mask=c < C, other=0.0)[None, :]
    if EARLY:
        gdc_launch_dependents()
    v = tl.sum(acc, 1) + tl.load(bias)
    tl.store(out + m, tl.minimum(tl.maximum(v, -1.0), 1.0), mask=m < m_count)


def last_conv(s: View, weight: Tensor, bias: Tensor, out: Tensor, extent: Extent, tile: Tile) -> None:
    """`weight` [taps, channels]; `out`: all positions one after the other. Of the tile only rows and warps are used."""
    taps, c = weight.shape
    _last[(triton.cdiv(extent.positions, tile.m),)](
        s.data, weight, bias, out, *extent.arguments(weight), s.row, C=c, TAPS=taps,
        LIVE=extent.live is not None, EARLY=extent.early, BM=tile.m, BC=triton.next_power_of_2(c),
        num_warps=tile.warps, launch_pdl=extent.early,
    )  # fmt: skip


@triton.jit(do_not_specialize=["rows", "frames", "each"])
def _depth(
    x, w, bias, norm, norm_bias, out, live, rows, frames, each, x_row, out_row, eps, C: tl.constexpr,
    TAPS: tl.constexpr, LIVE: tl.constexpr, EARLY: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    if EARLY:
        gdc_wait()
    t_count, m_count = count(live, rows, frames, each, LIVE)
    m = tl.program_id(0)
    if LIVE:
        if m >= m_count:
            return
    row = m // t_count
    t = m - row * t_count
    c = tl.arange(0, BC)
    inside = c < C
    acc = tl.load(bias + c, mask=c < C, other=0.0)
    for tap in tl.static_range(TAPS):
        v = tl.load(x + row * x_row + (t + tap) * C + c, mask=inside, other=0.0).to(tl.float32)
        acc += v * tl.load(w + tap * C + c, mask=c < C, other=0.0)
    if EARLY:
        gdc_launch_dependents()
    mean = tl.sum(acc, 0) / C
    d = tl.where(c < C, acc - mean, 0.0)
    y = d * tl.rsqrt(tl.sum(d * d, 0) / C + eps) * tl.load(norm + c, mask=c < C, other=0.0)
    y += tl.load(norm_bias + c, mask=c < C, other=0.0)
    tl.store(out + row * out_row + t * C + c, y.to(out.dtype.element_ty), mask=inside)


def depth_conv_norm(x: View, depth: Depth, extent: Extent, out: View, eps: float) -> None:
    c = depth.norm.shape[0]
    _depth[(extent.positions,)](
        x.data, *depth, out.data, *extent.arguments(depth.weight), x.row, out.row, eps, C=c,
        TAPS=depth.weight.shape[0] // c, LIVE=extent.live is not None, EARLY=extent.early,
        BC=triton.next_power_of_2(c), num_warps=WARPS, launch_pdl=extent.early,
    )  # fmt: skip


def reference_last(s_bkc: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """[B, history + T, C] -> [B, T]."""
    taps = len(weight)
    windows = s_bkc.float().unfold(1, taps, 1)
    return (torch.einsum("btck,kc->bt", windows, weight) + bias).clamp(-1, 1)


def reference_depth(x_bkc: Tensor, depth: Depth, eps: float) -> Tensor:
    """[B, history + T, C] -> [B, T, C]."""
    c = x_bkc.shape[-1]
    weight = depth.weight.view(-1, c)
    y = torch.einsum("btck,kc->btc", x_bkc.float().unfold(1, len(weight), 1), weight) + depth.bias
    return torch.nn.functional.layer_norm(y, (c,), depth.norm, depth.norm_bias, eps)
