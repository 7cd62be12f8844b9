"""The forms of a GPU's frame step: their sizes anywhere, our form interpreted on a processor, graphs on a device."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from omnirt.actors.engines.frame.graph_memory import planned_bytes, predictor_sizes  # noqa: E402
from omnirt.actors.engines.frame.graph_step import GraphStep, buckets_of, other_bytes, sizes_of  # noqa: E402
from omnirt.actors.engines.frame.step import Piece  # noqa: E402
from omnirt.kernels.frame_layout import (  # noqa: E402
    DecoderShape,
    FrameRows,
    FrameShape,
    FrameWeights,
    LayerWeights,
    PredictorWeights,
)
from omnirt.kernels.frame_reference import PlainStep  # noqa: E402

INNER = DecoderShape(width=1024, feed=3072, layers=5, heads=16, kv_heads=8, head=128, eps=1e-6, theta=1e6)
BACK = replace(INNER, layers=28)
NARROW = FrameShape(BACK, INNER, vocab=3072, codes=2048, books=16, stop_code=2150)
WIDE = replace(NARROW, backbone=replace(BACK, width=2048, feed=6144))


def test_buckets_are_the_sizes_below_and_all_rows():
    assert buckets_of(64) == (1, 8, 16, 32, 64)
    assert buckets_of(20) == (1, 8, 16, 20)
    assert buckets_of(1) == (1,)


def test_sizes_of_prefill_end_with_the_most_it_takes():
    assert sizes_of(128) == (16, 32, 64, 128)
    assert sizes_of(100) == (16, 32, 64, 100)
    assert sizes_of(8) == (8,)


def test_what_a_step_will_keep_is_known_before_anything_is_loaded():
    gib = 2**30
    assert 2.7 * gib < other_bytes(WIDE, 16, 128) < 4.2 * gib
    assert other_bytes(WIDE, 16, 128, 8) < other_bytes(WIDE, 16, 128) - gib
    assert other_bytes(NARROW, 16, 128) < gib


def test_each_bucket_has_the_predictor_that_covers_it():
    assert predictor_sizes((1, 8, 16, 32, 64)) == [1, 8, 16, 32, 64]
    assert predictor_sizes((20, 33)) == [32, 64]
    assert predictor_sizes((1, 200)) == [1, 64]


# ---------------------------------------------------------------- our form, interpreted

SMALL = FrameShape(
    DecoderShape(width=1024, feed=1024, layers=2, heads=4, kv_heads=2, head=128, eps=1e-6, theta=1e4),
    DecoderShape(width=32, feed=32, layers=1, heads=2, kv_heads=1, head=16, eps=1e-6, theta=1e4),
    vocab=64,
    codes=48,
    books=3,
    stop_code=60,
)
ROWS, ROW_PAGES = 3, 2


@pytest.fixture(scope="module")
def interpreted():
    if torch.cuda.is_available():
        pytest.skip("kernels are compiled here, not interpreted")
    os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is defined
    pytest.importorskip("triton")
    try:
        int(np.zeros(1))  # as its interpreter does for the bounds of a loop
    except TypeError:
        pytest.skip("the interpreter of triton wants numpy < 2.4")


def made_weights(shape, device="cpu", kind=torch.float32):
    draws = torch.Generator().manual_seed(3)

    def matrix(*size):
        if device == "meta":
            return torch.empty(*size, device=device, dtype=kind)
        return (torch.randn(*size, generator=draws) / size[-1] ** 0.5).to(device, kind)

    def layer(s):
        def ones(n):
            return torch.ones(n, device=device, dtype=kind)

        wide, inner = (s.heads + 2 * s.kv_heads) * s.head, s.heads * s.head
        mixed = matrix(wide, s.width), ones(s.head), ones(s.head), matrix(s.width, inner)
        return LayerWeights(
            ones(s.width),
            *mixed,
            ones(s.width),
            matrix(s.feed, s.width),
            matrix(s.feed, s.width),
            matrix(s.width, s.feed),
        )

    b, p = shape.backbone, shape.predictor
    heads = [matrix(shape.codes, p.width) for _ in range(shape.books - 1)]
    norm = torch.ones(p.width, device=device, dtype=kind)
    narrow = b.width != p.width
    projection, bias = (matrix(p.width, b.width), matrix(p.width)) if narrow else (None, None)
    predictor = PredictorWeights([layer(p) for _ in range(p.layers)], norm, projection, bias, heads)
    embeds = matrix(shape.books - 1, shape.codes, b.width)
    layers = [layer(b) for _ in range(b.layers)]
    rest = torch.ones(b.width, device=device, dtype=kind), matrix(shape.vocab, b.width), matrix(shape.vocab, b.width)
    return FrameWeights(layers, *rest, embeds, predictor)


def made_state(shape, device="cpu", kind=torch.float32):
    state = FrameRows.make(shape, ROWS, ROWS * ROW_PAGES + 1, ROW_PAGES, 4, device, kind)
    order = torch.tensor([5, 2, 1, 6, 3, 4], dtype=torch.int32)
    state.tables[:ROWS] = order.view(ROWS, ROW_PAGES).to(device)
    state.text[:] = torch.randn(state.text.shape, generator=torch.Generator().manual_seed(4)).to(device)
    state.lines.fill_(4)
    state.suppressed[shape.codes :] = -1e30
    return state


class PlainPredictor:
    """The inner passes as the plain step has them."""

    def __init__(self, shape, weights):
        self._plain = PlainStep(shape, weights, made_state(shape), 8, (ROWS,), fixed=True)

    def run(self, hidden, codes, draw, mail):
        from omnirt.kernels.frame_layout import Sampling

        width = self._plain.shape.backbone.width
        inner = self._plain._inner(hidden[:, :width], codes[:, 0].long(), draw.step, Sampling(*draw[:4]))
        codes.copy_(torch.stack(inner, 1))


class NoCompiler:
    def start(self, program):
        pass


def fused(shape, weights, state, buckets, monkeypatch):
    from omnirt.actors.engines.frame import graph_fused

    double = PlainPredictor(shape, weights)
    monkeypatch.setattr(graph_fused.FusedForm, "_make_predictors", lambda *_: dict.fromkeys((1, 8), double))
    return graph_fused.FusedForm(shape, weights, state, buckets, (16, 128), compiler=NoCompiler())


PROMPTS = ((0, 70), (1, 5), (2, 12))


def begin(step_prefill, *states):
    """Prompts of three rows in two calls; the second row is not active afterwards."""
    draws = torch.Generator().manual_seed(5)
    width = states[0].x.shape[1]
    rows = [torch.randn(n + 1, width, generator=draws).to(states[0].x) for _, n in PROMPTS]
    step_prefill([Piece(0, 0, rows[0][:60]), Piece(1, 0, rows[1][:5])])
    step_prefill([Piece(0, 60, rows[0][60:70]), Piece(2, 0, rows[2][:12])])
    for state in states:
        for (row, n), prompt in zip(PROMPTS, rows, strict=True):
            state.x[row], state.positions[row], state.active[row] = prompt[n], n, int(row != 1)


def error(got, want):
    return float((got.double() - want.double()).norm() / want.double().norm())


@pytest.mark.slow
@torch.no_grad()
def test_our_form_of_the_step_follows_the_plain_one(interpreted, monkeypatch):
    shape, weights, state, twin_state = SMALL, made_weights(SMALL), made_state(SMALL), made_state(SMALL)
    plain = PlainStep(shape, made_weights(SMALL), twin_state, 128, (ROWS,), fixed=True)
    form = fused(shape, weights, state, (1, ROWS), monkeypatch)

    def prefill(pieces):
        plain.prefill(pieces)
        form.prefill(16 if form.enter(pieces) <= 16 else 128)

    begin(prefill, state, twin_state)
    assert error(state.keys[:, 1:], twin_state.keys[:, 1:]) < 3e-2
    assert error(state.values[:, 1:], twin_state.values[:, 1:]) < 3e-2
    kept = state.x[1].clone()
    for bucket in (ROWS, 1):
        steps = twin_state.steps.tolist()
        form.frame(bucket)
        plain.run(ROWS)
        assert error(state.hidden[0], twin_state.hidden[0]) < 5e-2
        assert state.steps.tolist()[0] == steps[0] + 1
        for part in ("x", "positions", "steps", "seen", "codes"):  # go on from the same
            getattr(twin_state, part).copy_(getattr(state, part))
    assert state.positions.tolist()[:ROWS] == [72, 5, 13]
    assert state.seen[1].sum() == 0
    assert torch.equal(state.x[1], kept)


@torch.no_grad()
def test_gates_are_joined_without_a_second_copy(interpreted, monkeypatch):
    weights, state = made_weights(SMALL), made_state(SMALL)
    form = fused(SMALL, weights, state, (1, ROWS), monkeypatch)
    layer = weights.layers[0]
    assert layer.gate.untyped_storage().data_ptr() == layer.up.untyped_storage().data_ptr()
    matrices = sum(t.nbytes for one in weights.layers for t in vars(one).values())
    assert form.bytes["plain"] == matrices + weights.norm.nbytes + weights.head.nbytes


@pytest.mark.parametrize("bits", [16, 8])
@pytest.mark.parametrize("buckets", [(1,), (1, 8), (8, 20), (33,), (1, 64), (1, 8, 16, 32, 64)])
def test_what_predictors_read_is_planned_as_it_is_packed(interpreted, buckets, bits, monkeypatch):
    from omnirt.actors.engines.frame import graph_fused

    for name in ("SoloPredictor", "RowsPredictor", "PairsPredictor"):
        monkeypatch.setattr(graph_fused, name, lambda *_: None)
    shape, form = replace(WIDE, backbone=replace(WIDE.backbone, layers=0)), object.__new__(graph_fused.FusedForm)
    form._shape, form._weights = shape, made_weights(shape, "meta", torch.bfloat16)
    form._bits, form._packed = bits, []
    assert sorted(form._make_predictors(buckets, NoCompiler())) == predictor_sizes(buckets)
    tensors = {id(tensor): tensor.nbytes for packed in form._packed for tensor in packed.values()}
    talker = bits // 8 * shape.vocab * shape.backbone.width if buckets[0] <= 16 else 0  # its head
    planned = planned_bytes(shape, buckets, 128, 1, bits=bits)["packed"] - talker
    assert sum(tensors.values()) == pytest.approx(planned, rel=0.01)


# ---------------------------------------------------------------- graphs


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a device")
@torch.no_grad()
def test_a_shape_without_kernels_runs_the_plain_step_in_graphs(tmp_path):
    state, twin_state = made_state(SMALL, "cuda"), made_state(SMALL, "cuda")
    plain = PlainStep(SMALL, made_weights(SMALL, "cuda"), twin_state, 128, (ROWS,))
    step = GraphStep(SMALL, made_weights(SMALL, "cuda"), state, (1, ROWS), 128, folder=tmp_path)

    def prefill(pieces):
        plain.prefill(pieces)
        step.prefill(pieces)

    begin(prefill, state, twin_state)
    for _ in range(3):
        step.run(ROWS)
        plain.run(ROWS)
    torch.cuda.synchronize()
    assert torch.equal(state.codes[:ROWS], twin_state.codes[:ROWS])
    assert torch.equal(state.positions, twin_state.positions)
