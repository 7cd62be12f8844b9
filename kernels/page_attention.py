# pyright: basic, reportMissingImports=false, reportIndexIssue=false
"""Attention over a cache in pages: what its kernels have in common, and what they are given.

The cache is in pages of PAGE positions; a block of positions lies in one page, so a block is one lookup.
Tolerance against `reference` in float32: 1e-2 relative (Frobenius; queries and weights are bfloat16).
Letters: c entry, h key/value head, l position, p page, d head width (128), two query heads for each h.
"""

from __future__ import annotations

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


def width_of(entries: Entries) -> int:
    return 0 if entries.x is None else entries.x.shape[1]


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
def scale_of(rows, c, width: tl.constexpr):
    """Of entry c; `width` 0: one."""
    scale = 1.0
    if width > 0:
        scale = row_scale(rows.x, c, width)
    return scale


@triton.jit
def turned(at, norm, cosine, sine, by):
    d = tl.arange(0, 64)
    a, b = tl.load(at + d).to(tl.float32) * by, tl.load(at + 64 + d).to(tl.float32) * by
    scale = tl.rsqrt((tl.sum(a * a, 0) + tl.sum(b * b, 0)) / 128 + 1e-6)
    a, b = a * scale * tl.load(norm + d).to(tl.float32), b * scale * tl.load(norm + 64 + d).to(tl.float32)
    return a * cosine - b * sine, b * cosine + a * sine


@triton.jit
def position_of(rows, pages, c):
    """Of entry c. A row that is over may stand behind its last page: there, its last place."""
    return tl.minimum(tl.load(rows.positions + c).to(tl.int32), pages.row_pages * 64 - 1)


@triton.jit
def page_of(table, pages, position):
    """The page of a position, or the row's last."""
    return tl.load(table + tl.minimum(position // 64, pages.row_pages - 1)).to(tl.int64)


@triton.jit
def spot_of(page, position, h, heads: tl.constexpr):
    """Where a position of head h lies, in numbers."""
    return ((page * heads + h) * 64 + position % 64) * 128


@triton.jit
def add_positions(pages, table, h, first, last, qa, qb, most, all_, ya, yb, heads: tl.constexpr, block: tl.constexpr):
    """Attention's sums, with the positions from `first` (where a page begins) to `last` added."""
    d, near = tl.arange(0, 64), tl.arange(0, block)
    page = page_of(table, pages, first)
    for j in range(first, last, block):
        at = spot_of(page, j, h, heads) + near[:, None] * 128 + d[None, :]
        page = page_of(table, pages, j + block)  # of the next one: whose reads must not wait for it
        there = (j + near < last)[:, None]
        ka, kb = tl.load(pages.k + at, there, 0.0), tl.load(pages.k + at + 64, there, 0.0)
        va, vb = tl.load(pages.v + at, there, 0.0), tl.load(pages.v + at + 64, there, 0.0)
        score = tl.where((j + near < last)[None, :], tl.dot(qb, kb.T, tl.dot(qa, ka.T)), -1e30)
        new = tl.maximum(most, tl.max(score, 1))
        p, old = tl.exp(score - new[:, None]), tl.exp(most - new)
        all_ = all_ * old + tl.sum(p, 1)
        ya = tl.dot(p.to(va.dtype), va, ya * old[:, None])
        yb = tl.dot(p.to(vb.dtype), vb, yb * old[:, None])
        most = new
    return most, all_, ya, yb


@triton.jit
def give(rows, c, h, all_, ya, yb, heads: tl.constexpr):
    d, two = tl.arange(0, 64), tl.arange(0, 16)
    at, real = rows.out + (c * 2 * heads + 2 * h + two)[:, None] * 128 + d[None, :], (two < 2)[:, None]
    tl.store(at, (ya / all_[:, None]).to(rows.mixed.dtype.element_ty), real)
    tl.store(at + 64, (yb / all_[:, None]).to(rows.mixed.dtype.element_ty), real)
