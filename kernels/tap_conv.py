# ruff: noqa: N803, N806, SIM102, SIM108, PLR0915, C901  (Triton: constants are capitals)
# pyright: reportMissingImports=false, reportIndexIssue=false
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

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra import libdevice
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

TOLERANCE = 1e-2
FLOAT32_TOLERANCE = 2e-6


@dataclass(frozen=True)
class View:
    """Where a buffer's positions start: a tensor, numbers from one row to the next, numbers before the first position."""

    data: Tensor
    row: int
    first: int = 0


@dataclass(frozen=True)
class Tile:
    """Rows, columns and depth of a block of the product; warps; loads under way."""

    m: int
    n: int
    k: int
    warps: int
    stages: int


@dataclass(frozen=True)
class Extent:
    """What a launch covers: `frames` frames, of `each` positions, of `rows` rows. With `live` (int32 on the device: rows,
    frames) only so many of them, which may change between two replays of a graph."""

    rows: int
    frames: int
    each: int
    live: Tensor | None = None
    early: bool = False
    """Start while the launch before ends, and let the next one in after the products."""

    @property
    def positions(self) -> int:
        return self.rows * self.frames * self.each

    def arguments(self, unused: Tensor) -> tuple[Tensor, int, int, int]:
        return self.live if self.live is not None else unused, self.rows, self.frames, self.each


def sine_is_fast(kind: torch.dtype) -> bool:
    """The hardware's, whose error is far below bfloat16's. The interpreter has none."""
    return kind != torch.float32 and not triton.knobs.runtime.interpret


@triton.jit
def count(live, rows, frames, each, LIVE: tl.constexpr):
    """Positions of a row, and of all rows."""
    if LIVE:
        rows = tl.load(live)
        frames = tl.load(live + 1)
    return frames * each, rows * frames * each


@triton.jit
def snaked(v, amount, scale, FAST: tl.constexpr):
    s = libdevice.fast_sinf(v * amount) if FAST else tl.sin(v * amount)
    return v + scale * s * s


@triton.jit(do_not_specialize=["rows", "frames", "each"])
def _tap_conv(
    a, w, bias, res, out, snake_out, amount, scale, live, rows, frames, each, a_row, res_row, out_row, out_first,
    snake_row, snake_first, tap_step, eps, N: tl.constexpr, C: tl.constexpr, TAPS: tl.constexpr, PERIOD: tl.constexpr,
    NORM: tl.constexpr, GATED: tl.constexpr, GELU: tl.constexpr, BIAS: tl.constexpr, RES: tl.constexpr,
    OUT: tl.constexpr, SNAKE: tl.constexpr, FAST: tl.constexpr, LIVE: tl.constexpr, EDGE: tl.constexpr,
    EARLY: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    if EARLY:
        gdc_wait()
    t_count, m_count = count(live, rows, frames, each, LIVE)
    tiles_n: tl.constexpr = (N + BN - 1) // BN
    tile = tl.program_id(0)
    if LIVE:
        if (tile // tiles_n) * BM >= m_count:
            return
    m = (tile // tiles_n) * BM + tl.arange(0, BM)
    n = (tile % tiles_n) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    safe = tl.minimum(m, m_count - 1)
    row = safe // t_count
    t = safe - row * t_count
    a_at = a + (row * a_row + t * C)[:, None] + k[None, :]
    WN: tl.constexpr = 2 * N if GATED else N
    w_at = w + k[:, None] * WN + n[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    if GATED:
        up = tl.zeros((BM, BN), tl.float32)
    if NORM:
        squares = tl.zeros((BM,), tl.float32)
    parts: tl.constexpr = C // BK
    for i in range(TAPS * parts):
        tap = i // parts
        x_at = a_at + tap * tap_step + (i - tap * parts) * BK
        # A tile that is hardly filled reads only what counts; a full one needs no condition.
        if EDGE:
            x = tl.load(x_at, mask=(m < m_count)[:, None], other=0.0)
        else:
            x = tl.load(x_at)
        if N % BN == 0:
            y = tl.load(w_at + i * BK * WN)
        else:
            y = tl.load(w_at + i * BK * WN, mask=(n < N)[None, :], other=0.0)
        acc = tl.dot(x, y, acc, input_precision="ieee")
        if GATED:
            up = tl.dot(x, tl.load(w_at + i * BK * WN + N), up, input_precision="ieee")
        if NORM:
            f = x.to(tl.float32)
            squares += tl.sum(f * f, 1)
    if EARLY:
        gdc_launch_dependents()
    if NORM:
        norm = tl.rsqrt(squares / C + eps)[:, None]
        acc = acc * norm
        if GATED:
            up = up * norm
    if GATED:
        acc = acc * tl.sigmoid(acc) * up
    keep = (m < m_count)[:, None] & (n < N)[None, :]
    channel = n % PERIOD
    if BIAS:
        acc += tl.load(bias + channel)[None, :]
    if GELU:
        acc = 0.5 * acc * (1 + tl.erf(acc * 0.7071067811865476))
    at = (t * N)[:, None] + n[None, :]
    if RES:
        acc += tl.load(res + (row * res_row)[:, None] + at, mask=keep, other=0.0).to(tl.float32)
    if OUT:
        tl.store(out + (row * out_row + out_first)[:, None] + at, acc.to(out.dtype.element_ty), mask=keep)
    if SNAKE:
        acc = snaked(acc, tl.load(amount + channel)[None, :], tl.load(scale + channel)[None, :], FAST)
        to = snake_out + (row * snake_row + snake_first)[:, None] + at
        tl.store(to, acc.to(snake_out.dtype.element_ty), mask=keep)


@dataclass(frozen=True)
class Product:
    """What a launch computes: norm(a) @ weight per tap, times its gate, plus bias, gelu, plus res; to `out` and, through
    `snake` (amount, scale), to `snaked`."""

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
    p, w = product, product.weight
    n, c, m = p.columns, p.channels, extent.positions
    amount, scale = snake or (w, w)
    r, o, s = (view or View(w, 0) for view in (res, out, snaked))
    _tap_conv[(triton.cdiv(m, tile.m) * triton.cdiv(n, tile.n),)](
        a.data, w, p.bias if p.bias is not None else w, r.data, o.data, s.data, amount, scale, *extent.arguments(w),
        a.row, r.row, o.row, o.first, s.row, s.first, p.dilation * c, p.norm_eps,
        N=n, C=c, TAPS=p.taps, PERIOD=p.period or n, NORM=p.norm_eps > 0, GATED=p.gated, GELU=p.gelu,
        BIAS=p.bias is not None, RES=res is not None, OUT=out is not None, SNAKE=snaked is not None,
        FAST=sine_is_fast(a.data.dtype), LIVE=extent.live is not None,
        EDGE=extent.live is None and m % tile.m != 0, EARLY=extent.early, BM=tile.m, BN=tile.n, BK=min(tile.k, c),
        num_warps=tile.warps, num_stages=tile.stages, launch_pdl=extent.early,
    )  # fmt: skip


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
