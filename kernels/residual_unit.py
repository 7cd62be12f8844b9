# pyright: basic, reportMissingImports=false, reportIndexIssue=false
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

from omnirt.kernels.tap_conv import Product, reference_snake, sine_is_fast, snaked
from omnirt.kernels.tap_conv import reference as reference_conv
from omnirt.kernels.tap_layout import Extent, Tile, View, positions_of

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


class _Places(NamedTuple):
    s: Tensor
    x: Tensor
    out: Tensor
    conv: Half
    point: Half


class _Steps(NamedTuple):
    """Numbers from row to row, and before the first position."""

    s: int
    x: int
    out: int
    out_first: int
    tap: int


class _Form(NamedTuple):
    c: int
    taps: int
    n0: int
    n1: int
    keep: bool
    fast: bool
    live: bool
    early: bool
    bm: int
    bk: int


@triton.jit
def _inner(acc, half, n, fast: tl.constexpr):
    return snaked(
        acc + tl.load(half.bias + n)[None, :],
        tl.load(half.amount + n)[None, :],
        tl.load(half.scale + n)[None, :],
        fast,
    )


@triton.jit
def _finish(acc, at, step, row, t, mn, form: tl.constexpr):
    keep, n = mn
    inside = keep & (n < form.c)[None, :]
    place = (t * form.c)[:, None] + n[None, :]
    x_at = at.x + (row * step.x)[:, None] + place
    acc += tl.load(at.point.bias + n)[None, :] + tl.load(x_at, mask=inside, other=0.0).to(tl.float32)
    if form.keep:
        tl.store(x_at, acc.to(at.x.dtype.element_ty), mask=inside)
    acc = snaked(acc, tl.load(at.point.amount + n)[None, :], tl.load(at.point.scale + n)[None, :], form.fast)
    to = at.out + (row * step.out + step.out_first)[:, None] + place
    tl.store(to, acc.to(at.x.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["rows", "frames", "each"])
def _unit(at, step, live, rows, frames, each, form: tl.constexpr):
    if form.early:
        gdc_wait()
    t_count, m_count = positions_of(live, rows, frames, each, form.live)
    if form.live:  # noqa: SIM102  (a constant, then a number of the device)
        if tl.program_id(0) * form.bm >= m_count:
            return
    kind: tl.constexpr = at.s.dtype.element_ty
    bm: tl.constexpr = form.bm
    n0_count: tl.constexpr = form.n0
    n1_count: tl.constexpr = form.n1
    columns: tl.constexpr = n0_count + n1_count
    m = tl.program_id(0) * bm + tl.arange(0, bm)
    n0 = tl.arange(0, n0_count)
    k = tl.arange(0, form.bk)
    safe = tl.minimum(m, m_count - 1)
    row = safe // t_count
    t = safe - row * t_count
    a_at = at.s + (row * step.s + t * form.c)[:, None] + k[None, :]
    w_at = at.conv.weight + k[:, None] * columns + n0[None, :]
    acc0 = tl.zeros((bm, n0_count), tl.float32)
    if n1_count > 0:
        n1 = n0_count + tl.arange(0, n1_count)
        v_at = at.conv.weight + k[:, None] * columns + n1[None, :]
        acc1 = tl.zeros((bm, n1_count), tl.float32)
    parts: tl.constexpr = form.c // form.bk
    for i in range(form.taps * parts):
        tap = i // parts
        a = tl.load(a_at + tap * step.tap + (i - tap * parts) * form.bk)
        acc0 = tl.dot(a, tl.load(w_at + i * form.bk * columns), acc0, input_precision="ieee")
        if n1_count > 0:
            acc1 = tl.dot(a, tl.load(v_at + i * form.bk * columns), acc1, input_precision="ieee")
    if form.early:
        gdc_launch_dependents()
    keep = (m < m_count)[:, None]
    h0 = _inner(acc0, at.conv, n0, form.fast).to(kind)
    w2_at = at.point.weight + n0[:, None] * columns
    if n1_count > 0:
        h1 = _inner(acc1, at.conv, n1, form.fast).to(kind)
        v2_at = at.point.weight + n1[:, None] * columns
        y = tl.dot(h0, tl.load(w2_at + n1[None, :]), input_precision="ieee")
        y = tl.dot(h1, tl.load(v2_at + n1[None, :]), y, input_precision="ieee")
        _finish(y, at, step, row, t, (keep, n1), form)
    z = tl.dot(h0, tl.load(w2_at + n0[None, :]), input_precision="ieee")
    if n1_count > 0:
        z = tl.dot(h1, tl.load(v2_at + n0[None, :]), z, input_precision="ieee")
    _finish(z, at, step, row, t, (keep, n0), form)


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
    c = x.row // (extent.frames * extent.each)
    fast, taps = sine_is_fast(s.data.dtype), conv.weight.shape[0] // c
    _unit[(triton.cdiv(extent.positions, tile.m),)](
        _Places(s.data, x.data, out.data, conv, point),
        _Steps(s.row, x.row, out.row, out.first, dilation * c),
        *extent.arguments(conv.weight),
        _Form(c, taps, *pieces(c), keep, fast, extent.live is not None, extent.early, tile.m, min(tile.k, c)),
        num_warps=tile.warps,
        num_stages=tile.stages,
        launch_pdl=extent.early,
    )


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
