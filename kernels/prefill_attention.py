# pyright: basic, reportMissingImports=false, reportIndexIssue=false
"""Attention of many positions of a few rows: each entry is a position of row owners[c], in any order.

    place(entries, turns, pages)           # keys and values of all entries go to the cache, queries are turned in place
    attend_placed(entries, pages)          # then attention, so that entries see each other

Tolerance, twin and letters: page_attention.py.
"""

from __future__ import annotations

import triton
import triton.language as tl

from omnirt.kernels.page_attention import (
    Entries,
    Pages,
    Turns,
    add_positions,
    give,
    page_of,
    position_of,
    scale_of,
    spot_of,
    turned,
    width_of,
)


@triton.jit
def _place(rows, turns, pages, heads: tl.constexpr, width: tl.constexpr):
    c, h, d = tl.program_id(0), tl.program_id(1), tl.arange(0, 64)
    n = position_of(rows, pages, c)
    cosine, sine = tl.load(turns.rotary + n * 128 + d), tl.load(turns.rotary + n * 128 + 64 + d)
    row, by = rows.mixed + c * (4 * heads * 128), scale_of(rows, c, width)
    for i in tl.static_range(2):
        q = row + (2 * h + i) * 128
        a, b = turned(q, turns.q_norm, cosine, sine, by)
        tl.store(q + d, a.to(rows.mixed.dtype.element_ty))
        tl.store(q + 64 + d, b.to(rows.mixed.dtype.element_ty))
    a, b = turned(row + (2 * heads + h) * 128, turns.k_norm, cosine, sine, by)
    v = row + (3 * heads + h) * 128
    table = pages.tables + tl.load(rows.owners + c) * pages.row_pages
    at = spot_of(page_of(table, pages, n), n, h, heads)
    tl.store(pages.k + at + d, a.to(rows.mixed.dtype.element_ty))
    tl.store(pages.k + at + 64 + d, b.to(rows.mixed.dtype.element_ty))
    tl.store(pages.v + at + d, (tl.load(v + d).to(tl.float32) * by).to(rows.mixed.dtype.element_ty))
    tl.store(pages.v + at + 64 + d, (tl.load(v + 64 + d).to(tl.float32) * by).to(rows.mixed.dtype.element_ty))


@triton.jit
def _attend_placed(rows, pages, heads: tl.constexpr, block: tl.constexpr):
    """Whose keys and values, and turned queries, are placed."""
    c, h = tl.program_id(0), tl.program_id(1)
    d, two = tl.arange(0, 64), tl.arange(0, 16)  # two query rows, padded to the tensor core's least
    table = pages.tables + tl.load(rows.owners + c) * pages.row_pages
    q = rows.mixed + (c * 4 * heads + 2 * h + tl.minimum(two, 1))[:, None] * 128 + d[None, :]
    qa = (tl.load(q).to(tl.float32) * 0.08838834764831845).to(rows.mixed.dtype.element_ty)
    qb = (tl.load(q + 64).to(tl.float32) * 0.08838834764831845).to(rows.mixed.dtype.element_ty)
    most, all_ = tl.full((16,), -1e30, tl.float32), tl.zeros((16,), tl.float32)
    ya, yb = tl.zeros((16, 64), tl.float32), tl.zeros((16, 64), tl.float32)
    last = position_of(rows, pages, c) + 1
    most, all_, ya, yb = add_positions(pages, table, h, 0, last, qa, qb, most, all_, ya, yb, heads, block)
    give(rows, c, h, all_, ya, yb, heads)


def place(entries: Entries, turns: Turns, pages: Pages) -> None:
    """Queries are turned where they lie."""
    heads = pages.k.shape[1]
    _place[(entries.mixed.shape[0], heads)](entries, turns, pages, heads, width_of(entries), num_warps=1)


def attend_placed(entries: Entries, pages: Pages) -> None:
    count, heads = entries.mixed.shape[0], pages.k.shape[1]
    # With many entries, room for all programs at once is worth more than a longer look ahead.
    ahead = {"num_warps": 4, "num_stages": 2 if count > 32 else 3}
    _attend_placed[(count, heads)](entries, pages, heads, 64, **ahead)
