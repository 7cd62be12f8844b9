# pyright: basic, reportMissingImports=false, reportIndexIssue=false
"""Causal convolution over rows of channels as a matrix product over taps; what surrounds it happens in its last step.

    tap_conv(a, weight_kn, extent, tile, taps=7, ...)   # also: transposed convolution (2 taps), linear layer (1 tap)

An input is a buffer [rows, history + positions, channels]: the history lies in front, so no tap needs a condition. A
transposed convolution of kernel 2r and stride r is a convolution of two taps with r times the channels out. A snake is
applied where a value is made, once, not where it is read (seven times).

A result is rounded the same whatever its neighbours in the batch are and however long the chunk is. Other tiles keep
that as long as the inner step of a normed product (`Tile.k`: its squares are summed in that order) is the same.
TOLERANCE is of one product in bfloat16 against `reference` on the same numbers, relative to the largest value.

Letters: m row and position, t position, k tap and channel in, n channel out (of r positions for a transposed one).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra import libdevice
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from omnirt.kernels.tap_layout import Extent, Tile, View, positions_of

TOLERANCE = 1e-2
FLOAT32_TOLERANCE = 2e-6


def sine_is_fast(kind: torch.dtype) -> bool:
    """The hardware's, whose error is far below bfloat16's. The interpreter has none."""
    return kind != torch.float32 and not triton.knobs.runtime.interpret


@triton.jit
def snaked(v, amount, scale, fast: tl.constexpr):
    s = libdevice.fast_sinf(v * amount) if fast else tl.sin(v * amount)
    return v + scale * s * s


class _Places(NamedTuple):
    """What a form has no use for is the weight once more: each None would be a launcher of its own to compile."""

    a: Tensor
    w: Tensor
    bias: Tensor
    res: Tensor
    out: Tensor
    snaked: Tensor
    amount: Tensor
    scale: Tensor


class _Steps(NamedTuple):
    """Numbers from row to row, and before the first position."""

    a: int
    res: int
    out: int
    out_first: int
    snaked: int
    snaked_first: int
    tap: int


class _Form(NamedTuple):
    """What a kernel is compiled for. `edge`: the last tile is not full."""

    n: int
    c: int
    taps: int
    period: int
    eps: float
    gated: bool
    gelu: bool
    bias: bool
    res: bool
    out: bool
    snaked: bool
    fast: bool
    edge: bool
    live: bool
    early: bool
    bm: int
    bn: int
    bk: int


@triton.jit
def _finish(acc, at, step, row, t, mn, form: tl.constexpr):
    """Bias, activation, sum with what was there before; out, and out through a snake."""
    keep, n = mn
    channel = n % form.period
    if form.bias:
        acc += tl.load(at.bias + channel)[None, :]
    if form.gelu:
        acc = 0.5 * acc * (1 + tl.erf(acc * 0.7071067811865476))
    place = (t * form.n)[:, None] + n[None, :]
    if form.res:
        acc += tl.load(at.res + (row * step.res)[:, None] + place, mask=keep, other=0.0).to(tl.float32)
    if form.out:
        to = at.out + (row * step.out + step.out_first)[:, None] + place
        tl.store(to, acc.to(at.out.dtype.element_ty), mask=keep)
    if form.snaked:
        acc = snaked(acc, tl.load(at.amount + channel)[None, :], tl.load(at.scale + channel)[None, :], form.fast)
        to = at.snaked + (row * step.snaked + step.snaked_first)[:, None] + place
        tl.store(to, acc.to(at.snaked.dtype.element_ty), mask=keep)


@triton.jit(do_not_specialize=["rows", "frames", "each"])
def _tap_conv(at, step, live, rows, frames, each, form: tl.constexpr):
    if form.early:
        gdc_wait()
    t_count, m_count = positions_of(live, rows, frames, each, form.live)
    bm: tl.constexpr = form.bm
    bn: tl.constexpr = form.bn
    tiles_n: tl.constexpr = (form.n + bn - 1) // bn
    tile = tl.program_id(0)
    if form.live:  # noqa: SIM102  (a constant, then a number of the device)
        if (tile // tiles_n) * bm >= m_count:
            return
    m = (tile // tiles_n) * bm + tl.arange(0, bm)
    n = (tile % tiles_n) * bn + tl.arange(0, bn)
    k = tl.arange(0, form.bk)
    safe = tl.minimum(m, m_count - 1)
    row = safe // t_count
    t = safe - row * t_count
    a_at = at.a + (row * step.a + t * form.c)[:, None] + k[None, :]
    columns: tl.constexpr = form.n * 2 if form.gated else form.n
    w_at = at.w + k[:, None] * columns + n[None, :]
    acc = tl.zeros((bm, bn), tl.float32)
    up = tl.zeros((bm, bn), tl.float32)
    squares = tl.zeros((bm,), tl.float32)
    parts: tl.constexpr = form.c // form.bk
    for i in range(form.taps * parts):
        tap = i // parts
        x_at = a_at + tap * step.tap + (i - tap * parts) * form.bk
        # A tile that is hardly filled reads only what counts; a full one needs no condition.
        x = tl.load(x_at, mask=(m < m_count)[:, None], other=0.0) if form.edge else tl.load(x_at)
        y_at = w_at + i * form.bk * columns
        y = tl.load(y_at) if form.n % bn == 0 else tl.load(y_at, mask=(n < form.n)[None, :], other=0.0)
        acc = tl.dot(x, y, acc, input_precision="ieee")
        if form.gated:
            up = tl.dot(x, tl.load(y_at + form.n), up, input_precision="ieee")
        if form.eps > 0:
            f = x.to(tl.float32)
            squares += tl.sum(f * f, 1)
    if form.early:
        gdc_launch_dependents()
    if form.eps > 0:
        norm = tl.rsqrt(squares / form.c + form.eps)[:, None]
        acc = acc * norm
        up = up * norm
    if form.gated:
        acc = acc * tl.sigmoid(acc) * up
    keep = (m < m_count)[:, None] & (n < form.n)[None, :]
    _finish(acc, at, step, row, t, (keep, n), form)


@dataclass(frozen=True)
class Product:
    """What a launch computes: norm(a) @ weight of each tap, times its gate, plus bias, gelu, plus res; to `out` and,
    through `snake` (amount, scale), to `snaked`."""

    weight: Tensor
    """[taps * channels in, channels out]; gated: the gate's columns, then the others."""
    bias: Tensor | None = None
    taps: int = 1
    dilation: int = 1
    period: int = 0
    """Channels of one position out, where a column is one of several positions'."""
    norm_eps: float = 0.0
    """Of a normed input; its weight is part of `weight`. 0: none."""
    gated: bool = False
    gelu: bool = False

    @property
    def channels(self) -> int:
        return self.weight.shape[0] // self.taps

    @property
    def columns(self) -> int:
        return self.weight.shape[1] // (2 if self.gated else 1)


def tap_conv(
    a: View,
    product: Product,
    extent: Extent,
    tile: Tile,
    *,
    res: View | None = None,
    out: View | None = None,
    snaked: View | None = None,
    snake: tuple[Tensor, Tensor] | None = None,
) -> None:
    p, m = product, extent.positions
    n, c = p.columns, p.channels
    w, live = p.weight, extent.live is not None
    r, o, s = (view or View(w, 0) for view in (res, out, snaked))
    places = _Places(
        a.data,
        w,
        p.bias if p.bias is not None else w,
        r.data,
        o.data,
        s.data,
        *(snake if snake is not None else (w, w)),
    )
    form = _Form(
        n=n,
        c=c,
        taps=p.taps,
        period=p.period or n,
        eps=p.norm_eps,
        gated=p.gated,
        gelu=p.gelu,
        bias=p.bias is not None,
        res=res is not None,
        out=out is not None,
        snaked=snaked is not None,
        fast=sine_is_fast(a.data.dtype),
        edge=not live and m % tile.m != 0,
        live=live,
        early=extent.early,
        bm=tile.m,
        bn=tile.n,
        bk=min(tile.k, c),
    )
    _tap_conv[(triton.cdiv(m, tile.m) * triton.cdiv(n, tile.n),)](
        places,
        _Steps(a.row, r.row, o.row, o.first, s.row, s.first, p.dilation * c),
        *extent.arguments(w),
        form,
        num_warps=tile.warps,
        num_stages=tile.stages,
        launch_pdl=extent.early,
    )


def reference(x_bkc: Tensor, product: Product, res_btn: Tensor | None = None) -> Tensor:
    """[B, history + T, C] -> [B, T, N] in float32, before the snake."""
    p, c = product, product.channels
    x, w = x_bkc.float(), product.weight.float()
    positions = x.shape[1] - (p.taps - 1) * p.dilation
    taps = [x[:, tap * p.dilation : tap * p.dilation + positions] for tap in range(p.taps)]
    y = torch.cat(taps, -1) @ w
    if p.norm_eps:
        y = y * torch.rsqrt(x.square().sum(-1, keepdim=True) / c + p.norm_eps)
    if p.gated:
        y = torch.nn.functional.silu(y[..., : p.columns]) * y[..., p.columns :]
    if p.bias is not None:
        y = y + p.bias.repeat(p.columns // (p.period or p.columns))
    if p.gelu:
        y = torch.nn.functional.gelu(y)
    return y if res_btn is None else y + res_btn.float()


def reference_snake(v: Tensor, amount: Tensor, scale: Tensor) -> Tensor:
    repeats = v.shape[-1] // len(amount)
    return v + scale.repeat(repeats) * (v * amount.repeat(repeats)).sin().square()
