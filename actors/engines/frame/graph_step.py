"""The frame step of a GPU: a CUDA graph for each bucket and each size of prefill. Which form it has, is decided here.

                                            frame                     prefill
    our kernels fit (bfloat16, Hopper)      our kernels, captured     products and nodes, captured by size
    any other shape, number or device       plain torch, captured     plain torch

Invariants
* joins and leaves change what is in the rows, never the graphs
* graphs run on the stream that is current at the call, one after the other; they share their memory
* no row is active while a step is made: what is run to warm up leaves the rows as they are
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from omnirt.actors.engines.frame.graph_memory import planned_bytes
from omnirt.actors.engines.frame.step import Piece
from omnirt.kernels.cuda_module import Compiler, default_folder
from omnirt.kernels.frame_layout import PAGE, FrameRows, FrameShape, FrameWeights
from omnirt.kernels.frame_reference import PlainStep

BUCKETS = (1, 8, 16, 32, 64)
PREFILL_SIZES = (16, 32, 64, 128, 256, 384, 512, 768, 1024, 1280)
_GRAPHS_BYTES = 192 << 20
"""Graphs, the library's work space, machine code."""
_POSITIONS = 11_264
"""Of a row, where it is not known yet."""


def buckets_of(rows: int, sizes: tuple[int, ...] = BUCKETS) -> tuple[int, ...]:
    """For `rows` that can be used: the sizes below, and all of them."""
    return (*(size for size in sizes if size < rows), rows)


def sizes_of(positions: int) -> tuple[int, ...]:
    """Of prefill, where a call takes up to that many."""
    return (*(size for size in PREFILL_SIZES if size < positions), positions)


def other_bytes(shape: FrameShape, rows: int, prefill_max: int, bits: int = 16) -> int:
    """What a step keeps on the device beside the rows and the weights as they come, before anything is loaded."""
    from omnirt.kernels import frame_predictor

    if not frame_predictor.fits(shape):  # plain torch gathers the pages of all rows, layer after layer
        back = shape.backbone
        return _GRAPHS_BYTES + 8 * rows * _POSITIONS * back.kv_heads * back.head * 2
    plan = planned_bytes(shape, buckets_of(rows), prefill_max, _POSITIONS // PAGE, bits=bits)
    return _GRAPHS_BYTES + plan["packed"] + plan["work"]


def has_kernels(shape: FrameShape, state: FrameRows) -> bool:
    """Whether our kernels are written for this shape, these numbers and this device."""
    device = state.x.device
    if state.x.dtype != torch.bfloat16 or torch.cuda.get_device_capability(device) != (9, 0):
        return False
    from omnirt.actors.engines.frame import graph_fused

    return graph_fused.fits(shape)


class GraphStep:
    """See FrameStep. Takes `weights` over: what the form does not need is gone afterwards.

    bits     16, or 8 for what the one-launch kernels read (the backbone up to 16 rows, the predictor for one row)
    folder   where machine code is kept between starts; None: in the user's cache
    """

    def __init__(
        self,
        shape: FrameShape,
        weights: FrameWeights,
        state: FrameRows,
        buckets: tuple[int, ...],
        prefill_max: int = PREFILL_SIZES[-1],
        *,
        bits: int = 16,
        folder: Path | None = None,
    ) -> None:
        self.shape, self.state, self.buckets, self.prefill_max = shape, state, buckets, prefill_max
        self._sizes = sizes_of(prefill_max)
        self._form: Any = None
        self._plain: PlainStep | None = None
        with torch.no_grad(), Compiler(folder or default_folder()) as compiler:
            if has_kernels(shape, state):
                from omnirt.actors.engines.frame.graph_fused import FusedForm

                self._form = FusedForm(shape, weights, state, buckets, self._sizes, compiler=compiler, bits=bits)
                frame, prefill = self._form.frame, self._form.prefill
            else:
                self._plain = PlainStep(shape, weights, state, self.prefill_max, buckets)
                frame, prefill = self._plain.run, None
            if self._form is not None:
                self._form.enter([])
            self._capture(frame, prefill)

    def _capture(self, frame: Callable[[int], None], prefill: Callable[[int], None] | None) -> None:
        # The largest first: the others find its memory free.
        pool = torch.cuda.graph_pool_handle()
        self._prefills = {size: _captured(prefill, size, pool) for size in self._sizes[::-1]} if prefill else {}
        self._frames = {bucket: _captured(frame, bucket, pool) for bucket in self.buckets[::-1]}

    @property
    def bytes(self) -> dict[str, int]:
        """Of device memory, by what it is for."""
        return {} if self._form is None else self._form.bytes

    def run(self, bucket: int) -> None:
        self._frames[bucket].replay()

    @torch.no_grad()
    def prefill(self, pieces: Sequence[Piece]) -> None:
        if self._plain is not None:
            self._plain.prefill(pieces)
            return
        count = self._form.enter(pieces)
        self._prefills[min(size for size in self._sizes if size >= count)].replay()


def _captured(work: Callable[[int], None], size: int, pool: Any) -> torch.cuda.CUDAGraph:
    work(size)  # compiles what is compiled at the first call, and asks the libraries for their memory
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        work(size)
    return graph
