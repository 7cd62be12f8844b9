"""Causal convolution over rows of channels as a matrix product over taps; everything around it happens in its last step.

    tap_conv(a, weight_kn, out..., taps, dilation)      # also: transposed convolution (2 taps), linear layer (1 tap)
    residual_unit(s, ...)                               # snake, 7 taps, snake, 1x1, addition: one kernel, up to 192 channels

An input is a buffer [rows, history + positions, channels]: the history sits in front, so no tap needs a condition. A transposed
convolution of kernel 2r and stride r is a convolution of two taps with r times the channels out. Snake is applied where a value is
made, once, not where it is read (seven times). With the same tiles a result depends on neither its neighbours in the batch nor the
chunk's length, bit for bit; other tiles round differently. Tolerance of the whole decoder against float32: a relative error of
5e-2 in bfloat16 with random weights (torch's own convolutions: 5.5e-2).
Letters: m row and position, t position, k tap and channel in, n channel out (of r positions for a transposed convolution).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra import libdevice
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

LEAST_PIECE = 32
FAST = True  # hardware sine, for all but float32; off in the interpreter


@dataclass(frozen=True)
class View:
    """Where a buffer's positions start: a tensor, elements from one row to the next, elements before the first position."""

    data: Tensor
    row: int
    first: int = 0


@dataclass(frozen=True)
class Tile:
    m: int
    n: int
    k: int
    warps: int
    stages: int


@triton.jit
def _snake(v, amount, scale, FAST: tl.constexpr):
    if FAST:
        s = libdevice.fast_sinf(v * amount)
    else:
        s = tl.sin(v * amount)
    return v + scale * s * s


@triton.jit(do_not_specialize=["m_count", "t_count"])
def _tap_conv(a, w, bias, res, out, snaked, amount, scale, m_count, t_count, a_row, res_row, out_row, out_first, snaked_row,
              snaked_first, tap_step, eps, N: tl.constexpr, C: tl.constexpr, TAPS: tl.constexpr, PERIOD: tl.constexpr,
              NORM: tl.constexpr, GATED: tl.constexpr, GELU: tl.constexpr, BIAS: tl.constexpr, RES: tl.constexpr, OUT: tl.constexpr,
              SNAKE: tl.constexpr, FAST: tl.constexpr, EARLY: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    if EARLY:
        gdc_wait()
    tiles_n: tl.constexpr = (N + BN - 1) // BN
    tile = tl.program_id(0)
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
        x = tl.load(a_at + tap * tap_step + (i - tap * parts) * BK)
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
        acc = _snake(acc, tl.load(amount + channel)[None, :], tl.load(scale + channel)[None, :], FAST)
        tl.store(snaked + (row * snaked_row + snaked_first)[:, None] + at, acc.to(snaked.dtype.element_ty), mask=keep)


def tap_conv(a: View, weight_kn: Tensor, rows: int, positions: int, tile: Tile, *, taps: int = 1, dilation: int = 1,
             period: int = 0, bias: Tensor | None = None, res: View | None = None, out: View | None = None, snaked: View | None = None,
             snake: tuple[Tensor, Tensor] | None = None, norm: bool = False, gated: bool = False, gelu: bool = False,
             eps: float = 1e-5, early: bool = False) -> None:
    c = weight_kn.shape[0] // taps
    n = weight_kn.shape[1] // (2 if gated else 1)
    m = rows * positions
    grid = (triton.cdiv(m, tile.m) * triton.cdiv(n, tile.n),)
    none = View(weight_kn, 0)
    r, o, s = res or none, out or none, snaked or none
    _tap_conv[grid](a.data, weight_kn, bias if bias is not None else weight_kn, r.data, o.data, s.data,
                    snake[0] if snake else weight_kn, snake[1] if snake else weight_kn, m, positions, a.row, r.row, o.row, o.first,
                    s.row, s.first, dilation * c, eps, n, c, taps, period or n, norm, gated, gelu, bias is not None, res is not None,
                    out is not None, snaked is not None, FAST and a.data.dtype != torch.float32, early, tile.m, tile.n, min(tile.k, c),
                    num_warps=tile.warps, num_stages=tile.stages, launch_pdl=early)


@triton.jit
def _finish(acc, n, keep, row, at, bias, x, x_row, snaked, snaked_row, snaked_first, amount, scale, C: tl.constexpr, OUT: tl.constexpr,
            FAST: tl.constexpr):
    inside = keep & (n < C)[None, :]
    place = at[:, None] + n[None, :]
    x_at = x + (row * x_row)[:, None] + place
    acc += tl.load(bias + n)[None, :] + tl.load(x_at, mask=inside, other=0.0).to(tl.float32)
    if OUT:
        tl.store(x_at, acc.to(x.dtype.element_ty), mask=inside)
    acc = _snake(acc, tl.load(amount + n)[None, :], tl.load(scale + n)[None, :], FAST)
    tl.store(snaked + (row * snaked_row + snaked_first)[:, None] + place, acc.to(x.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["m_count", "t_count"])
def _unit(s, x, w1, b1, amount1, scale1, w2, b2, amount2, scale2, snaked, m_count, t_count, s_row, x_row, snaked_row, snaked_first,
          tap_step, C: tl.constexpr, TAPS: tl.constexpr, N0: tl.constexpr, N1: tl.constexpr, OUT: tl.constexpr, FAST: tl.constexpr,
          EARLY: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr):
    if EARLY:
        gdc_wait()
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
    h0 = _snake(acc0 + tl.load(b1 + n0)[None, :], tl.load(amount1 + n0)[None, :], tl.load(scale1 + n0)[None, :], FAST).to(s.dtype.element_ty)
    w2_at = w2 + n0[:, None] * WN
    if N1 > 0:
        h1 = _snake(acc1 + tl.load(b1 + n1)[None, :], tl.load(amount1 + n1)[None, :], tl.load(scale1 + n1)[None, :], FAST).to(s.dtype.element_ty)
        v2_at = w2 + n1[:, None] * WN
        y = tl.dot(h0, tl.load(w2_at + n1[None, :]), input_precision="ieee")
        y = tl.dot(h1, tl.load(v2_at + n1[None, :]), y, input_precision="ieee")
        _finish(y, n1, keep, row, at, b2, x, x_row, snaked, snaked_row, snaked_first, amount2, scale2, C, OUT, FAST)
    z = tl.dot(h0, tl.load(w2_at + n0[None, :]), input_precision="ieee")
    if N1 > 0:
        z = tl.dot(h1, tl.load(v2_at + n0[None, :]), z, input_precision="ieee")
    _finish(z, n0, keep, row, at, b2, x, x_row, snaked, snaked_row, snaked_first, amount2, scale2, C, OUT, FAST)


def pieces(c: int) -> tuple[int, int]:
    """Channels as one or two powers of two: 192 is 128 and 64, 96 is 64 and 32; others are padded to one."""
    whole = 1 << (c - 1).bit_length()
    low = whole // 2
    rest = c - low
    return (low, rest) if rest & (rest - 1) == 0 and rest >= LEAST_PIECE and rest != low else (whole, 0)


def residual_unit(s: View, x: View, conv1: tuple[Tensor, ...], conv2: tuple[Tensor, ...], snaked: View, rows: int, positions: int,
                  c: int, dilation: int, taps: int, keep_x: bool, tile: Tile, early: bool = False) -> None:
    """`conv1`: weight, bias, amount, scale (padded); `conv2`: the same, with the snake of the unit that follows."""
    n0, n1 = pieces(c)
    m = rows * positions
    _unit[(triton.cdiv(m, tile.m),)](s.data, x.data, *conv1, *conv2, snaked.data, m, positions, s.row, x.row, snaked.row, snaked.first,
                                     dilation * c, c, taps, n0, n1, keep_x, FAST and s.data.dtype != torch.float32, early, tile.m, tile.k, num_warps=tile.warps,
                                     num_stages=tile.stages, launch_pdl=early)


@triton.jit(do_not_specialize=["m_count", "t_count"])
def _last(s, w, bias, out, m_count, t_count, s_row, C: tl.constexpr, TAPS: tl.constexpr, EARLY: tl.constexpr, BM: tl.constexpr,
          BC: tl.constexpr):
    if EARLY:
        gdc_wait()
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    c = tl.arange(0, BC)
    safe = tl.minimum(m, m_count - 1)
    row = safe // t_count
    t = safe - row * t_count
    acc = tl.zeros((BM, BC), tl.float32)
    for tap in tl.static_range(TAPS):
        x = tl.load(s + (row * s_row + (t + tap) * C)[:, None] + c[None, :], mask=(c < C)[None, :], other=0.0)
        acc += x.to(tl.float32) * tl.load(w + tap * C + c, mask=c < C, other=0.0).to(tl.float32)[None, :]
    if EARLY:
        gdc_launch_dependents()
    v = tl.sum(acc, 1) + tl.load(bias)
    tl.store(out + m, tl.minimum(tl.maximum(v, -1.0), 1.0), mask=m < m_count)


def last_conv(s: View, weight: Tensor, bias: Tensor, out: Tensor, rows: int, positions: int, taps: int, tile: Tile,
              early: bool = False) -> None:
    """To one channel, limited to [-1, 1], float32."""
    c = weight.shape[0] // taps
    m = rows * positions
    _last[(triton.cdiv(m, tile.m),)](s.data, weight, bias, out, m, positions, s.row, c, taps, early, tile.m, 1 << (c - 1).bit_length(),
                                     num_warps=tile.warps, launch_pdl=early)


@triton.jit(do_not_specialize=["t_count"])
def _depth(x, w, bias, ln_w, ln_b, out, t_count, x_row, C: tl.constexpr, TAPS: tl.constexpr, EARLY: tl.constexpr,
           BC: tl.constexpr):
    if EARLY:
        gdc_wait()
    m = tl.program_id(0)
    row = m // t_count
    t = m - row * t_count
    c = tl.arange(0, BC)
    inside = c < C
    acc = tl.load(bias + c, mask=inside, other=0.0).to(tl.float32)
    for tap in tl.static_range(TAPS):
        v = tl.load(x + row * x_row + (t + tap) * C + c, mask=inside, other=0.0).to(tl.float32)
        acc += v * tl.load(w + tap * C + c, mask=inside, other=0.0).to(tl.float32)
    if EARLY:
        gdc_launch_dependents()
    mean = tl.sum(acc, 0) / C
    d = tl.where(inside, acc - mean, 0.0)
    y = d * tl.rsqrt(tl.sum(d * d, 0) / C + 1e-6) * tl.load(ln_w + c, mask=inside, other=0.0) + tl.load(ln_b + c, mask=inside, other=0.0)
    tl.store(out + m * C + c, y.to(out.dtype.element_ty), mask=inside)


def depth_conv_norm(x: View, weight: Tensor, bias: Tensor, ln_w: Tensor, ln_b: Tensor, out: Tensor, rows: int, positions: int, taps: int,
                    early: bool = False) -> None:
    c = ln_w.shape[0]
    _depth[(rows * positions,)](x.data, weight, bias, ln_w, ln_b, out, positions, x.row, c, taps, early, 1 << (c - 1).bit_length(), num_warps=4,
                                launch_pdl=early)
