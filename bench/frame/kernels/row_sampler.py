"""The next code of every row: penalty, suppression, temperature, top-k, top-p, Gumbel-max, and the stop flag.

    sample_rows(logits_cv, codes_cn, codebook, parameters, first=...)

Each row has its own parameters and draws from (seed, step, codebook, id) alone. Top-k and top-p decide on
bfloat16-rounded logits; ties at the edge stay. temperature 0 takes the largest logit, unrounded.
Tolerance: equal to `frame_predictor.sample_reference` on the same logits, but for scores closer than float32 rounding.
Letters: c row, v code, n codebook.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from frame_predictor import Sampling


@dataclass
class First:
    """What only the backbone's codebook has. seen [c, v] uint8, penalty [c], suppressed [v] (0 or -1e30)."""

    seen: Tensor
    penalty: Tensor
    suppressed: Tensor
    stop_code: int
    stopped: Tensor


def penalize_reference(logits_cv: Tensor, first: First) -> Tensor:
    factor = first.penalty[:, None]
    changed = torch.where(logits_cv > 0, logits_cv / factor, logits_cv * factor)
    return torch.where(first.seen != 0, changed, logits_cv) + first.suppressed


@triton.jit(do_not_specialize=["codebook"])
def _sample(logits, codes, temperature, top_k, top_p, seed, step, seen, penalty, suppressed, stopped, codebook, STOP,
            V: tl.constexpr, PAD: tl.constexpr, N: tl.constexpr, FIRST: tl.constexpr):
    c, v = tl.program_id(0), tl.arange(0, PAD)
    x = tl.load(logits + c * V + v, v < V, -1e30).to(tl.float32)
    if FIRST:
        was = tl.load(seen + c * V + v, v < V, 0)
        factor = tl.load(penalty + c)
        x = tl.where(was != 0, tl.where(x > 0, x / factor, x * factor), x) + tl.load(suppressed + v, v < V, 0.0)
    heat = tl.load(temperature + c)
    if heat > 0:
        x = x.to(tl.bfloat16).to(tl.float32)
        bits = x.to(tl.bfloat16).to(tl.int16, bitcast=True).to(tl.int32) & 0xFFFF
        key = tl.where(bits >= 0x8000, 0xFFFF - bits, bits + 0x8000)
        keep = tl.load(top_k + c)
        keep = tl.where(keep > 0, keep, V)
        least = 0
        for i in tl.static_range(16):
            probe = least + (1 << (15 - i))
            least = tl.where(tl.sum((key >= probe).to(tl.int32), 0) >= keep, probe, least)
        mass = tl.load(top_p + c)
        if mass < 1:
            e = tl.where(key >= least, tl.exp((x - tl.max(x, 0)) / heat), 0.0)
            whole, edge = tl.sum(e, 0), 0
            for i in tl.static_range(16):
                above = tl.sum(tl.where(key > edge + (1 << (15 - i)) - 1, e, 0.0), 0)
                edge = tl.where(above < mass * whole, edge, edge + (1 << (15 - i)))
            least = tl.maximum(least, edge)
        ids, zero = v.to(tl.uint32), (v * 0).to(tl.uint32)
        r, _, _, _ = tl.philox(tl.load(seed + c), ids, zero + codebook.to(tl.uint32), zero + tl.load(step + c).to(tl.uint32), zero)
        u = ((r >> 9).to(tl.float32) + 0.5) * 1.1920929e-7
        x = tl.where(key >= least, x / heat - tl.log(-tl.log(u)), -1e30)
    code = tl.argmax(x, 0)
    tl.store(codes + c * N + codebook, code)
    if FIRST:
        tl.store(seen + c * V + code, 1)
        tl.store(stopped + c, (tl.load(stopped + c) != 0) | (code == STOP))


def sample_rows(logits_cv: Tensor, codes_cn: Tensor, codebook: int, sampling: Sampling, first: First | None = None) -> None:
    rows, vocab = logits_cv.shape
    none = logits_cv
    parts = (first.seen, first.penalty, first.suppressed, first.stopped) if first else (none,) * 4
    _sample[(rows,)](logits_cv, codes_cn, sampling.temperature, sampling.top_k, sampling.top_p, sampling.seed,
                     sampling.step, *parts, codebook, first.stop_code if first else -1, vocab,
                     triton.next_power_of_2(vocab), codes_cn.shape[1], first is not None, num_warps=8)
