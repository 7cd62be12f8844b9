"""Attention of a chunk's new positions over themselves and a sliding window of kept keys and values.

    attend_window(mixed, cosines, sines, keys, values, slots, positions, lengths, out, window)

Keys and values lie in a ring of `ring` places for each slot, at least window + chunk - 1, so what a chunk writes is never what it
still reads. One program for each row and head: turns queries and keys, reads the old keys, then writes the new ones.
Letters: t new position, o old key, d half of a head.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit(do_not_specialize=["t_count", "layer"])
def _attend(mixed, cosines, sines, keys, values, slots, positions, lengths, out, t_count, layer_step, slot_step, layer,
            H: tl.constexpr, D: tl.constexpr, RING: tl.constexpr, WINDOW: tl.constexpr, TP: tl.constexpr, OLD: tl.constexpr,
            PRECISION: tl.constexpr, EARLY: tl.constexpr):
    if EARLY:
        gdc_wait()
    row, head = tl.program_id(0), tl.program_id(1)
    HALF: tl.constexpr = D // 2
    kind: tl.constexpr = out.dtype.element_ty
    slot = tl.load(slots + row).to(tl.int64)
    start = tl.load(positions + slot)
    length = tl.load(lengths + row)
    t, d, e, o = tl.arange(0, TP), tl.arange(0, HALF), tl.arange(0, D), tl.arange(0, OLD)
    valid = (t < t_count)[:, None]
    at = mixed + (row * t_count + t)[:, None] * (3 * H * D) + head * D
    turn = (start + t)[:, None] * HALF + d[None, :]
    cos, sin = tl.load(cosines + turn, mask=valid, other=0.0), tl.load(sines + turn, mask=valid, other=0.0)
    q1 = tl.load(at + d[None, :], mask=valid, other=0.0).to(tl.float32)
    q2 = tl.load(at + HALF + d[None, :], mask=valid, other=0.0).to(tl.float32)
    k1 = tl.load(at + H * D + d[None, :], mask=valid, other=0.0).to(tl.float32)
    k2 = tl.load(at + H * D + HALF + d[None, :], mask=valid, other=0.0).to(tl.float32)
    v = tl.load(at + 2 * H * D + e[None, :], mask=valid, other=0.0)
    qa, qb = (q1 * cos - q2 * sin).to(kind), (q2 * cos + q1 * sin).to(kind)
    ka, kb = (k1 * cos - k2 * sin).to(kind), (k2 * cos + k1 * sin).to(kind)
    old = start - (WINDOW - 1) + o
    base = layer.to(tl.int64) * layer_step + slot * slot_step + head * (RING * D)
    place = base + (((old + RING) % RING) * D)[:, None]
    have = ((old >= 0) & (old < start))[:, None]
    oa = tl.load(keys + place + d[None, :], mask=have, other=0.0)
    ob = tl.load(keys + place + HALF + d[None, :], mask=have, other=0.0)
    ov = tl.load(values + place + e[None, :], mask=have, other=0.0)
    scale: tl.constexpr = D ** -0.5
    before = (tl.dot(qa, tl.trans(oa), input_precision=PRECISION) + tl.dot(qb, tl.trans(ob), input_precision=PRECISION)) * scale
    seen = (old >= 0)[None, :] & (old < start)[None, :] & ((start + t)[:, None] - old[None, :] < WINDOW)
    before = tl.where(seen, before, -1e30)
    now = (tl.dot(qa, tl.trans(ka), input_precision=PRECISION) + tl.dot(qb, tl.trans(kb), input_precision=PRECISION)) * scale
    gap = t[:, None] - t[None, :]
    now = tl.where((gap >= 0) & (gap < WINDOW), now, -1e30)
    top = tl.maximum(tl.max(before, 1), tl.max(now, 1))[:, None]
    before, now = tl.exp(before - top), tl.exp(now - top)
    total = tl.sum(before, 1) + tl.sum(now, 1)
    y = tl.dot(before.to(kind), ov, input_precision=PRECISION) + tl.dot(now.to(kind), v, input_precision=PRECISION)
    if EARLY:
        gdc_launch_dependents()
    y = y / total[:, None]
    tl.store(out + (row * t_count + t)[:, None] * (H * D) + head * D + e[None, :], y.to(kind), mask=valid)
    new = base + (((start + t) % RING) * D)[:, None]
    write = (t < t_count)[:, None] & (t < length)[:, None]
    tl.store(keys + new + d[None, :], ka, mask=write)
    tl.store(keys + new + HALF + d[None, :], kb, mask=write)
    tl.store(values + new + e[None, :], v, mask=write)


def attend_window(mixed: Tensor, cosines: Tensor, sines: Tensor, keys: Tensor, values: Tensor, layer: int, slots: Tensor,
                  positions: Tensor, lengths: Tensor, out: Tensor, rows: int, t_count: int, window: int, early: bool = False) -> None:
    """`keys`, `values`: [layers, slots, heads, ring, head width]; `mixed`: [rows * t, 3 * heads * width]."""
    _, _, heads, ring, width = keys.shape
    _attend[(rows, heads)](mixed, cosines, sines, keys, values, slots, positions, lengths, out, t_count, keys.stride(0), keys.stride(1),
                           layer, heads, width, ring, window, max(16, triton.next_power_of_2(t_count)),
                           triton.next_power_of_2(window), "ieee" if out.dtype == torch.float32 else "tf32", early,
                           num_warps=4, launch_pdl=early)
