"""Asks L2 for weights that a later node will read: small nodes leave memory idle, and so do products at their start and end.

    fetch_ahead(at, kilobytes, program, programs, THREADS)      # in a Triton kernel, by all of its programs

Nothing waits for it and nothing depends on it; what is asked for has to fit into L2 (60 MB on H200) until it is read.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

Ahead = tuple[tuple[Tensor, int], ...]


@triton.jit
def fetch_ahead(at, kilobytes: tl.constexpr, program, programs, THREADS: tl.constexpr):
    for first in range(program * THREADS, kilobytes, programs * THREADS):
        unit = first + tl.arange(0, THREADS)
        tl.inline_asm_elementwise(
            "{ .reg .pred p; setp.ne.s32 p, $2, 0; @p cp.async.bulk.prefetch.L2.global [$1], 1024; mov.u32 $0, 0; }",
            "=r,l,r", [at.to(tl.int64) + unit.to(tl.int64) * 1024, (unit < kilobytes).to(tl.int32)], dtype=tl.int32, is_pure=False,
            pack=1)


def split_ahead(ahead: Ahead, none: Tensor) -> tuple[list[Tensor], list[int]]:
    """Two matrices and two sizes in KB for a kernel's arguments."""
    pairs = [*((m, min(kb, m.numel() * m.element_size() // 1024)) for m, kb in ahead), (none, 0), (none, 0)][:2]
    return [m for m, _ in pairs], [kb for _, kb in pairs]
