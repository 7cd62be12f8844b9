# ruff: noqa: N803, N806, SIM102, PLR0915  (Triton: constants are capitals)
# pyright: reportMissingImports=false, reportIndexIssue=false
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

from omnirt.kernels.tap_conv import Extent, View, count

TOLERANCE = 2e-2
FLOAT32_TOLERANCE = 2e-6
LEAST_TILE = 16


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


@triton.jit(do_not_specialize=["rows", "frames", "each", "layer"])
def _attend(
    mixed, cosines, sines, keys, values, slots, positions, lengths, out, live, rows, frames, each, mixed_row, out_row,
    layer_step, slot_step, layer, H: tl.constexpr, D: tl.constexpr, RING: tl.constexpr, WINDOW: tl.constexpr, TP: tl.constexpr,
    PLACES: tl.constexpr, PRECISION: tl.constexpr, LIVE: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    if EARLY:
        gdc_wait()
    row, head = tl.program_id(0), tl.program_id(1)
    t_count, m_count = count(live, rows, frames, each, LIVE)
    if LIVE:
        if row * t_count >= m_count:
            return
    HALF: tl.constexpr = D // 2
    kind: tl.constexpr = out.dtype.element_ty
    slot = tl.load(slots + row).to(tl.int64)
    start = tl.load(positions + slot)
    length = tl.load(lengths + row)
    t, d, e, j = tl.arange(0, TP), tl.arange(0, HALF), tl.arange(0, D), tl.arange(0, PLACES)
    valid = (t < t_count)[:, None]
    at = mixed + row * mixed_row + t[:, None] * (3 * H * D) + head * D
    turn = (start + t)[:, None] * HALF + d[None, :]
    cos, sin = tl.load(cosines + turn, mask=valid, other=0.0), tl.load(sines + turn, mask=valid, other=0.0)
    q1 = tl.load(at + d[None, :], mask=valid, other=0.0).to(tl.float32)
    q2 = tl.load(at + HALF + d[None, :], mask=valid, other=0.0).to(tl.float32)
    k1 = tl.load(at + H * D + d[None, :], mask=valid, other=0.0).to(tl.float32)
    k2 = tl.load(at + H * D + HALF + d[None, :], mask=valid, other=0.0).to(tl.float32)
    v = tl.load(at + 2 * H * D + e[None, :], mask=valid, other=0.0)
    qa, qb = (q1 * cos - q2 * sin).to(kind), (q2 * cos + q1 * sin).to(kind)
    ka, kb = (k1 * cos - k2 * sin).to(kind), (k2 * cos + k1 * sin).to(kind)
    # The position that lies at place j once this chunk is written. The ring is added twice, as j may pass its end.
    last = start + length - 1
    lies = last - (last - j + 2 * RING) % RING
    inside = (j < RING) & (lies >= 0)
    base = layer.to(tl.int64) * layer_step + slot * slot_step + head * (RING * D)
    place = base + (j * D)[:, None]
    old = (inside & (lies < start))[:, None]
    new = (inside[:, None] & ((lies - start)[:, None] == t[None, :])).to(kind)
    oa = tl.load(keys + place + d[None, :], mask=old, other=0.0)
    ob = tl.load(keys + place + HALF + d[None, :], mask=old, other=0.0)
    ov = tl.load(values + place + e[None, :], mask=old, other=0.0)
    oa += tl.dot(new, ka, input_precision="ieee").to(kind)
    ob += tl.dot(new, kb, input_precision="ieee").to(kind)
    ov += tl.dot(new, v, input_precision="ieee").to(kind)
    scale: tl.constexpr = D**-0.5
    score = tl.dot(qa, tl.trans(oa), input_precision=PRECISION)
    score = tl.dot(qb, tl.trans(ob), score, input_precision=PRECISION) * scale
    gap = (start + t)[:, None] - lies[None, :]
    score = tl.where(inside[None, :] & (gap >= 0) & (gap < WINDOW), score, -1e30)
    share = tl.exp(score - tl.max(score, 1)[:, None])
    y = tl.dot(share.to(kind), ov, input_precision=PRECISION)
    if EARLY:
        gdc_launch_dependents()
    y = y / tl.sum(share, 1)[:, None]
    tl.store(out + row * out_row + t[:, None] * (H * D) + head * D + e[None, :], y.to(kind), mask=valid)
    to = base + (((start + t) % RING) * D)[:, None]
    write = valid & (t < length)[:, None]
    tl.store(keys + to + d[None, :], ka, mask=write)
    tl.store(keys + to + HALF + d[None, :], kb, mask=write)
    tl.store(values + to + e[None, :], v, mask=write)


def attend_window(
    mixed: View, turns: Turns, cache: Cache, rows: RowState, out: View, extent: Extent, *, layer: int, window: int
) -> None:
    """`mixed`: of each position queries, keys, values of all heads."""
    _, _, heads, ring, width = cache.keys.shape
    _attend[(extent.rows, heads)](
        mixed.data, *turns, *cache, *rows, out.data, *extent.arguments(rows.slots), mixed.row, out.row,
        cache.keys.stride(0), cache.keys.stride(1), layer, H=heads, D=width, RING=ring, WINDOW=window, TP=max(LEAST_TILE, triton.next_power_of_2(extent.frames)),
        PLACES=triton.next_power_of_2(ring), PRECISION="ieee" if out.data.dtype == torch.float32 else "tf32",
        LIVE=extent.live is not None, EARLY=extent.early, num_warps=4, launch_pdl=extent.early,
    )  # fmt: skip


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
