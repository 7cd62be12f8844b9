"""What surrounds the decoder's convolutions: histories in and out of a batch, and the sum of a frame's code embeddings.

    load_history(tails, work, table, slots, positions)            # zeros for a request at position 0
    save_history(tails, work, table, slots, positions, lengths)   # a row's own length decides where its new history starts
    embed_codes(codes, tables, out)

`table` has one line for each piece of at most PIECE elements: place in the work memory, row step there, place in a slot's tails,
elements, elements from one frame to the next. Letters: b row, s slot.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

PIECE = 4096


@triton.jit
def _load(tails, work, table, slots, positions, tail_step, PIECE: tl.constexpr):
    row, line = tl.program_id(0), tl.program_id(1)
    at, step = tl.load(table + line * 5), tl.load(table + line * 5 + 1)
    tail, count = tl.load(table + line * 5 + 2), tl.load(table + line * 5 + 3)
    slot = tl.load(slots + row).to(tl.int64)
    i = tl.arange(0, PIECE)
    old = tl.load(positions + slot) > 0
    v = tl.load(tails + slot * tail_step + tail + i, mask=(i < count) & old, other=0.0)
    tl.store(work + at + row * step + i, v, mask=i < count)


@triton.jit
def _save(tails, work, table, slots, positions, lengths, tail_step, PIECE: tl.constexpr):
    row, line = tl.program_id(0), tl.program_id(1)
    at, step = tl.load(table + line * 5), tl.load(table + line * 5 + 1)
    tail, count, frame = tl.load(table + line * 5 + 2), tl.load(table + line * 5 + 3), tl.load(table + line * 5 + 4)
    slot = tl.load(slots + row).to(tl.int64)
    length = tl.load(lengths + row)
    i = tl.arange(0, PIECE)
    inside = (i < count) & (length > 0)
    v = tl.load(work + at + row * step + length * frame + i, mask=inside, other=0.0)
    tl.store(tails + slot * tail_step + tail + i, v, mask=inside)
    if line == 0:
        tl.store(positions + slot, tl.load(positions + slot) + length)


def load_history(tails: Tensor, work: Tensor, table: Tensor, slots: Tensor, positions: Tensor) -> None:
    _load[(slots.shape[0], table.shape[0])](tails, work, table, slots, positions, tails.stride(0), PIECE, num_warps=4)


def save_history(tails: Tensor, work: Tensor, table: Tensor, slots: Tensor, positions: Tensor, lengths: Tensor) -> None:
    _save[(slots.shape[0], table.shape[0])](tails, work, table, slots, positions, lengths, tails.stride(0), PIECE, num_warps=4)


@triton.jit(do_not_specialize=["t_count"])
def _embed(codes, tables, out, t_count, out_row, out_first, BOOKS: tl.constexpr, SIZE: tl.constexpr, W: tl.constexpr, BW: tl.constexpr):
    m = tl.program_id(0)
    row = m // t_count
    t = m - row * t_count
    i = tl.arange(0, BW)
    acc = tl.zeros((BW,), tl.float32)
    for book in tl.static_range(BOOKS):
        code = tl.load(codes + m * BOOKS + book)
        acc += tl.load(tables + (book * SIZE + code) * W + i, mask=i < W, other=0.0).to(tl.float32)
    tl.store(out + row * out_row + out_first + t * W + i, acc.to(out.dtype.element_ty), mask=i < W)


def embed_codes(codes_btq: Tensor, tables_qsw: Tensor, out: Tensor, out_row: int, out_first: int) -> None:
    rows, t_count, books = codes_btq.shape
    _, size, width = tables_qsw.shape
    _embed[(rows * t_count,)](codes_btq, tables_qsw, out, t_count, out_row, out_first, books, size, width,
                              triton.next_power_of_2(width), num_warps=4)
