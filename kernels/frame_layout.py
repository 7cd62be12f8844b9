"""The arrays of a codec-frame model: its weights, its rows and its pages, as every form of the frame step has them.

A frame is one step of the backbone (a Qwen3 decoder), the first code from its logits, the other codes from the inner
passes of a small decoder (the code predictor, its cache of a few positions empty at each frame), and the sum of the
code embeddings with a row's next line of text, which is the backbone's next input.

Letters: R rows, B a bucket's rows, W backbone width, V first codebook's vocabulary, Q codebooks, C codes of the others,
U predictor width, L layers, H key/value heads, D head width, P pages, N pages of a row, T lines of text.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

PAGE = 64
"""Positions of a page of keys and values."""


@dataclass(frozen=True)
class DecoderShape:
    """Of the backbone, or of the predictor."""

    width: int
    feed: int
    layers: int
    heads: int
    kv_heads: int
    head: int
    eps: float
    theta: float


@dataclass(frozen=True)
class FrameShape:
    backbone: DecoderShape
    predictor: DecoderShape
    vocab: int
    """Ids of the first codebook's head, control ids included."""
    codes: int
    """Of each of the other codebooks."""
    books: int
    stop_code: int

    @property
    def kv_bytes(self) -> int:
        """Of one position of one row, at two bytes a number."""
        return 4 * self.backbone.layers * self.backbone.kv_heads * self.backbone.head


@dataclass
class LayerWeights:
    """Linear weights as checkpoints have them, [outputs, inputs]. qkv: queries, keys, values, one after the other."""

    attn_norm: Tensor
    qkv: Tensor
    q_norm: Tensor
    k_norm: Tensor
    output: Tensor
    mlp_norm: Tensor
    gate: Tensor
    up: Tensor
    down: Tensor


@dataclass
class PredictorWeights:
    """`projection` [U, W] and `bias` [U] lead from the backbone's width to the predictor's; None where they are equal.
    `heads`: Q - 1 of [C, U]."""

    layers: list[LayerWeights]
    norm: Tensor
    projection: Tensor | None
    bias: Tensor | None
    heads: list[Tensor]


@dataclass
class FrameWeights:
    """`head` [V, W]; `embed` [V, W] of the first codebook; `embeds` [Q - 1, C, W] of the others."""

    layers: list[LayerWeights]
    norm: Tensor
    head: Tensor
    embed: Tensor
    embeds: Tensor
    predictor: PredictorWeights


@dataclass
class Sampling:
    """How each row draws, on the device: `temperature` (0 is greedy), `top_k` (0: all), `top_p`, `seed`, all [R]."""

    temperature: Tensor
    top_k: Tensor
    top_p: Tensor
    seed: Tensor

    @staticmethod
    def make(rows: int, device: str) -> Sampling:
        def full(value: float, kind: torch.dtype) -> Tensor:
            return torch.full((rows,), value, device=device, dtype=kind)

        return Sampling(full(0.0, torch.float32), full(0, torch.int32), full(1.0, torch.float32), full(0, torch.int64))


@dataclass
class FrameRows:
    """What stays on the device between frames. The last row is nobody's: a bucket's padding, prefill's padding.

    x [R, W]           the backbone's next input
    hidden [R, W]      its last hidden state, normed
    codes [R, Q]       the last frame, int32
    positions [R]      of x, int64
    steps [R]          frames made, int32
    active [R]         whether the next frame is this row's, int32: of a row that is not active only codes, hidden and
                       what lies at its next position of the cache may change
    stopped [R]        whether a first code was the stop code, int32
    seen [R, V]        first codes so far, uint8
    penalty [R]        for those (repetition), float32
    least [R]          frames before the stop code may come, int32
    text [R, T, W]     lines to be added to the next inputs; past the end of them the last one
    lines [R]          how many there are, int32
    tables [R, N]      pages of the row's positions, int32
    keys, values [L, P, H, PAGE, D]
    suppressed [V]     0, or -1e30 for codes that are never drawn, float32
    """

    x: Tensor
    hidden: Tensor
    codes: Tensor
    positions: Tensor
    steps: Tensor
    active: Tensor
    stopped: Tensor
    seen: Tensor
    penalty: Tensor
    least: Tensor
    text: Tensor
    lines: Tensor
    tables: Tensor
    keys: Tensor
    values: Tensor
    suppressed: Tensor
    first: Sampling
    """Of the backbone's code."""
    inner: Sampling
    """Of the predictor's."""

    @staticmethod
    def make(
        shape: FrameShape, rows: int, pages: int, row_pages: int, lines: int, device: str, kind: torch.dtype
    ) -> FrameRows:
        """`rows` that can be used, and one more. Page 0 belongs to that one and to every unused place of a table."""
        r, w, b = rows + 1, shape.backbone.width, shape.backbone

        def zeros(*size: int, k: torch.dtype = kind) -> Tensor:
            return torch.zeros(*size, device=device, dtype=k)

        def ints(*size: int) -> Tensor:
            return zeros(*size, k=torch.int32)

        cache = (b.layers, pages, b.kv_heads, PAGE, b.head)
        return FrameRows(
            x=zeros(r, w),
            hidden=zeros(r, w),
            codes=ints(r, shape.books),
            positions=zeros(r, k=torch.int64),
            steps=ints(r),
            active=ints(r),
            stopped=ints(r),
            seen=zeros(r, shape.vocab, k=torch.uint8),
            penalty=torch.ones(r, device=device),
            least=ints(r),
            text=zeros(r, lines, w),
            lines=torch.ones(r, device=device, dtype=torch.int32),
            tables=ints(r, row_pages),
            keys=zeros(*cache),
            values=zeros(*cache),
            suppressed=torch.zeros(shape.vocab, device=device),
            first=Sampling.make(r, device),
            inner=Sampling.make(r, device),
        )
