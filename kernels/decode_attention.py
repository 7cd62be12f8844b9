# pyright: basic, reportMissingImports=false, reportIndexIssue=false
"""One new position of every row: norms of queries and keys, rotary turn, the cache's new entry, attention.

    attend(rows, turns, pages, room)       # rows.owners None: row c of a batch, its own page table, one kernel
    place(rows, turns, pages)              # rows.owners given: each entry is a position of row owners[c]; keys and
    attend(rows, turns, pages, room)       # values of all entries first, then attention, so that entries see each other

The cache is in pages of PAGE positions; a block of positions lies in one page, so a block is one lookup. A program has
one entry, one key/value head and one part of the positions; the last part to finish merges them. Lengths are read on
the device, so a graph that captured this serves every length. A row that is not active attends to nothing and leaves
the cache as it is.

Tolerance against `reference` in float32: 1e-2 relative (Frobenius; queries and weights are bfloat16).
Letters: c entry, h key/value head, l position, p page, d head width (128), two query heads for each h.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as nn
import triton
import triton.language as tl
from torch import Tensor

from omnirt.kernels.frame_layout import PAGE
from omnirt.kernels.row_norm import row_scale

D = 128
assert PAGE == 64  # a number in the kernels, where names would have to be of their own kind


class Entries(NamedTuple):
    """mixed [c, 4 * h * d]: queries, keys, values; out [c, 2 * h * d]; positions [c] int64. Either active [c] int32 or
    owners [c] int32 is there. With x [c, width], `mixed` is a product of x as it was before its norm (whose weights are
    in the matrix): what the norm multiplies a row by is applied here."""

    mixed: Tensor
    out: Tensor
    positions: Tensor
    active: Tensor | None = None
    owners: Tensor | None = None
    x: Tensor | None = None


class Turns(NamedTuple):
    """q_norm, k_norm [d]; rotary [positions, 2, d / 2] float32: cosines, sines."""

    q_norm: Tensor
    k_norm: Tensor
    rotary: Tensor


class Pages(NamedTuple):
    """Of one layer: keys and values [p, h, PAGE, d]; tables [rows, row_pages] int32."""

    k: Tensor
    v: Tensor
    tables: Tensor
    row_pages: int


class _Parts(NamedTuple):
    mixed: Tensor
    weights: Tensor
    counts: Tensor


@dataclass
class Room:
    """Space for the parts, for up to `rows` entries; kept between calls (counts return to zero)."""

    parts: int
    tensors: _Parts

    @staticmethod
    def make(rows: int, heads: int, parts: int, device: torch.device | str) -> Room:
        size = rows * heads * parts if parts > 1 else 0
        mixed, weights = torch.empty(size * 2 * D, device=device), torch.empty(size * 4, device=device)
        counts = torch.zeros(rows * heads if parts > 1 else 0, device=device, dtype=torch.int32)
        return Room(parts, _Parts(mixed, weights, counts))


def _turned_reference(x: Tensor, norm: Tensor, rotary_c2d: Tensor) -> Tensor:
    cosine, sine = rotary_c2d[:, None, 0], rotary_c2d[:, None, 1]
    a, b = nn.rms_norm(x, (D,), norm.float(), 1e-6).chunk(2, -1)
    return torch.cat([a * cosine - b * sine, b * cosine + a * sine], -1)


def reference(entries: Entries, turns: Turns, pages: Pages) -> Tensor:
    """Writes the cache and returns [c, 2 * h * d] in float32; of a row that is not active, its own value."""
    count, heads = entries.mixed.shape[0], pages.k.shape[1]
    owners = torch.arange(count) if entries.owners is None else entries.owners.long()
    active = torch.ones(count, dtype=torch.bool) if entries.active is None else entries.active != 0
    at = entries.positions
    mixed = entries.mixed.float()
    if entries.x is not None:
        mixed = mixed * (entries.x.float().square().mean(1, keepdim=True) + 1e-6).rsqrt()
    q, k, v = mixed.view(count, -1, D).split([2 * heads, heads, heads], 1)
    q, k = _turned_reference(q, turns.q_norm, turns.rotary[at]), _turned_reference(k, turns.k_norm, turns.rotary[at])
    spots = pages.tables[owners.to(at.device), at // PAGE].long()
    for c in torch.nonzero(active).flatten().tolist():
        pages.k[spots[c], :, at[c] % PAGE] = k[c].to(pages.k.dtype)
        pages.v[spots[c], :, at[c] % PAGE] = v[c].to(pages.v.dtype)
    rows = []
    for c in range(count):
        table = pages.tables[int(owners[c])].long()
        keys, values = (x[table].transpose(0, 1).flatten(1, 2)[:, : int(at[c]) + 1].float() for x in pages[:2])
        if not active[c]:
            keys, values = k[c, :, None], v[c, :, None]
        mixed = nn.scaled_dot_product_attention(q[c, None, :, None], keys[None], values[None], enable_gqa=True)
        rows.append(mixed.flatten())
    return torch.stack(rows)


@triton.jit
def _scale(rows, width: tl.constexpr):
    """Of this program's entry; `width` 0: one."""
    scale = 1.0
    if width > 0:
        scale = row_scale(rows.x, tl.program_id(0), width)
    return scale


@triton.jit
def _turned(at, norm, cosine, sine, by):
    d = tl.arange(0, 64)
    a, b = tl.load(at + d).to(tl.float32) * by, tl.load(at + 64 + d).to(tl.float32) * by
    scale = tl.rsqrt((tl.sum(a * a, 0) + tl.sum(b * b, 0)) / 128 + 1e-6)
    a, b = a * scale * tl.load(norm + d).to(tl.float32), b * scale * tl.load(norm + 64 + d).to(tl.float32)
    return a * cosine - b * sine, b * cosine + a * sine


@triton.jit
def _position(rows, pages):
    """Of this program's entry. A row that is over may stand behind its last page: there, its last place."""
    return tl.minimum(tl.load(rows.positions + tl.program_id(0)).to(tl.int32), pages.row_pages * 64 - 1)


@triton.jit
def _spot(table, pages, position, h, heads: tl.constexpr):
    """Where a position of head h lies, in numbers."""
    page = tl.load(table + position // 64).to(tl.int64)
    return ((page * heads + h) * 64 + position % 64) * 128


@triton.jit
def _place(rows, turns, pages, heads: tl.constexpr, width: tl.constexpr):
    c, h, d = tl.program_id(0), tl.program_id(1), tl.arange(0, 64)
    n = _position(rows, pages)
    cosine, sine = tl.load(turns.rotary + n * 128 + d), tl.load(turns.rotary + n * 128 + 64 + d)
    row, by = rows.mixed + c * (4 * heads * 128), _scale(rows, width)
    for i in tl.static_range(2):
        q = row + (2 * h + i) * 128
        a, b = _turned(q, turns.q_norm, cosine, sine, by)
        tl.store(q + d, a.to(rows.mixed.dtype.element_ty))
        tl.store(q + 64 + d, b.to(rows.mixed.dtype.element_ty))
    a, b = _turned(row + (2 * heads + h) * 128, turns.k_norm, cosine, sine, by)
    v = row + (3 * heads + h) * 128
    at = _spot(pages.tables + tl.load(rows.owners + c) * pages.row_pages, pages, n, h, heads)
    tl.store(pages.k + at + d, a.to(rows.mixed.dtype.element_ty))
    tl.store(pages.k + at + 64 + d, b.to(rows.mixed.dtype.element_ty))
    tl.store(pages.v + at + d, (tl.load(v + d).to(tl.float32) * by).to(rows.mixed.dtype.element_ty))
    tl.store(pages.v + at + 64 + d, (tl.load(v + 64 + d).to(tl.float32) * by).to(rows.mixed.dtype.element_ty))


@triton.jit
def _merge(rows, room, c, h, heads: tl.constexpr, parts: tl.constexpr):
    first, p, d = (c * heads + h) * parts, tl.arange(0, parts), tl.arange(0, 128)
    for head in tl.static_range(2):
        m = tl.load(room.weights + (first + p) * 4 + 2 * head, cache_modifier=".cg")
        s = tl.load(room.weights + (first + p) * 4 + 2 * head + 1, cache_modifier=".cg")
        y = tl.load(room.mixed + (first + p)[:, None] * 256 + head * 128 + d[None, :], cache_modifier=".cg")
        w = tl.exp(m - tl.max(m, 0))
        total = tl.sum(y * w[:, None], 0) / tl.sum(w * s, 0)
        tl.store(rows.out + (c * 2 * heads + 2 * h + head) * 128 + d, total.to(rows.mixed.dtype.element_ty))


@triton.jit
def _own(rows, turns, pages, table, active, heads: tl.constexpr, width: tl.constexpr):
    """The new position itself: its queries, [16, 64] twice; what attention to itself gives; its place in the cache."""
    c, h, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    d, two = tl.arange(0, 64), tl.arange(0, 16)
    n = _position(rows, pages)
    row, by = rows.mixed + c * (4 * heads * 128), _scale(rows, width)
    most, all_ = tl.full((16,), -1e30, tl.float32), tl.zeros((16,), tl.float32)
    ya, yb = tl.zeros((16, 64), tl.float32), tl.zeros((16, 64), tl.float32)
    cosine, sine = tl.load(turns.rotary + n * 128 + d), tl.load(turns.rotary + n * 128 + 64 + d)
    q0a, q0b = _turned(row + 2 * h * 128, turns.q_norm, cosine, sine, by)
    q1a, q1b = _turned(row + (2 * h + 1) * 128, turns.q_norm, cosine, sine, by)
    qa = tl.where((two == 0)[:, None], q0a[None, :], q1a[None, :]) * 0.08838834764831845
    qb = tl.where((two == 0)[:, None], q0b[None, :], q1b[None, :]) * 0.08838834764831845
    if part == 0:
        ka, kb = _turned(row + (2 * heads + h) * 128, turns.k_norm, cosine, sine, by)
        v = row + (3 * heads + h) * 128 + d
        va = (tl.load(v).to(tl.float32) * by).to(rows.mixed.dtype.element_ty)
        vb = (tl.load(v + 64).to(tl.float32) * by).to(rows.mixed.dtype.element_ty)
        at, writes = _spot(table, pages, n, h, heads) + d, active & (d < 64)
        tl.store(pages.k + at, ka.to(rows.mixed.dtype.element_ty), writes)
        tl.store(pages.k + at + 64, kb.to(rows.mixed.dtype.element_ty), writes)
        tl.store(pages.v + at, va, writes)
        tl.store(pages.v + at + 64, vb, writes)
        most = tl.sum(qa * ka[None, :] + qb * kb[None, :], 1)
        all_ += 1.0
        ya += va.to(tl.float32)[None, :]
        yb += vb.to(tl.float32)[None, :]
    return qa.to(rows.mixed.dtype.element_ty), qb.to(rows.mixed.dtype.element_ty), most, all_, ya, yb


@triton.jit
def _attend(
    rows, turns, pages, room, heads: tl.constexpr, parts: tl.constexpr, block: tl.constexpr, width: tl.constexpr
):
    c, h, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    d, two = tl.arange(0, 64), tl.arange(0, 16)  # two query rows, padded to the tensor core's least
    past = _position(rows, pages)
    if rows.owners is not None:
        table = pages.tables + tl.load(rows.owners + c) * pages.row_pages
        q = rows.mixed + (c * 4 * heads + 2 * h + tl.minimum(two, 1))[:, None] * 128 + d[None, :]
        qa = (tl.load(q).to(tl.float32) * 0.08838834764831845).to(rows.mixed.dtype.element_ty)
        qb = (tl.load(q + 64).to(tl.float32) * 0.08838834764831845).to(rows.mixed.dtype.element_ty)
        most, all_ = tl.full((16,), -1e30, tl.float32), tl.zeros((16,), tl.float32)
        ya, yb = tl.zeros((16, 64), tl.float32), tl.zeros((16, 64), tl.float32)
        past += 1
    else:
        table = pages.tables + c * pages.row_pages
        active = tl.load(rows.active + c) != 0
        qa, qb, most, all_, ya, yb = _own(rows, turns, pages, table, active, heads, width)
        past = tl.where(active, past, 0)
    share = tl.cdiv(tl.cdiv(past, parts), block) * block
    first, last = part * share, tl.minimum(part * share + share, past)
    for j in range(first, last, block):
        near = tl.arange(0, block)
        at = _spot(table, pages, j, h, heads) + near[:, None] * 128 + d[None, :]
        there = (j + near < last)[:, None]
        ka, kb = tl.load(pages.k + at, there, 0.0), tl.load(pages.k + at + 64, there, 0.0)
        va, vb = tl.load(pages.v + at, there, 0.0), tl.load(pages.v + at + 64, there, 0.0)
        score = tl.where((j + near < last)[None, :], tl.dot(qb, kb.T, tl.dot(qa, ka.T)), -1e30)
        new = tl.maximum(most, tl.max(score, 1))
        p, old = tl.exp(score - new[:, None]), tl.exp(most - new)
        all_ = all_ * old + tl.sum(p, 1)
        ya = tl.dot(p.to(rows.mixed.dtype.element_ty), va, ya * old[:, None])
        yb = tl.dot(p.to(rows.mixed.dtype.element_ty), vb, yb * old[:, None])
        most = new
    real = (two < 2)[:, None]
    if parts == 1:
        at = rows.out + (c * 2 * heads + 2 * h + two)[:, None] * 128 + d[None, :]
        tl.store(at, (ya / all_[:, None]).to(rows.mixed.dtype.element_ty), real)
        tl.store(at + 64, (yb / all_[:, None]).to(rows.mixed.dtype.element_ty), real)
    else:
        mine = (c * heads + h) * parts + part
        at = room.mixed + mine * 256 + two[:, None] * 128 + d[None, :]
        tl.store(at, ya, real)
        tl.store(at + 64, yb, real)
        tl.store(room.weights + mine * 4 + 2 * two, most, two < 2)
        tl.store(room.weights + mine * 4 + 2 * two + 1, all_, two < 2)
        tl.debug_barrier()
        if tl.atomic_add(room.counts + c * heads + h, 1) == parts - 1:
            _merge(rows, room, c, h, heads, parts)
            tl.store(room.counts + c * heads + h, 0)


def place(entries: Entries, turns: Turns, pages: Pages) -> None:
    """Queries are turned where they lie."""
    heads = pages.k.shape[1]
    _place[(entries.mixed.shape[0], heads)](entries, turns, pages, heads, _width(entries), num_warps=1)


def attend(entries: Entries, turns: Turns, pages: Pages, room: Room) -> None:
    rows, heads = entries.mixed.shape[0], pages.k.shape[1]
    block, width = 32 if room.parts > 1 else 64, 0 if entries.owners is not None else _width(entries)
    # With many rows, room for all programs at once is worth more than a longer look ahead.
    ahead = {"num_warps": 4, "num_stages": 2 if rows > 32 else 3}
    _attend[(rows, heads, room.parts)](entries, turns, pages, room.tensors, heads, room.parts, block, width, **ahead)


def _width(entries: Entries) -> int:
    return 0 if entries.x is None else entries.x.shape[1]
