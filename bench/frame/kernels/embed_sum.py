"""The backbone's next input: the sum of a frame's code embeddings and the row's next line of text.

    embed_frame(codes_cn, embeddings, text_ctw, text_lengths_c, steps_c, positions_c, out_cw)

Also counts on: steps and positions grow by one. Past the end of its text a row keeps the last line (padding).
Tolerance against `reference` in float32: one bfloat16 rounding.
Letters: c row, n codebook, t line of text, w width.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


def reference(codes_cn: Tensor, embeddings: list[Tensor], text_ctw: Tensor, text_lengths_c: Tensor, steps_c: Tensor) -> Tensor:
    rows = torch.arange(codes_cn.shape[0], device=codes_cn.device)
    line = torch.minimum(steps_c.long(), text_lengths_c.long() - 1)
    total = text_ctw[rows, line].float()
    for n, table in enumerate(embeddings):
        total = total + table[codes_cn[:, n].long()].float()
    return total


@triton.jit
def _embed(codes, first_table, tables, text, lengths, steps, positions, out, LINES, V, N: tl.constexpr, W: tl.constexpr, BLOCK: tl.constexpr):
    c, w = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    step = tl.load(steps + c)
    line = tl.minimum(step, tl.load(lengths + c) - 1)
    total = tl.load(text + (c * LINES + line).to(tl.int64) * W + w).to(tl.float32)
    total += tl.load(first_table + tl.load(codes + c * N).to(tl.int64) * W + w).to(tl.float32)
    for n in tl.static_range(1, N):
        at = (tl.load(codes + c * N + n) + (n - 1) * V).to(tl.int64)
        total += tl.load(tables + at * W + w).to(tl.float32)
    tl.store(out + c * W + w, total.to(tl.bfloat16))


@triton.jit
def _count(steps, positions, rows, BLOCK: tl.constexpr):
    c = tl.arange(0, BLOCK)
    tl.store(steps + c, tl.load(steps + c, c < rows, 0) + 1, c < rows)
    tl.store(positions + c, tl.load(positions + c, c < rows, 0) + 1, c < rows)


def embed_frame(codes_cn: Tensor, first_table: Tensor, tables_nvw: Tensor, text_ctw: Tensor, text_lengths_c: Tensor,
                steps_c: Tensor, positions_c: Tensor, out_cw: Tensor) -> None:
    rows, width = out_cw.shape
    _embed[(rows, 2)](codes_cn, first_table, tables_nvw, text_ctw, text_lengths_c, steps_c, positions_c, out_cw,
                      text_ctw.shape[1], tables_nvw.shape[1], codes_cn.shape[1], width, width // 2, num_warps=8)
    _count[(1,)](steps_c, positions_c, rows, triton.next_power_of_2(rows), num_warps=1)
