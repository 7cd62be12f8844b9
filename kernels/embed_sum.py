# pyright: basic, reportMissingImports=false, reportIndexIssue=false
"""The backbone's next input: the sum of a frame's code embeddings and the row's next line of text. Also counts on.

    embed_frame(EmbedRows(...), first_table, tables_nvw)

Of rows that are active; the others stay as they are. Past the end of its text a row keeps the last line (padding).
Tolerance against `reference` in float32: one bfloat16 rounding.
Letters: c row, n codebook, t line of text, w width (twice a power of two).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor


class EmbedRows(NamedTuple):
    """codes [c, n], text [c, t, w], lines [c], active [c]; written: steps [c], positions [c] (one more), x [c, w]."""

    codes: Tensor
    text: Tensor
    lines: Tensor
    active: Tensor
    steps: Tensor
    positions: Tensor
    x: Tensor


class _Tables(NamedTuple):
    first: Tensor
    others: Tensor


def reference(rows: EmbedRows, first_table: Tensor, tables_nvw: Tensor) -> Tensor:
    """Sums of all rows, in float32."""
    index = torch.arange(rows.codes.shape[0], device=rows.codes.device)
    line = torch.minimum(rows.steps.long(), rows.lines.long() - 1)
    total = rows.text[index, line].float()
    for n, table in enumerate([first_table, *tables_nvw]):
        total = total + table[rows.codes[:, n].long()].float()
    return total


@triton.jit
def _embed(rows, tables, lines, codes, books: tl.constexpr, width: tl.constexpr, block: tl.constexpr):
    c, w = tl.program_id(0), tl.program_id(1) * block + tl.arange(0, block)
    line = tl.minimum(tl.load(rows.steps + c), tl.load(rows.lines + c) - 1)
    total = tl.load(rows.text + (c.to(tl.int64) * lines + line) * width + w).to(tl.float32)
    total += tl.load(tables.first + tl.load(rows.codes + c * books).to(tl.int64) * width + w).to(tl.float32)
    for n in tl.static_range(1, books):
        at = tl.load(rows.codes + c * books + n).to(tl.int64) + (n - 1) * codes
        total += tl.load(tables.others + at * width + w).to(tl.float32)
    tl.store(rows.x + c * width + w, total.to(tl.bfloat16), (w < width) & (tl.load(rows.active + c) != 0))


@triton.jit
def _count(rows, count, block: tl.constexpr):
    c = tl.arange(0, block)
    there = c < count
    more = (tl.load(rows.active + c, there, 0) != 0).to(tl.int32)
    tl.store(rows.steps + c, tl.load(rows.steps + c, there, 0) + more, there)
    tl.store(rows.positions + c, tl.load(rows.positions + c, there, 0) + more, there)


def embed_frame(rows: EmbedRows, first_table: Tensor, tables_nvw: Tensor) -> None:
    count, width = rows.x.shape
    books, lines, codes = rows.codes.shape[1], rows.text.shape[1], tables_nvw.shape[1]
    _embed[(count, 2)](rows, _Tables(first_table, tables_nvw), lines, codes, books, width, width // 2, num_warps=8)
    _count[(1,)](rows, count, triton.next_power_of_2(count), num_warps=1)
