# pyright: basic, reportMissingImports=false, reportIndexIssue=false
"""What surrounds a codec decoder's convolutions: histories into a batch and out of it, and the sum of a frame's codes.

    load_history(tails, work, rows)         # zeros for a request at position 0
    save_history(tails, work, rows)         # a row's own length says where its new history starts
    embed_codes(codes, tables, out, extent)

The table of `tails` has a line for each piece of at most PIECE numbers: place in the work memory, row step there, place
in a slot's tails, numbers, numbers from frame to frame. A row of length 0 is nobody's: nothing is read or written.
Histories are copied exactly; the sum of codes is in float32, rounded once (TOLERANCE, relative).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from omnirt.kernels.tap_layout import Extent, View, positions_of
from omnirt.kernels.window_attention import RowState

PIECE = 4096
WARPS = 4
TOLERANCE = 4e-3
FLOAT32_TOLERANCE = 1e-6


class Tails(NamedTuple):
    """`kept`: [slots, numbers], a slot's histories; `table`: see above."""

    kept: Tensor
    table: Tensor


@triton.jit
def _load(tails, work, rows, tail_step, piece: tl.constexpr):
    row, line = tl.program_id(0), tails.table + tl.program_id(1) * 5
    if tl.load(rows.lengths + row) == 0:
        return
    at, step = tl.load(line), tl.load(line + 1)
    tail, numbers = tl.load(line + 2), tl.load(line + 3)
    slot = tl.load(rows.slots + row).to(tl.int64)
    i = tl.arange(0, piece)
    old = tl.load(rows.positions + slot) > 0
    v = tl.load(tails.kept + slot * tail_step + tail + i, mask=(i < numbers) & old, other=0.0)
    tl.store(work + at + row * step + i, v, mask=i < numbers)


@triton.jit
def _save(tails, work, rows, tail_step, piece: tl.constexpr):
    row, line = tl.program_id(0), tails.table + tl.program_id(1) * 5
    length = tl.load(rows.lengths + row)
    if length == 0:
        return
    at, step = tl.load(line), tl.load(line + 1)
    tail, numbers, frame = tl.load(line + 2), tl.load(line + 3), tl.load(line + 4)
    slot = tl.load(rows.slots + row).to(tl.int64)
    i = tl.arange(0, piece)
    v = tl.load(work + at + row * step + length * frame + i, mask=i < numbers, other=0.0)
    tl.store(tails.kept + slot * tail_step + tail + i, v, mask=i < numbers)
    if tl.program_id(1) == 0:
        tl.store(rows.positions + slot, tl.load(rows.positions + slot) + length)


def load_history(tails: Tails, work: Tensor, rows: RowState) -> None:
    grid = (len(rows.slots), len(tails.table))
    _load[grid](tails, work, rows, tails.kept.stride(0), PIECE, num_warps=WARPS)


def save_history(tails: Tails, work: Tensor, rows: RowState) -> None:
    """Positions move on by the rows' lengths."""
    grid = (len(rows.slots), len(tails.table))
    _save[grid](tails, work, rows, tails.kept.stride(0), PIECE, num_warps=WARPS)


class _Steps(NamedTuple):
    codes: int
    out: int
    out_first: int


class _Form(NamedTuple):
    books: int
    size: int
    width: int
    block: int
    live: bool


@triton.jit(do_not_specialize=["rows", "frames", "each"])
def _embed(io, step, live, rows, frames, each, form: tl.constexpr):
    codes, tables, out = io
    t_count, m_count = positions_of(live, rows, frames, each, form.live)
    m = tl.program_id(0)
    if form.live:  # noqa: SIM102  (a constant, then a number of the device)
        if m >= m_count:
            return
    books: tl.constexpr = form.books
    block: tl.constexpr = form.block
    row = m // t_count
    t = m - row * t_count
    i = tl.arange(0, block)
    acc = tl.zeros((block,), tl.float32)
    for book in tl.static_range(books):
        code = tl.load(codes + row * step.codes + t * books + book)
        line = tables + (book * form.size + code) * form.width
        acc += tl.load(line + i, mask=i < form.width, other=0.0).to(tl.float32)
    to = out + row * step.out + step.out_first + t * form.width + i
    tl.store(to, acc.to(out.dtype.element_ty), mask=i < form.width)


def embed_codes(codes_btq: Tensor, tables_qsw: Tensor, out: View, extent: Extent) -> None:
    books, size, width = tables_qsw.shape
    _embed[(extent.positions,)](
        (codes_btq, tables_qsw, out.data),
        _Steps(codes_btq.stride(0), out.row, out.first),
        *extent.arguments(codes_btq),
        _Form(books, size, width, triton.next_power_of_2(width), extent.live is not None),
        num_warps=WARPS,
    )


def reference_embed(codes_btq: Tensor, tables_qsw: Tensor) -> Tensor:
    """[B, T, Q] -> [B, T, W], float32."""
    lines = [tables_qsw[book][codes_btq[..., book].long()].float() for book in range(tables_qsw.shape[0])]
    return torch.stack(lines).sum(0)
