"""What the host does for the backbone's kernel: packing, sizes, what it fits."""

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from omnirt.kernels import talker_step  # noqa: E402
from omnirt.kernels.frame_layout import (  # noqa: E402
    DecoderShape,
    FrameShape,
    FrameWeights,
    LayerWeights,
    PredictorWeights,
)

BACK = DecoderShape(width=2048, feed=6144, layers=2, heads=16, kv_heads=8, head=128, eps=1e-6, theta=1e6)
SHAPE = FrameShape(BACK, replace(BACK, width=1024, feed=3072), vocab=3072, codes=2048, books=16, stop_code=2150)


def empty(*size):
    return torch.empty(*size, device="meta", dtype=torch.bfloat16)


@pytest.fixture
def weights():
    one = LayerWeights(
        *(empty(2048), empty(4096, 2048), empty(128), empty(128), empty(2048, 2048), empty(2048)),
        *(empty(6144, 2048), empty(6144, 2048), empty(2048, 6144)),
    )
    none = PredictorWeights([], empty(1024), None, None, [])
    return FrameWeights([one, one], empty(2048), empty(3072, 2048), empty(3072, 2048), empty(15, 2048, 2048), none)


def test_only_the_shape_it_is_cut_for_fits():
    assert talker_step.fits(SHAPE)
    assert not talker_step.fits(replace(SHAPE, backbone=replace(BACK, width=1024)))
    assert not talker_step.fits(replace(SHAPE, backbone=replace(BACK, eps=1e-5)))
    assert not talker_step.fits(replace(SHAPE, vocab=4096))


@pytest.mark.parametrize(("bits", "kind"), [(16, torch.bfloat16), (8, torch.uint8)])
def test_packed_weights_have_the_places_that_the_kernel_reads(weights, bits, kind):
    packed = talker_step.pack_talker(weights, bits)
    assert packed["layers"].shape == (128, 2, 48, 8, 1024)
    assert packed["head"].shape == (96, 8, 8, 1024)
    assert packed["layers"].dtype == packed["head"].dtype == kind
    assert packed["head_norms"].shape == (2, 2, 128)
    if bits == 8:
        assert packed["scales"].shape == (128, 2 * 160 + 32)


def test_every_row_and_every_block_has_its_mail():
    one, sixteen = talker_step.mail_words(SHAPE, 1), talker_step.mail_words(SHAPE, 16)
    assert sixteen - one == 15 * 2 * (4096 + 2048 + 2 * 2048 + 6144) // 2


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "bits"), [(8, 16), (16, 16), (8, 8)])
def test_the_kernel_compiles_and_keeps_everything_in_registers(rows, bits):
    from omnirt.kernels import cuda_module

    try:
        cuda_module._nvrtc()
    except OSError:
        pytest.skip("no NVRTC here")
    program = talker_step.TalkerStep.program(SHAPE, rows, bits)
    code, said = cuda_module.compile_source(program.source, (b"--ptxas-options=-v",))
    assert b"talker_rows" in code
    assert "0 bytes spill stores" in said
