# pyright: basic, reportMissingImports=false, reportIndexIssue=false
"""Attention of a chunk's new positions over themselves and a sliding window of kept keys and values.

    attend_window(mixed, turns, cache, rows, out, extent, layer=i, window=72)

Keys and values lie in a ring of places for each slot, at least window + chunk - 1, so what a chunk writes is never what
it still reads. One program for each row and head: turns queries and keys, puts the new keys among the old ones by a
product with ones and zeros, attends, writes the new ones. Keys are summed in the order of their places, which follow
from positions alone: a result is the same, bit for bit, however its frames are cut into chunks.
TOLERANCE is against `reference` in bfloat16, absolute, for values of about 1.
Letters: t new position, j place in the ring, d half of a head, e head.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from omnirt.kernels.tap_layout import Extent, View, positions_of

TOLERANCE = 2e-2
FLOAT32_TOLERANCE = 2e-6
LEAST_TILE = 16
WARPS = 4


class Cache(NamedTuple):
    """[layers, slots, heads, ring, head] each."""

    keys: Tensor
    values: Tensor


class Turns(NamedTuple):
    """[positions, head / 2] each, float32; longer by a chunk than the longest request."""

    cosines: Tensor
    sines: Tensor


class RowState(NamedTuple):
    """Of the rows of a call: `slots`, `lengths` (frames of each that count) [B]; `positions` [slots], all int32."""

    slots: Tensor
    positions: Tensor
    lengths: Tensor


class _Steps(NamedTuple):
    mixed: int
    out: int
    layer: int
    slot: int


class _Form(NamedTuple):
    """`most`: new positions, `places`: of the ring, both as powers of two."""

    heads: int
    width: int
    ring: int
    window: int
    most: int
    places: int
    precision: str
    live: bool
    early: bool


@triton.jit
def _turned(at, cos, sin, valid, form: tl.constexpr):
    """Both halves of queries or keys of a head."""
    half: tl.constexpr = form.width // 2
    d = tl.arange(0, half)[None, :]
    a = tl.load(at + d, mask=valid, other=0.0).to(tl.float32)
    b = tl.load(at + half + d, mask=valid, other=0.0).to(tl.float32)
    return (a * cos - b * sin).to(at.dtype.element_ty), (b * cos + a * sin).to(at.dtype.element_ty)


@triton.jit
def _attended(q, k, v, seen, form: tl.constexpr):
    qa, qb = q
    ka, kb = k
    scale: tl.constexpr = form.width**-0.5
    score = tl.dot(qa, tl.trans(ka), input_precision=form.precision)
    score = tl.dot(qb, tl.trans(kb), score, input_precision=form.precision) * scale
    score = tl.where(seen, score, -1e30)
    share = tl.exp(score - tl.max(score, 1)[:, None])
    y = tl.dot(share.to(v.dtype), v, input_precision=form.precision)
    return y / tl.sum(share, 1)[:, None]


@triton.jit(do_not_specialize=["rows", "frames", "layer"])
def _attend(at, step, live, rows, frames, layer, form: tl.constexpr):
    if form.early:
        gdc_wait()
    row, head = tl.program_id(0), tl.program_id(1)
    t_count, m_count = positions_of(live, rows, frames, 1, form.live)
    if form.live:  # noqa: SIM102  (a constant, then a number of the device)
        if row * t_count >= m_count:
            return
    mixed, out, turns, cache, state = at
    keys, values = cache  # by place: a tuple of the compiler has values of its own
    half: tl.constexpr = form.width // 2
    inner: tl.constexpr = form.heads * form.width
    kind: tl.constexpr = out.dtype.element_ty
    slot = tl.load(state.slots + row).to(tl.int64)
    start = tl.load(state.positions + slot)
    length = tl.load(state.lengths + row)
    t, j = tl.arange(0, form.most), tl.arange(0, form.places)
    d, e = tl.arange(0, half)[None, :], tl.arange(0, form.width)[None, :]
    valid = (t < t_count)[:, None]
    new_at = mixed + row * step.mixed + t[:, None] * (3 * inner) + head * form.width
    turn = (start + t)[:, None] * half + d
    cos = tl.load(turns.cosines + turn, mask=valid, other=0.0)
    sin = tl.load(turns.sines + turn, mask=valid, other=0.0)
    q = _turned(new_at, cos, sin, valid, form)
    ka, kb = _turned(new_at + inner, cos, sin, valid, form)
    v = tl.load(new_at + 2 * inner + e, mask=valid, other=0.0)
    # The position that lies at place j once this chunk is written. The ring is added twice, as j may pass its end.
    last = start + length - 1
    lies = last - (last - j + 2 * form.ring) % form.ring
    inside = (j < form.ring) & (lies >= 0)
    base = layer.to(tl.int64) * step.layer + slot * step.slot + head * (form.ring * form.width)
    place = base + (j * form.width)[:, None]
    old = (inside & (lies < start))[:, None]
    new = (inside[:, None] & ((lies - start)[:, None] == t[None, :])).to(kind)
    # At each place one of both is zero, so the sums are exact.
    oa = tl.load(keys + place + d, mask=old, other=0.0) + tl.dot(new, ka, input_precision="ieee").to(kind)
    ob = tl.load(keys + place + half + d, mask=old, other=0.0) + tl.dot(new, kb, input_precision="ieee").to(kind)
    ov = tl.load(values + place + e, mask=old, other=0.0) + tl.dot(new, v, input_precision="ieee").to(kind)
    gap = (start + t)[:, None] - lies[None, :]
    y = _attended(q, (oa, ob), ov, inside[None, :] & (gap >= 0) & (gap < form.window), form)
    if form.early:
        gdc_launch_dependents()
    tl.store(out + row * step.out + t[:, None] * inner + head * form.width + e, y.to(kind), mask=valid)
    to = base + (((start + t) % form.ring) * form.width)[:, None]
    write = valid & (t < length)[:, None]
    tl.store(keys + to + d, ka, mask=write)
    tl.store(keys + to + half + d, kb, mask=write)
    tl.store(values + to + e, v, mask=write)


def attend_window(
    mixed: View, turns: Turns, cache: Cache, rows: RowState, out: View, extent: Extent, *, layer: int, window: int
) -> None:
    """`mixed`: of each position queries, keys, values of all heads."""
    _, _, heads, ring, width = cache.keys.shape
    precision = "ieee" if out.data.dtype == torch.float32 else "tf32"
    live, count_rows, count_frames, _ = extent.arguments(rows.slots)
    places = triton.next_power_of_2(ring)
    most = max(LEAST_TILE, triton.next_power_of_2(extent.frames))
    _attend[(extent.rows, heads)](
        (mixed.data, out.data, turns, cache, rows),
        _Steps(mixed.row, out.row, cache.keys.stride(0), cache.keys.stride(1)),
        live,
        count_rows,
        count_frames,
        layer,
        _Form(heads, width, ring, window, most, places, precision, extent.live is not None, extent.early),
        num_warps=WARPS,
        launch_pdl=extent.early,
    )


def reference(mixed_btc: Tensor, turns: Turns, kept: Cache, position: int, window: int) -> tuple[Tensor, Cache]:
    """One row at `position`: [T, 3 * heads * head]; `kept`: [heads, position, head] each, all that came before."""
    heads, _, width = kept.keys.shape
    count = mixed_btc.shape[0]
    q, k, v = mixed_btc.float().view(count, 3, heads, width).permute(1, 2, 0, 3)
    cos, sin = (turn[position : position + count] for turn in turns)

    def turned(y: Tensor) -> Tensor:
        a, b = y.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    k, v = torch.cat([kept.keys, turned(k)], 1), torch.cat([kept.values, v], 1)
    gap = torch.arange(position, position + count)[:, None] - torch.arange(position + count)
    seen = ((gap >= 0) & (gap < window)).to(k.device)
    y = torch.nn.functional.scaled_dot_product_attention(turned(q), k, v, seen)
    return y.transpose(0, 1).reshape(count, -1), Cache(k, v)
