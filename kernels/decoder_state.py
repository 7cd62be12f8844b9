# ruff: noqa: N803, SIM102  (Triton: constants are capitals)
# pyright: reportMissingImports=false, reportIndexIssue=false
"""What surrounds a codec decoder's convolutions: histories into a batch and out of it, and the sum of a frame's codes.

    load_history(tails, work, table, rows)      # zeros for a request at position 0
    save_history(tails, work, table, rows)      # a row's own length says where its new history starts
    embed_codes(codes, tables, out, extent)

`table` has one line for each piece of at most PIECE numbers: place in the work memory, row step there, place in a
slot's tails, numbers, numbers from one frame to the next. A row of length 0 is nobody's: nothing of it is read or written.
Histories are copied exactly; the sum of codes is in float32, rounded once (TOLERANCE, relative).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from omnirt.kernels.tap_conv import Extent, View, count
from omnirt.kernels.window_attention import RowState

PIECE = 4096
TOLERANCE = 4e-3
FLOAT32_TOLERANCE = 1e-6


@triton.jit
def _load(tails, work, table, slots, positions, lengths, tail_step, PIECE: tl.constexpr):
    row, line = tl.program_id(0), tl.program_id(1)
    if tl.load(lengths + row) == 0:
        return
    at, step = tl.load(table + line * 5), tl.load(table + line * 5 + 1)
    tail, numbers = tl.load(table + line * 5 + 2), tl.load(table + line * 5 + 3)
    slot = tl.load(slots + row).to(tl.int64)
    i = tl.arange(0, PIECE)
    old = tl.load(positions + slot) > 0
    v = tl.load(tails + slot * tail_step + tail + i, mask=(i < numbers) & old, other=0.0)
    tl.store(work + at + row * step + i, v, mask=i < numbers)


@triton.jit
def _save(tails, work, table, slots, positions, lengths, tail_step, PIECE: tl.constexpr):
    row, line = tl.program_id(0), tl.program_id(1)
    length = tl.load(lengths + row)
    if length == 0:
        return
    at, step = tl.load(table + line * 5), tl.load(table + line * 5 + 1)
    tail, numbers, frame = tl.load(table + line * 5 + 2), tl.load(table + line * 5 + 3), tl.load(table + line * 5 + 4)
    slot = tl.load(slots + row).to(tl.int64)
    i = tl.arange(0, PIECE)
    v = tl.load(work + at + row * step + length * frame + i, mask=i < numbers, other=0.0)
    tl.store(tails + slot * tail_step + tail + i, v, mask=i < numbers)
    if line == 0:
        tl.store(positions + slot, tl.load(positions + slot) + length)


def load_history(tails: Tensor, work: Tensor, table: Tensor, rows: RowState) -> None:
    _load[(len(rows.slots), len(table))](tails, work, table, *rows, tails.stride(0), PIECE, num_warps=4)


def save_history(tails: Tensor, work: Tensor, table: Tensor, rows: RowState) -> None:
    """Positions move on by the rows' lengths."""
    _save[(len(rows.slots), len(table))](tails, work, table, *rows, tails.stride(0), PIECE, num_warps=4)


@triton.jit(do_not_specialize=["rows", "frames", "each"])
def _embed(
    codes, tables, out, live, rows, frames, each, code_row, out_row, out_first, BOOKS: tl.constexpr,
    SIZE: tl.constexpr, W: tl.constexpr, LIVE: tl.constexpr, BW: tl.constexpr,
):  # fmt: skip
    t_count, m_count = count(live, rows, frames, each, LIVE)
    m = tl.program_id(0)
    if LIVE:
        if m >= m_count:
            return
    row = m // t_count
    t = m - row * t_count
    i = tl.arange(0, BW)
    acc = tl.zeros((BW,), tl.float32)
    for book in tl.static_range(BOOKS):
        code = tl.load(codes + row * code_row + t * BOOKS + book)
        acc += tl.load(tables + (book * SIZE + code) * W + i, mask=i < W, other=0.0).to(tl.float32)
    tl.store(out + row * out_row + out_first + t * W + i, acc.to(out.dtype.element_ty), mask=i < W)


def embed_codes(codes_btq: Tensor, tables_qsw: Tensor, out: View, extent: Extent) -> None:
    books, size, width = tables_qsw.shape
    _embed[(extent.positions,)](
        codes_btq, tables_qsw, out.data, *extent.arguments(codes_btq), codes_btq.stride(0), out.row, out.first,
        BOOKS=books, SIZE=size, W=width, LIVE=extent.live is not None, BW=triton.next_power_of_2(width), num_warps=4,
    )  # fmt: skip


def reference_embed(codes_btq: Tensor, tables_qsw: Tensor) -> Tensor:
    """[B, T, Q] -> [B, T, W], float32."""
    lines = [tables_qsw[book][codes_btq[..., book].long()].float() for book in range(tables_qsw.shape[0])]
    return torch.stack(lines).sum(0)
