# pyright: basic, reportMissingImports=false, reportIndexIssue=false
"""The next code of every row: penalty, suppression, temperature, top-k, top-p, Gumbel-max, and the stop flag.

    sample_rows(logits_cv, codes_cn, codebook, draw)                       # any codebook
    sample_rows(logits_cv, codes_cn, 0, draw, first=..., stop_code=...)    # the backbone's

Each row has its own parameters and draws from (seed, step, codebook, id) alone. Top-k and top-p decide on
bfloat16-rounded logits; ties at the edge stay. temperature 0 takes the largest logit, unrounded. Of a row that is not
active only the code is written.
Tolerance: equal to `frame_reference` on the same logits, but for scores closer than float32 rounding.
Letters: c row, v code, n codebook.
"""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from omnirt.kernels.frame_predictor import Draw


class First(NamedTuple):
    """What only the backbone's codebook has. seen [c, v] uint8, penalty [c], suppressed [v] (0 or -1e30); the stop code
    may not come before a row's step is `least`; written: seen, stopped, of rows that are active."""

    seen: Tensor
    penalty: Tensor
    suppressed: Tensor
    least: Tensor
    active: Tensor
    stopped: Tensor


class _Places(NamedTuple):
    logits: Tensor
    codes: Tensor


@triton.jit
def _changed(x, first, step, stop, vocab: tl.constexpr, padded: tl.constexpr):
    c, v = tl.program_id(0), tl.arange(0, padded)
    was = tl.load(first.seen + c * vocab + v, v < vocab, 0)
    factor = tl.load(first.penalty + c)
    x = tl.where(was != 0, tl.where(x > 0, x / factor, x * factor), x) + tl.load(first.suppressed + v, v < vocab, 0.0)
    return tl.where((v == stop) & (step < tl.load(first.least + c)), -1e30, x)


@triton.jit
def _least_key(x, key, draw, heat, vocab: tl.constexpr):
    """The smallest key that top-k and top-p leave."""
    c = tl.program_id(0)
    keep = tl.load(draw.top_k + c)
    keep = tl.where(keep > 0, keep, vocab)
    least, bit = 0, 1 << 15
    for _ in range(16):
        probe = least + bit
        least = tl.where(tl.sum((key >= probe).to(tl.int32), 0) >= keep, probe, least)
        bit = bit // 2
    mass = tl.load(draw.top_p + c)
    if mass < 1:
        e = tl.where(key >= least, tl.exp((x - tl.max(x, 0)) / heat), 0.0)
        whole, edge, bit = tl.sum(e, 0), 0, 1 << 15
        for _ in range(16):
            above = tl.sum(tl.where(key > edge + bit - 1, e, 0.0), 0)
            edge = tl.where(above < mass * whole, edge, edge + bit)
            bit = bit // 2
        least = tl.maximum(least, edge)
    return least


@triton.jit(do_not_specialize=["codebook"])
def _sample(at, draw, first, codebook, stop, vocab: tl.constexpr, books: tl.constexpr):
    padded: tl.constexpr = triton.next_power_of_2(vocab)
    c, v = tl.program_id(0), tl.arange(0, padded)
    step = tl.load(draw.step + c)
    x = tl.load(at.logits + c * vocab + v, v < vocab, -1e30).to(tl.float32)
    if first is not None:
        x = _changed(x, first, step, stop, vocab, padded)
    heat = tl.load(draw.temperature + c)
    if heat > 0:
        x = x.to(tl.bfloat16).to(tl.float32)
        bits = x.to(tl.bfloat16).to(tl.int16, bitcast=True).to(tl.int32) & 0xFFFF
        key = tl.where(bits >= 0x8000, 0xFFFF - bits, bits + 0x8000)
        least = _least_key(x, key, draw, heat, vocab)
        ids, zero = v.to(tl.uint32), (v * 0).to(tl.uint32)
        book, when = zero + codebook.to(tl.uint32), zero + step.to(tl.uint32)
        r, _, _, _ = tl.philox(tl.load(draw.seed + c), ids, book, when, zero)
        u = ((r >> 9).to(tl.float32) + 0.5) * 1.1920929e-7
        x = tl.where(key >= least, x / heat - tl.log(-tl.log(u)), -1e30)
    code = tl.argmax(x, 0)
    tl.store(at.codes + c * books + codebook, code)
    if first is not None:
        active = tl.load(first.active + c) != 0
        tl.store(first.seen + c * vocab + code, 1, active)
        tl.store(first.stopped + c, ((tl.load(first.stopped + c) != 0) | (code == stop)).to(tl.int32), active)


def sample_rows(
    logits_cv: Tensor, codes_cn: Tensor, codebook: int, draw: Draw, *, first: First | None = None, stop_code: int = -1
) -> None:
    rows, vocab = logits_cv.shape
    places = _Places(logits_cv, codes_cn)
    _sample[(rows,)](places, draw, first, codebook, stop_code, vocab, codes_cn.shape[1], num_warps=8)
