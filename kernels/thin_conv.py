# pyright: basic, reportMissingImports=false, reportIndexIssue=false
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

from omnirt.kernels.tap_layout import Extent, Tile, View, positions_of

TOLERANCE = 1e-2
FLOAT32_TOLERANCE = 2e-6
WARPS = 4


class Depth(NamedTuple):
    """weight [taps * channels], the norm's weight and bias, all float32."""

    weight: Tensor
    bias: Tensor
    norm: Tensor
    norm_bias: Tensor


class _Form(NamedTuple):
    c: int
    taps: int
    eps: float
    live: bool
    early: bool
    bm: int
    bc: int


@triton.jit(do_not_specialize=["rows", "frames", "each"])
def _last(io, s_row, live, rows, frames, each, form: tl.constexpr):
    if form.early:
        gdc_wait()
    t_count, m_count = positions_of(live, rows, frames, each, form.live)
    if form.live:  # noqa: SIM102  (a constant, then a number of the device)
        if tl.program_id(0) * form.bm >= m_count:
            return
    s, weight, bias, out = io
    taps: tl.constexpr = form.taps
    bm: tl.constexpr = form.bm
    bc: tl.constexpr = form.bc
    m = tl.program_id(0) * bm + tl.arange(0, bm)
    c = tl.arange(0, bc)
    safe = tl.minimum(m, m_count - 1)
    row = safe // t_count
    t = safe - row * t_count
    have = (m < m_count)[:, None] & (c < form.c)[None, :]
    acc = tl.zeros((bm, bc), tl.float32)
    for tap in tl.static_range(taps):
        x = tl.load(s + (row * s_row + (t + tap) * form.c)[:, None] + c[None, :], mask=have, other=0.0)
        acc += x.to(tl.float32) * tl.load(weight + tap * form.c + c, mask=c < form.c, other=0.0)[None, :]
    if form.early:
        gdc_launch_dependents()
    v = tl.sum(acc, 1) + tl.load(bias)
    tl.store(out + m, tl.minimum(tl.maximum(v, -1.0), 1.0), mask=m < m_count)


def last_conv(s: View, weight: Tensor, bias: Tensor, out: Tensor, extent: Extent, tile: Tile) -> None:
    """`weight` [taps, channels]; `out`: all positions one after the other. Of the tile only rows and warps are used."""
    taps, c = weight.shape
    _last[(triton.cdiv(extent.positions, tile.m),)](
        (s.data, weight, bias, out),
        s.row,
        *extent.arguments(weight),
        _Form(c, taps, 0.0, extent.live is not None, extent.early, tile.m, triton.next_power_of_2(c)),
        num_warps=tile.warps,
        launch_pdl=extent.early,
    )


@triton.jit(do_not_specialize=["rows", "frames", "each"])
def _depth(io, step, live, rows, frames, each, form: tl.constexpr):
    if form.early:
        gdc_wait()
    t_count, m_count = positions_of(live, rows, frames, each, form.live)
    m = tl.program_id(0)
    if form.live:  # noqa: SIM102  (a constant, then a number of the device)
        if m >= m_count:
            return
    x, depth, out = io
    x_row, out_row = step
    taps: tl.constexpr = form.taps
    row = m // t_count
    t = m - row * t_count
    c = tl.arange(0, form.bc)
    inside = c < form.c
    acc = tl.load(depth.bias + c, mask=inside, other=0.0)
    for tap in tl.static_range(taps):
        v = tl.load(x + row * x_row + (t + tap) * form.c + c, mask=inside, other=0.0).to(tl.float32)
        acc += v * tl.load(depth.weight + tap * form.c + c, mask=inside, other=0.0)
    if form.early:
        gdc_launch_dependents()
    mean = tl.sum(acc, 0) / form.c
    d = tl.where(inside, acc - mean, 0.0)
    y = d * tl.rsqrt(tl.sum(d * d, 0) / form.c + form.eps) * tl.load(depth.norm + c, mask=inside, other=0.0)
    y += tl.load(depth.norm_bias + c, mask=inside, other=0.0)
    tl.store(out + row * out_row + t * form.c + c, y.to(out.dtype.element_ty), mask=inside)


def depth_conv_norm(x: View, depth: Depth, extent: Extent, out: View, eps: float) -> None:
    c = depth.norm.shape[0]
    taps = depth.weight.shape[0] // c
    _depth[(extent.positions,)](
        (x.data, depth, out.data),
        (x.row, out.row),
        *extent.arguments(depth.weight),
        _Form(c, taps, eps, extent.live is not None, extent.early, 1, triton.next_power_of_2(c)),
        num_warps=WARPS,
        launch_pdl=extent.early,
    )


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
