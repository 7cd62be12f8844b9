# pyright: basic, reportMissingImports=false, reportIndexIssue=false
"""One new position of every row: norms of queries and keys, rotary turn, the cache's new entry, attention.

    attend(rows, turns, pages, room)       # row c of a batch, its own page table; one kernel

Lengths are read on the device, so a graph that captured this serves every length. There is an item of work for each
part of a row's positions and each key/value head; a long row is cut into parts (attention_parts.py), so that it does
not make the others wait. The first part of every row has a program of its own; other programs share the parts that are
left, in the rows' order. The last part of a row has its new position too. Whoever finishes the last of a row's parts
merges them all, in their order.

Invariants
* what a row gets depends on the row and its own length only: not on its batch mates, nor on how many rows there are
  (among several; a row that is alone is cut finer)
* a row that is not active attends to nothing and leaves the cache as it is

Tolerance, twin and letters: page_attention.py.
"""

from __future__ import annotations

import triton
import triton.language as tl

from omnirt.kernels.attention_parts import LONGEST, LONGEST_ALONE, PARTS, AttentionRoom
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

_SHARING = 512
"""Programs for the parts that are not a row's first: they take the places that others leave."""


@triton.jit
def _queries(rows, turns, n, c, h, heads: tl.constexpr, width: tl.constexpr):
    """[16, 64] twice; the turn at position n; what the norm multiplies the row by."""
    d, two = tl.arange(0, 64), tl.arange(0, 16)  # two query rows, padded to the tensor core's least
    row, by = rows.mixed + c * (4 * heads * 128), scale_of(rows, c, width)
    cosine, sine = tl.load(turns.rotary + n * 128 + d), tl.load(turns.rotary + n * 128 + 64 + d)
    q0a, q0b = turned(row + 2 * h * 128, turns.q_norm, cosine, sine, by)
    q1a, q1b = turned(row + (2 * h + 1) * 128, turns.q_norm, cosine, sine, by)
    qa = tl.where((two == 0)[:, None], q0a[None, :], q1a[None, :]) * 0.08838834764831845
    qb = tl.where((two == 0)[:, None], q0b[None, :], q1b[None, :]) * 0.08838834764831845
    return qa, qb, cosine, sine, by


@triton.jit
def _own(rows, turns, pages, table, n, c, h, qa, qb, cosine, sine, by, active, heads: tl.constexpr):
    """The new position itself: its place in the cache, and what attention to it gives."""
    d = tl.arange(0, 64)
    row = rows.mixed + c * (4 * heads * 128)
    ka, kb = turned(row + (2 * heads + h) * 128, turns.k_norm, cosine, sine, by)
    v = row + (3 * heads + h) * 128 + d
    va = (tl.load(v).to(tl.float32) * by).to(rows.mixed.dtype.element_ty)
    vb = (tl.load(v + 64).to(tl.float32) * by).to(rows.mixed.dtype.element_ty)
    at, writes = spot_of(page_of(table, pages, n), n, h, heads) + d, active & (d < 64)
    tl.store(pages.k + at, ka.to(rows.mixed.dtype.element_ty), writes)
    tl.store(pages.k + at + 64, kb.to(rows.mixed.dtype.element_ty), writes)
    tl.store(pages.v + at, va, writes)
    tl.store(pages.v + at + 64, vb, writes)
    return tl.sum(qa * ka[None, :] + qb * kb[None, :], 1), va.to(tl.float32), vb.to(tl.float32)


@triton.jit
def _past(rows, pages, c, there):
    """Positions in the cache that rows c attend to."""
    past = tl.minimum(tl.load(rows.positions + c, there, 0).to(tl.int32), pages.row_pages * 64 - 1)
    return tl.where(tl.load(rows.active + c, there, 0) != 0, past, 0)


@triton.jit
def _cut(past, longest: tl.constexpr, parts: tl.constexpr):
    """Positions of a part, and how many parts there are."""
    some = tl.maximum(past, 1)
    share = tl.cdiv(tl.cdiv(some, tl.minimum(tl.cdiv(some, longest), parts)), 64) * 64
    return share, tl.cdiv(some, share)


@triton.jit
def _more(rows, pages, count: tl.constexpr, longest: tl.constexpr, parts: tl.constexpr):
    """Parts of each row beyond its first."""
    c = tl.arange(0, triton.next_power_of_2(count))
    _, found = _cut(_past(rows, pages, c, c < count), longest, parts)
    return found - 1


@triton.jit
def _merge(rows, room, c, h, found, heads: tl.constexpr, parts: tl.constexpr):
    first, p, d = (c * heads + h) * parts, tl.arange(0, parts), tl.arange(0, 128)
    there = p < found
    for head in tl.static_range(2):
        m = tl.load(room.weights + (first + p) * 4 + 2 * head, there, -1e30, cache_modifier=".cg")
        s = tl.load(room.weights + (first + p) * 4 + 2 * head + 1, there, 0.0, cache_modifier=".cg")
        at = room.sums + (first + p)[:, None] * 256 + head * 128 + d[None, :]
        y = tl.load(at, there[:, None], 0.0, cache_modifier=".cg")
        w = tl.exp(m - tl.max(m, 0))
        total = tl.sum(y * w[:, None], 0) / tl.sum(w * s, 0)
        tl.store(rows.out + (c * 2 * heads + 2 * h + head) * 128 + d, total.to(rows.mixed.dtype.element_ty))


@triton.jit
def _leave(rows, room, c, h, at, found, most, all_, ya, yb, heads: tl.constexpr, parts: tl.constexpr):
    """The sums of part `at` of the `found` ones. Whoever leaves the last of them merges all."""
    d, two = tl.arange(0, 64), tl.arange(0, 16)
    mine = (c * heads + h) * parts + at
    to = room.sums + mine * 256 + two[:, None] * 128 + d[None, :]
    tl.store(to, ya, (two < 2)[:, None])
    tl.store(to + 64, yb, (two < 2)[:, None])
    tl.store(room.weights + mine * 4 + 2 * two, most, two < 2)
    tl.store(room.weights + mine * 4 + 2 * two + 1, all_, two < 2)
    tl.debug_barrier()
    if tl.atomic_add(room.counts + c * heads + h, 1) == found - 1:
        _merge(rows, room, c, h, found, heads, parts)
        tl.store(room.counts + c * heads + h, 0)


@triton.jit
def _item(
    rows,
    turns,
    pages,
    room,
    c,
    h,
    at,
    heads: tl.constexpr,
    longest: tl.constexpr,
    parts: tl.constexpr,
    block: tl.constexpr,
    width: tl.constexpr,
):
    """Part `at` of row c for head h."""
    n, active = position_of(rows, pages, c), tl.load(rows.active + c) != 0
    qa, qb, cosine, sine, by = _queries(rows, turns, n, c, h, heads, width)
    table, past = pages.tables + c * pages.row_pages, tl.where(active, n, 0)
    share, found = _cut(past, longest, parts)
    most, all_ = tl.full((16,), -1e30, tl.float32), tl.zeros((16,), tl.float32)
    ya, yb = tl.zeros((16, 64), tl.float32), tl.zeros((16, 64), tl.float32)
    first, last = at * share, at * share + share
    if at == found - 1:
        last = past
        most, va, vb = _own(rows, turns, pages, table, n, c, h, qa, qb, cosine, sine, by, active, heads)
        all_ += 1.0
        ya += va[None, :]
        yb += vb[None, :]
    qa, qb = qa.to(rows.mixed.dtype.element_ty), qb.to(rows.mixed.dtype.element_ty)
    most, all_, ya, yb = add_positions(pages, table, h, first, last, qa, qb, most, all_, ya, yb, heads, block)
    if found == 1:
        give(rows, c, h, all_, ya, yb, heads)
    else:
        _leave(rows, room, c, h, at, found, most, all_, ya, yb, heads, parts)


@triton.jit
def _attend(
    rows,
    turns,
    pages,
    room,
    count: tl.constexpr,
    heads: tl.constexpr,
    longest: tl.constexpr,
    parts: tl.constexpr,
    block: tl.constexpr,
    width: tl.constexpr,
):
    program = tl.program_id(0)
    if program < count * heads:
        c, h = program // heads, program % heads
        _item(rows, turns, pages, room, c, h, 0, heads, longest, parts, block, width)
    else:
        more = _more(rows, pages, count, longest, parts)
        others = tl.num_programs(0) - count * heads
        # What is the same for all items is computed for each: to keep it takes registers, and room for a program.
        for item in tl.range(program - count * heads, tl.sum(more, 0) * heads, others, disable_licm=True):
            before = tl.cumsum(more, 0) <= item // heads
            c, at = tl.sum(before.to(tl.int32), 0), item // heads - tl.sum(tl.where(before, more, 0), 0) + 1
            _item(rows, turns, pages, room, c, item % heads, at, heads, longest, parts, block, width)


def attend(rows: Entries, turns: Turns, pages: Pages, room: AttentionRoom) -> None:
    count, heads = rows.mixed.shape[0], pages.k.shape[1]
    longest = LONGEST_ALONE if count == 1 else LONGEST
    programs = count * heads + min(_SHARING, count * heads * (PARTS - 1))
    # Blocks and registers are small enough for five programs on a multiprocessor, of 64 rows and eight heads all.
    shape = {"num_warps": 4, "num_stages": 3, "maxnreg": 96}
    _attend[(programs,)](rows, turns, pages, room, count, heads, longest, PARTS, 32, width_of(rows), **shape)
