"""What the host does for the predictor's kernels: packing, sizes, and that a narrow backbone needs no projection."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from omnirt.kernels import frame_predictor as predictor  # noqa: E402
from omnirt.kernels.frame_layout import (  # noqa: E402
    DecoderShape,
    FrameShape,
    FrameWeights,
    LayerWeights,
    PredictorWeights,
)

INNER = DecoderShape(width=1024, feed=3072, layers=5, heads=16, kv_heads=8, head=128, eps=1e-6, theta=1e6)
NARROW = FrameShape(replace(INNER, layers=28), INNER, vocab=3072, codes=2048, books=16, stop_code=2150)
WIDE = replace(NARROW, backbone=replace(INNER, width=2048, feed=6144, layers=28))


def empty(*size):
    return torch.empty(*size, device="meta", dtype=torch.bfloat16)


def weights_of(shape, make=empty):
    p, width = shape.predictor, shape.backbone.width
    one = LayerWeights(
        *(make(p.width), make(4096, p.width), make(128), make(128), make(p.width, 2048), make(p.width)),
        *(make(p.feed, p.width), make(p.feed, p.width), make(p.width, p.feed)),
    )
    projection, bias = (make(p.width, width), make(p.width)) if width != p.width else (None, None)
    heads = [make(shape.codes, p.width)] * (shape.books - 1)
    inner = PredictorWeights([one] * p.layers, make(p.width), projection, bias, heads)
    embed, embeds = make(shape.vocab, width), make(shape.books - 1, shape.codes, width)
    return FrameWeights([], make(width), make(shape.vocab, width), embed, embeds, inner)


def test_both_sizes_of_the_model_fit_and_others_do_not():
    assert predictor.fits(WIDE)
    assert predictor.fits(NARROW)
    assert not predictor.fits(replace(WIDE, codes=1024))
    assert not predictor.fits(replace(WIDE, books=17))
    assert not predictor.fits(replace(WIDE, predictor=replace(INNER, eps=1e-5)))


@pytest.mark.parametrize("shape", [WIDE, NARROW], ids=["wide", "narrow"])
def test_packed_weights_have_the_places_that_the_kernels_read(shape):
    weights = weights_of(shape)
    shared, rows = predictor.pack_shared(shape, weights), predictor.pack_rows(weights.predictor)
    solo = predictor.pack_solo(weights.predictor)
    assert shared["tables"].shape == (15, 2048, 1024)
    assert shared["heads"].shape == (15, 128, 2, 8, 1024)
    assert rows["layers"].shape == (128, 5, 10, 8, 1024)
    assert rows["owned"].shape == (64, 5, 10, 8, 1024)
    assert rows["projection"].shape == (64, 4, 8, 1024)
    assert solo["layers"].shape == (128, 5, 15, 8, 1024)
    assert solo["projection"].shape == (128, 2, 8, 1024)
    assert all(tensor.is_contiguous() for tensor in (shared | rows | solo).values())


def test_with_eight_bits_there_is_a_scale_for_each_output():
    packed = predictor.pack_solo(weights_of(WIDE).predictor, 8)
    assert packed["layers"].dtype == torch.uint8
    assert packed["scales"].shape == (128, 5 * 112 + 16 * 16)


def test_rows_as_wide_as_the_predictor_are_projected_by_one_and_zero():
    projection = predictor.projection_of(weights_of(NARROW, torch.zeros).predictor)
    hidden = torch.randn(2, 1024)
    wide = torch.nn.functional.pad(hidden, (0, predictor.WIDTH - 1024))
    assert torch.equal(wide @ projection.t(), hidden)


def test_no_kernel_wants_more_than_a_block_has():
    for rows in (8, 16, 32):
        places, fixed = predictor.RowsPredictor._room(WIDE, rows)
        assert places >= 2
        assert fixed + places * (8 * 2048 + 16) + 128 <= predictor.SHARED_BYTES_MAX


def test_rotary_starts_without_a_turn():
    table = predictor.rotary(INNER, 16, "cpu")
    assert table.shape == (16, 2, 64)
    assert torch.equal(table[0], torch.stack([torch.ones(64), torch.zeros(64)]))
    assert torch.allclose(table[3, 0, 0], torch.tensor(3.0).cos())


def test_mail_grows_with_the_rows():
    assert predictor.mail_words(WIDE, 64) == 64 * predictor.mail_words(WIDE, 1)
    assert 4 * predictor.mail_words(WIDE, 1) < 3 << 20


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 8, 16, 32])
def test_the_kernels_compile_with_few_spills(rows):
    from omnirt.kernels import cuda_module

    try:
        cuda_module._nvrtc()
    except OSError:
        pytest.skip("no NVRTC here")
    several = rows > 1
    program = predictor.RowsPredictor.program(WIDE, rows) if several else predictor.SoloPredictor.program(WIDE)
    _, said = cuda_module.compile_source(program.source, (b"--ptxas-options=-v",))
    assert int(re.findall(r"(\d+) bytes spill stores", said)[0]) <= 64
