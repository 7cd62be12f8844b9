"""Uniform numbers from (seed, step, codebook, id) by Philox 4x32-10: the twin of what the sampling kernels draw.

A number depends on nothing else, so a row draws the same numbers alone, in any batch and after a restart.
"""

from __future__ import annotations

import torch
from torch import Tensor

_MASK = 0xFFFFFFFF


def uniform(seed_c: Tensor, step_c: Tensor, codebook: int, count: int) -> Tensor:
    """[rows, count] float32 in (0, 1)."""
    return uniforms(seed_c, step_c, range(codebook, codebook + 1), count)[:, 0]


def uniforms(seed_c: Tensor, step_c: Tensor, codebooks: range, count: int) -> Tensor:
    """[rows, codebooks, count]: those of several codebooks at once."""
    device, rows = seed_c.device, seed_c.shape[0]
    c0 = torch.arange(count, device=device, dtype=torch.int64).expand(rows, len(codebooks), -1)
    books = torch.arange(codebooks.start, codebooks.stop, device=device, dtype=torch.int64)
    c1, c2, c3 = books[:, None].expand_as(c0), step_c.long()[:, None, None].expand_as(c0), torch.zeros_like(c0)
    seed = seed_c.long()[:, None, None]
    k0, k1 = seed & _MASK, (seed >> 32) & _MASK
    for _ in range(10):
        a, b = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1, c2, c3 = ((b >> 32) & _MASK) ^ c1 ^ k0, b & _MASK, ((a >> 32) & _MASK) ^ c3 ^ k1, a & _MASK
        k0, k1 = (k0 + 0x9E3779B9) & _MASK, (k1 + 0xBB67AE85) & _MASK
    return ((c0 >> 9).float() + 0.5) * 2.0**-23
