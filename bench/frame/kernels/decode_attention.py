"""One new position of every row: norms of queries and keys, rotary turn, the cache's new entry, attention over the cache.

    attend(mixed, q_norm, k_norm, cosines, sines, keys, values, positions, out, room)

A block has one row, one key/value head and one part of the positions; the last part to finish merges them. Lengths are
read on the device, so a graph that captured this serves every length.
Tolerance against `reference` in float32: 1e-2 relative (Frobenius; queries and weights are bfloat16).
Letters: c row, h key/value head, l position, d head width (128), two query heads for each h.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as nn
import triton
import triton.language as tl
from torch import Tensor


D = 128


@dataclass
class Room:
    """Space for the parts, for up to `rows` rows; kept between calls (counts return to zero)."""

    parts: int
    mixed: Tensor
    weights: Tensor
    counts: Tensor

    @staticmethod
    def make(rows: int, heads: int, parts: int, device: torch.device | str) -> Room:
        size = rows * heads * parts
        return Room(parts, torch.empty(size * 2 * D, device=device), torch.empty(size * 4, device=device),
                    torch.zeros(rows * heads, device=device, dtype=torch.int32))


def reference(mixed: Tensor, q_norm: Tensor, k_norm: Tensor, cosines: Tensor, sines: Tensor, keys: Tensor,
              values: Tensor, positions: Tensor) -> Tensor:
    """Writes the caches at `positions` and returns [c, 2 * h * d], in float32."""
    rows, heads = keys.shape[:2]
    q, k, v = mixed.float().view(rows, -1, D).split([2 * heads, heads, heads], 1)
    cosine, sine = cosines[positions][:, None], sines[positions][:, None]

    def turn(x: Tensor) -> Tensor:
        a, b = x.chunk(2, -1)
        return torch.cat([a * cosine - b * sine, b * cosine + a * sine], -1)

    q, k = (turn(nn.rms_norm(x, (D,), w.float(), 1e-6)) for x, w in ((q, q_norm), (k, k_norm)))
    index = torch.arange(rows, device=keys.device)
    keys[index, :, positions], values[index, :, positions] = k.to(keys.dtype), v.to(values.dtype)
    seen = (torch.arange(keys.shape[2], device=keys.device)[None] <= positions[:, None])[:, None, None]
    out = nn.scaled_dot_product_attention(q[:, :, None], keys.float(), values.float(), attn_mask=seen, enable_gqa=True)
    return out.reshape(rows, -1)


@triton.jit
def _turned(at, norm, cosine, sine, by):
    d = tl.arange(0, 64)
    a, b = tl.load(at + d).to(tl.float32) * by, tl.load(at + 64 + d).to(tl.float32) * by
    scale = tl.rsqrt((tl.sum(a * a, 0) + tl.sum(b * b, 0)) / 128 + 1e-6)
    a, b = a * scale * tl.load(norm + d).to(tl.float32), b * scale * tl.load(norm + 64 + d).to(tl.float32)
    return a * cosine - b * sine, b * cosine + a * sine


@triton.jit(do_not_specialize=["FIXED"])
def _attend(mixed, q_norm, k_norm, cosines, sines, keys, values, positions, out, part_mixed, part_weights, counts,
            x, LENGTH, FIXED, H: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr, STAGES: tl.constexpr):
    c, h, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    d, two = tl.arange(0, 64), tl.arange(0, 16)          # two real query rows, padded to the tensor core's least
    base = (c * H + h).to(tl.int64) * LENGTH * 128
    n = FIXED
    if FIXED < 0:
        n = tl.load(positions + c).to(tl.int32)
    cosine, sine = tl.load(cosines + n * 64 + d), tl.load(sines + n * 64 + d)
    row = mixed + c * (4 * H * 128)
    by = 1.0
    if WIDTH > 0:                                        # `mixed` comes from rows that were not normed
        whole = tl.load(x + c * WIDTH + tl.arange(0, WIDTH)).to(tl.float32)
        by = tl.rsqrt(tl.sum(whole * whole, 0) / WIDTH + 1e-6)
    q0a, q0b = _turned(row + 2 * h * 128, q_norm, cosine, sine, by)
    q1a, q1b = _turned(row + (2 * h + 1) * 128, q_norm, cosine, sine, by)
    root = 0.08838834764831845
    qa = tl.where((two == 0)[:, None], q0a[None, :], tl.where((two == 1)[:, None], q1a[None, :], 0.0)) * root
    qb = tl.where((two == 0)[:, None], q0b[None, :], tl.where((two == 1)[:, None], q1b[None, :], 0.0)) * root
    most, all_ = tl.full((16,), -1e30, tl.float32), tl.zeros((16,), tl.float32)
    ya, yb = tl.zeros((16, 64), tl.float32), tl.zeros((16, 64), tl.float32)
    if part == 0:
        ka, kb = _turned(row + (2 * H + h) * 128, k_norm, cosine, sine, by)
        va, vb = tl.load(row + (3 * H + h) * 128 + d), tl.load(row + (3 * H + h) * 128 + 64 + d)
        va, vb = (va.to(tl.float32) * by).to(tl.bfloat16), (vb.to(tl.float32) * by).to(tl.bfloat16)
        k_at, v_at = keys + base + n * 128 + d, values + base + n * 128 + d
        tl.store(k_at, ka.to(tl.bfloat16))
        tl.store(k_at + 64, kb.to(tl.bfloat16))
        tl.store(v_at, va)
        tl.store(v_at + 64, vb)
        most = tl.sum(qa * ka[None, :] + qb * kb[None, :], 1)
        all_ += 1.0
        ya += va.to(tl.float32)[None, :]
        yb += vb.to(tl.float32)[None, :]
    qa, qb = qa.to(tl.bfloat16), qb.to(tl.bfloat16)
    share = tl.cdiv(n, PARTS)
    first, last = part * share, tl.minimum(part * share + share, n)
    for j in tl.range(first, last, BLOCK, num_stages=STAGES):
        l = j + tl.arange(0, BLOCK)
        there = (l < last)[:, None]
        k_at, v_at = keys + base + l[:, None] * 128 + d[None, :], values + base + l[:, None] * 128 + d[None, :]
        ka, kb = tl.load(k_at, there, 0.0), tl.load(k_at + 64, there, 0.0)
        va, vb = tl.load(v_at, there, 0.0), tl.load(v_at + 64, there, 0.0)
        score = tl.where((l < last)[None, :], tl.dot(qb, kb.T, tl.dot(qa, ka.T)), -1e30)
        new = tl.maximum(most, tl.max(score, 1))
        p, old = tl.exp(score - new[:, None]), tl.exp(most - new)
        all_ = all_ * old + tl.sum(p, 1)
        ya = tl.dot(p.to(tl.bfloat16), va, ya * old[:, None])
        yb = tl.dot(p.to(tl.bfloat16), vb, yb * old[:, None])
        most = new
    real = (two < 2)[:, None]
    if PARTS == 1:
        at = out + (c * 2 * H + 2 * h + two)[:, None] * 128 + d[None, :]
        tl.store(at, (ya / all_[:, None]).to(tl.bfloat16), real)
        tl.store(at + 64, (yb / all_[:, None]).to(tl.bfloat16), real)
    else:
        mine = (c * H + h) * PARTS + part
        at = part_mixed + mine * 256 + two[:, None] * 128 + d[None, :]
        tl.store(at, ya, real)
        tl.store(at + 64, yb, real)
        tl.store(part_weights + mine * 4 + 2 * two, most, two < 2)
        tl.store(part_weights + mine * 4 + 2 * two + 1, all_, two < 2)
        tl.debug_barrier()
        if tl.atomic_add(counts + c * H + h, 1) == PARTS - 1:
            first_part, p, dd = (c * H + h) * PARTS, tl.arange(0, PARTS), tl.arange(0, 128)
            for head in tl.static_range(2):
                m = tl.load(part_weights + (first_part + p) * 4 + 2 * head, cache_modifier=".cg")
                s = tl.load(part_weights + (first_part + p) * 4 + 2 * head + 1, cache_modifier=".cg")
                y = tl.load(part_mixed + (first_part + p)[:, None] * 256 + head * 128 + dd[None, :], cache_modifier=".cg")
                w = tl.exp(m - tl.max(m, 0))
                tl.store(out + (c * 2 * H + 2 * h + head) * 128 + dd,
                         (tl.sum(y * w[:, None], 0) / tl.sum(w * s, 0)).to(tl.bfloat16))
            tl.store(counts + c * H + h, 0)


def attend(mixed: Tensor, q_norm: Tensor, k_norm: Tensor, cosines: Tensor, sines: Tensor, keys: Tensor, values: Tensor,
           positions: Tensor, out: Tensor, room: Room, fixed: int = -1, x: Tensor | None = None, block: int = 0,
           warps: int = 4, stages: int = 3) -> None:
    """keys, values [c, h, l, d]; mixed [c, 4 * h * d]; `fixed` is a position known when the graph is captured.
    With `x` [c, w] `mixed` is a product of x before its norm (weights of the norm in the matrix): its scale is applied here."""
    rows, heads, length = keys.shape[:3]
    block = block or (32 if length < 64 or room.parts > 1 else 64)
    _attend[(rows, heads, room.parts)](mixed, q_norm, k_norm, cosines, sines, keys, values, positions, out, room.mixed,
                                       room.weights, room.counts, out if x is None else x, length, fixed, heads,
                                       room.parts, block, 0 if x is None else x.shape[1], stages, num_warps=warps)
