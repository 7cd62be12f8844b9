"""Weights and rows of random numbers at the full sizes of the codec-frame models, for bench/frame_step.py."""

from __future__ import annotations

import sys
import time
from dataclasses import fields, replace
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from omnirt.kernels.frame_layout import (
    DecoderShape,
    FrameRows,
    FrameShape,
    FrameWeights,
    LayerWeights,
    PredictorWeights,
    Sampling,
)

PREDICTOR = DecoderShape(1024, 3072, 5, 16, 8, 128, 1e-6, 1e6)
SHAPES = {
    "1.7B": FrameShape(DecoderShape(2048, 6144, 28, 16, 8, 128, 1e-6, 1e6), PREDICTOR, 3072, 2048, 16, 2150),
    "0.6B": FrameShape(DecoderShape(1024, 3072, 28, 16, 8, 128, 1e-6, 1e6), PREDICTOR, 3072, 2048, 16, 2150),
}
ROW_PAGES, LONG_PAGES, LINES, PREFILL_MAX = 10, 64, 32, 128
"""Pages of a row, of row 0."""
T0 = time.time()
results: dict[str, object] = {}
"""What is written at the end."""


def log(*parts: object) -> None:
    print(f"[{time.time() - T0:6.1f}]", *parts, flush=True)


def rel(got: torch.Tensor, want: torch.Tensor) -> float:
    return float((got.double() - want.double()).norm() / want.double().norm())


def rand(*size: int, k: float = 0.02) -> torch.Tensor:
    return (torch.randn(*size, device="cuda") * k).bfloat16()


def norm(n: int) -> torch.Tensor:
    return (1 + 0.1 * torch.randn(n, device="cuda")).bfloat16()


def layer(s: DecoderShape) -> LayerWeights:
    wide, inner = (s.heads + 2 * s.kv_heads) * s.head, s.heads * s.head
    matrices = rand(s.feed, s.width), rand(s.feed, s.width), rand(s.width, s.feed)
    tail = rand(s.width, inner), norm(s.width), *matrices
    return LayerWeights(norm(s.width), rand(wide, s.width), norm(s.head), norm(s.head), *tail)


def made(shape: FrameShape) -> FrameWeights:
    torch.manual_seed(1)
    b, p = shape.backbone, shape.predictor
    narrow = b.width != p.width
    predictor = PredictorWeights(
        [layer(p) for _ in range(p.layers)],
        norm(p.width),
        rand(p.width, b.width) if narrow else None,
        rand(p.width) if narrow else None,
        [rand(shape.codes, p.width) for _ in range(shape.books - 1)],
    )
    layers = [layer(b) for _ in range(b.layers)]
    embed, embeds = rand(shape.vocab, b.width, k=0.3), rand(shape.books - 1, shape.codes, b.width, k=0.3)
    return FrameWeights(layers, norm(b.width), rand(shape.vocab, b.width), embed, embeds, predictor)


def wide(weights: FrameWeights) -> FrameWeights:
    """A copy in float32."""

    def up(value: torch.Tensor) -> torch.Tensor:
        return value.float() if isinstance(value, torch.Tensor) else value

    def layers(many: list[LayerWeights]) -> list[LayerWeights]:
        return [LayerWeights(*(up(v) for v in vars(one).values())) for one in many]

    p = weights.predictor
    predictor = PredictorWeights(layers(p.layers), up(p.norm), up(p.projection), up(p.bias), [up(h) for h in p.heads])
    rest = (up(weights.norm), up(weights.head), up(weights.embed), up(weights.embeds))
    return FrameWeights(layers(weights.layers), *rest, predictor)


def rows_of(shape: FrameShape, rows: int, *, heat: float = 0.0, filled: bool = True) -> FrameRows:
    torch.manual_seed(2)
    pages = (rows - 1) * ROW_PAGES + LONG_PAGES
    state = FrameRows.make(shape, rows, pages + 1, LONG_PAGES, LINES, "cuda", torch.bfloat16)
    order = torch.randperm(pages, device="cuda").int() + 1
    state.tables[0] = order[:LONG_PAGES]
    state.tables[1:rows, :ROW_PAGES] = order[LONG_PAGES:].view(rows - 1, ROW_PAGES)
    state.suppressed[shape.codes :] = -1e30
    state.suppressed[shape.stop_code] = 0
    state.text[:] = rand(*state.text.shape, k=1.0)
    state.lines.fill_(LINES)
    state.x[:] = rand(*state.x.shape, k=1.0)
    state.penalty.fill_(1.05)
    state.least.fill_(1 << 30)
    for sampling in (state.first, state.inner):
        sampling.temperature.fill_(heat)
        sampling.top_k.fill_(50)
        sampling.seed[:] = torch.arange(rows + 1, device="cuda") * 7919
    if filled:
        for i in range(shape.backbone.layers):
            state.keys[i], state.values[i] = rand(*state.keys[i].shape, k=1.0), rand(*state.values[i].shape, k=1.0)
    return state


def copied(state: FrameRows, kind: torch.dtype | None = None) -> FrameRows:
    def one(value: torch.Tensor | Sampling) -> torch.Tensor | Sampling:
        if isinstance(value, Sampling):
            return Sampling(*(part.clone() for part in vars(value).values()))
        return value.to(kind) if kind and value.dtype == torch.bfloat16 else value.clone()

    return replace(state, **{f.name: one(getattr(state, f.name)) for f in fields(state)})


def put(state: FrameRows, other: FrameRows, caches: bool = True) -> None:
    for field in fields(state):
        mine, theirs = getattr(state, field.name), getattr(other, field.name)
        if isinstance(mine, Sampling):
            for name, tensor in vars(mine).items():
                tensor.copy_(vars(theirs)[name])
        elif caches or field.name not in ("keys", "values"):
            mine.copy_(theirs)
