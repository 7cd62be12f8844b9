"""What the host does for the predictor by pairs of blocks: the order of weights, sizes, the cache behind the mail."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from omnirt.kernels import frame_pairs as pairs  # noqa: E402
from omnirt.kernels import frame_predictor as predictor  # noqa: E402
from omnirt.kernels.frame_layout import DecoderShape, FrameShape, LayerWeights, PredictorWeights  # noqa: E402

INNER = DecoderShape(width=1024, feed=3072, layers=5, heads=16, kv_heads=8, head=128, eps=1e-6, theta=1e6)
WIDE = FrameShape(replace(INNER, width=2048, feed=6144, layers=28), INNER, 3072, codes=2048, books=16, stop_code=2150)


def empty(*size):
    return torch.empty(*size, device="meta", dtype=torch.bfloat16)


def weights():
    layer = LayerWeights(
        *(empty(1024), empty(4096, 1024), empty(128), empty(128), empty(1024, 2048), empty(1024)),
        *(empty(3072, 1024), empty(3072, 1024), empty(1024, 3072)),
    )
    return PredictorWeights([layer] * 5, empty(1024), empty(1024, 2048), empty(1024), [empty(2048, 1024)] * 15)


def test_packed_weights_have_the_places_that_the_kernel_reads():
    packed = pairs.pack_pairs(weights())
    assert packed["layers"].shape == (128, 5, 1024 * 32 + 2048 * 8 + 1024 * 48 + 3072 * 8)
    assert packed["projection"].shape == (128, 2048 * 8)
    assert packed["heads"].shape == (15, 128, 1024 * 16)
    assert all(tensor.is_contiguous() for tensor in packed.values())


def test_each_weight_lies_where_the_tensor_core_looks_for_it():
    n, k = 4096, 1024
    weight = torch.arange(n * k).reshape(n, k)
    tiles = pairs.pair_tiles(weight)
    for block, piece, group, output, at in ((0, 0, 0, 0, 0), (37, 3, 1, 5, 19), (90, 7, 0, 63, 31), (127, 2, 1, 18, 8)):
        # An output's place in its pair, and where it goes: lane and half change places among 16.
        sixteen, rest = divmod(output, 16)
        place = sixteen * 16 + (rest // 2 % 2) * 8 + rest // 4 * 2 + rest % 2
        # k: a lane's eight neighbours are two of each of the four pieces of 16 bytes.
        lane, rest = divmod(at, 8)
        spot = (rest // 2) * 8 + lane * 2 + rest % 2
        swizzled = ((spot // 8) ^ (place % 8 // 2)) * 8 + spot % 8
        found = tiles[block].reshape(-1, 2, 64, 32)[piece, group, place, swizzled]
        pair, half = divmod(block, 2)
        assert found == weight[pair * 64 + output, half * 512 + group * 256 + piece * 32 + at]


def test_gates_and_ups_take_turns_of_eight():
    layer = weights().layers[0]
    layer.mlp_norm = torch.ones(1024)
    layer.gate, layer.up = torch.zeros(3072, 1024), torch.ones(3072, 1024)
    both = pairs._gates(layer)
    assert both[:8].eq(0).all()
    assert both[8:16].eq(1).all()
    assert both[16:24].eq(0).all()


def test_the_kernel_wants_no_more_than_a_block_has():
    places, fixed = pairs.PairsPredictor._room(WIDE)
    assert places >= 4  # chunks that one stage waits for
    assert fixed + places * (24576 + 16) + 1024 <= predictor.SHARED_BYTES_MAX


@pytest.mark.parametrize("rows", [1, 33, 64])
def test_the_cache_fits_behind_the_mail(rows):
    used = 2 * pairs.PairsPredictor._mail_halves(WIDE, rows)
    cache = rows * 8 * 5 * 2 * 15 * 128 * 2
    assert used + 127 + cache <= 4 * predictor.mail_words(WIDE, rows)


@pytest.mark.slow
def test_the_kernel_compiles_with_few_spills():
    from omnirt.kernels import cuda_module

    try:
        cuda_module._nvrtc()
    except OSError:
        pytest.skip("no NVRTC here")
    _, said = cuda_module.compile_source(pairs.PairsPredictor.program(WIDE).source, (b"--ptxas-options=-v",))
    assert int(re.findall(r"(\d+) bytes spill stores", said)[0]) <= 64
    assert "serialized" not in said
