# ruff: noqa: N803, N806, SIM102  (Triton: constants are capitals)
# pyright: reportMissingImports=false, reportIndexIssue=false
"""A residual unit in one kernel: convolution of 7, snake, 1x1, addition, and the snake of the unit that follows.

    residual_unit(s, x, conv, point, out, ...)        # up to FUSED_CHANNELS channels

The unit's first snake was applied where its input was made (see tap_conv); `x` is the input itself, and is replaced by
the result where a later unit adds to it. All channels of a position are in one block, so nothing in between leaves it.
Channels are held as one or two powers of two (`pieces`), with weights and snakes padded to them.
TOLERANCE is against `reference` in bfloat16, relative to the largest value.
Letters: m row and position, t position, k tap and channel in, n channel out.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from omnirt.kernels.tap_conv import Extent, Product, Tile, View, count, reference_snake, sine_is_fast, snaked
from omnirt.kernels.tap_conv import reference as reference_conv

FUSED_CHANNELS = 192
"""With 384 one kernel is slower than two: 0.87 against 0.73 ms for three units of 64 rows and 4 frames."""
LEAST_PIECE = 32
TOLERANCE = 1e-2
FLOAT32_TOLERANCE = 2e-6


class Half(NamedTuple):
    """A convolution and the snake behind it, padded."""

    weight: Tensor
    bias: Tensor
    amount: Tensor
    scale: Tensor


@triton.jit
def _finish(
    acc, n, keep, row, at, bias, x, x_row, out, out_row, out_first, amount, scale, C: tl.constexpr, OUT: tl.constexpr,
    FAST: tl.constexpr,
):  # fmt: skip
    inside = keep & (n < C)[None, :]
    place = at[:, None] + n[None, :]
    x_at = x + (row * x_row)[:, None] + place
    acc += tl.load(bias + n)[None, :] + tl.load(x_at, mask=inside, other=0.0).to(tl.float32)
    if OUT:
        tl.store(x_at, acc.to(x.dtype.element_ty), mask=inside)
    acc = snaked(acc, tl.load(amount + n)[None, :], tl.load(scale + n)[None, :], FAST)
    tl.store(out + (row * out_row + out_first)[:, None] + place, acc.to(x.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["rows", "frames", "each"])
def _unit(
    s, x, w1, b1, amount1, scale1, w2, b2, amount2, scale2, out, live, rows, frames, each, s_row, x_row, out_row,
    out_first, tap_step, C: tl.constexpr, TAPS: tl.constexpr, N0: tl.constexpr, N1: tl.constexpr, OUT: tl.constexpr,
    FAST: tl.constexpr, LIVE: tl.constexpr, EARLY: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    if EARLY:
        gdc_wait()
    t_count, m_count = count(live, rows, frames, each, LIVE)
    if LIVE:
        if tl.program_id(0) * BM >= m_count:
            return
    kind: tl.constexpr = s.dtype.element_ty
    WN: tl.constexpr = N0 + N1
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n0 = tl.arange(0, N0)
    k = tl.arange(0, BK)
    safe = tl.minimum(m, m_count - 1)
    row = safe // t_count
    t = safe - row * t_count
    a_at = s + (row * s_row + t * C)[:, None] + k[None, :]
    w_at = w1 + k[:, None] * WN + n0[None, :]
    acc0 = tl.zeros((BM, N0), tl.float32)
    if N1 > 0:
        n1 = N0 + tl.arange(0, N1)
        v_at = w1 + k[:, None] * WN + n1[None, :]
        acc1 = tl.zeros((BM, N1), tl.float32)
    parts: tl.constexpr = C // BK
    for i in range(TAPS * parts):
        tap = i // parts
        a = tl.load(a_at + tap * tap_step + (i - tap * parts) * BK)
        acc0 = tl.dot(a, tl.load(w_at + i * BK * WN), acc0, input_precision="ieee")
        if N1 > 0:
            acc1 = tl.dot(a, tl.load(v_at + i * BK * WN), acc1, input_precision="ieee")
    if EARLY:
        gdc_launch_dependents()
    keep = (m < m_count)[:, None]
    at = t * C
    amount, scale = tl.load(amount1 + n0)[None, :], tl.load(scale1 + n0)[None, :]
    h0 = snaked(acc0 + tl.load(b1 + n0)[None, :], amount, scale, FAST).to(kind)
    w2_at = w2 + n0[:, None] * WN
    if N1 > 0:
        amount, scale = tl.load(amount1 + n1)[None, :], tl.load(scale1 + n1)[None, :]
        h1 = snaked(acc1 + tl.load(b1 + n1)[None, :], amount, scale, FAST).to(kind)
        v2_at = w2 + n1[:, None] * WN
        y = tl.dot(h0, tl.load(w2_at + n1[None, :]), input_precision="ieee")
        y = tl.dot(h1, tl.load(v2_at + n1[None, :]), y, input_precision="ieee")
        _finish(y, n1, keep, row, at, b2, x, x_row, out, out_row, out_first, amount2, scale2, C, OUT, FAST)
    z = tl.dot(h0, tl.load(w2_at + n0[None, :]), input_precision="ieee")
    if N1 > 0:
        z = tl.dot(h1, tl.load(v2_at + n0[None, :]), z, input_precision="ieee")
    _finish(z, n0, keep, row, at, b2, x, x_row, out, out_row, out_first, amount2, scale2, C, OUT, FAST)


def pieces(channels: int) -> tuple[int, int]:
    """Channels as one or two powers of two: 192 is 128 and 64, 96 is 64 and 32; others are padded to one."""
    whole = 1 << (channels - 1).bit_length()
    low = whole // 2
    rest = channels - low
    return (low, rest) if rest & (rest - 1) == 0 and rest >= LEAST_PIECE and rest != low else (whole, 0)


def residual_unit(
    s: View, x: View, halves: tuple[Half, Half], out: View, extent: Extent, tile: Tile, *, dilation: int, keep: bool
) -> None:
    """`s`: from its history on. `keep`: x becomes the result. `tile.n` is not used."""
    conv, point = halves
    n0, n1 = pieces(_channels(x, extent))
    c = _channels(x, extent)
    _unit[(triton.cdiv(extent.positions, tile.m),)](
        s.data, x.data, *conv, *point, out.data, *extent.arguments(conv.weight), s.row, x.row, out.row, out.first,
        dilation * c, C=c, TAPS=conv.weight.shape[0] // c, N0=n0, N1=n1, OUT=keep, FAST=sine_is_fast(s.data.dtype),
        LIVE=extent.live is not None, EARLY=extent.early, BM=tile.m, BK=min(tile.k, c),
        num_warps=tile.warps, num_stages=tile.stages, launch_pdl=extent.early,
    )  # fmt: skip


def _channels(x: View, extent: Extent) -> int:
    return x.row // (extent.frames * extent.each)


def reference(s_bkc: Tensor, x_btc: Tensor, halves: tuple[Half, Half], dilation: int) -> tuple[Tensor, Tensor]:
    """The new x, and its snake. In float32, but for what the kernel rounds on the way."""
    conv, point = halves
    c, wide = x_btc.shape[-1], conv.weight.shape[1]
    taps = conv.weight.shape[0] // c
    h = reference_conv(s_bkc, Product(conv.weight, conv.bias, taps=taps, dilation=dilation))
    h = reference_snake(h, conv.amount, conv.scale).to(s_bkc.dtype)
    y = (h.float() @ point.weight[:wide].float() + point.bias)[..., :c] + x_btc.float()
    return y, reference_snake(y, point.amount[:c], point.scale[:c])


def padded(half: Half, channels: int) -> Half:
    """Columns, and rows of a 1x1, up to what `pieces` says. Padded columns come out as zero."""
    more = sum(pieces(channels)) - channels
    pad = torch.nn.functional.pad
    rows = more if half.weight.shape[0] == channels else 0
    vectors = (pad(vector, (0, more)).contiguous() for vector in half[1:])
    return Half(pad(half.weight, (0, more, 0, rows)).contiguous(), *vectors)
