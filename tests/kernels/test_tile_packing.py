"""Packed weights give the products of the plain ones when read the way the kernels read them."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from omnirt.kernels.tile_packing import (  # noqa: E402
    BLOCKS,
    WARPS,
    Packer,
    after,
    by_outputs,
    by_owners,
    by_parts,
    byte_fragments,
    chunks,
    dequantize,
    fragments,
    gate_and_up,
    quantize,
)


def matrix(*size):
    return torch.randn(*size, generator=torch.Generator().manual_seed(1))


def read_back(parts_bwx, n, k):
    """[blocks, n, k] from fragments, lane by lane as the tensor core's first operand: lane 4g+q has rows g and g+8 and,
    of the 32 k of two fragments, the eight from 8q on, four of them in each fragment."""
    blocks = parts_bwx.shape[0]
    tiles = torch.empty(blocks, n, k)
    view = parts_bwx.reshape(blocks, WARPS, k // WARPS // 32, 2, n // 16, 32, 8)
    for lane in range(32):
        g, q = lane // 4, lane % 4
        for half in range(2):
            words = view[:, :, :, half, :, lane].reshape(blocks, WARPS, k // WARPS // 32, n // 16, 2, 2, 2)
            for word in range(2):  # which pair of inputs
                for row in range(2):
                    first = q * 8 + half * 4 + word * 2
                    place = tiles.view(blocks, n // 16, 16, WARPS, k // WARPS // 32, 32)
                    place[:, :, g + row * 8, :, :, first : first + 2] = words[..., word, row, :].permute(0, 3, 1, 2, 4)
    return tiles


def test_fragments_hold_what_each_lane_multiplies():
    tiles = matrix(2, 32, 512)
    assert torch.equal(read_back(fragments(tiles), 32, 512), tiles)


def test_chunks_are_four_fragments_a_warp():
    packed = chunks([fragments(matrix(2, 32, 512)), fragments(matrix(2, 16, 512))])
    assert packed.shape == (2, 3, WARPS, 1024)


def test_blocks_get_their_outputs_or_their_parts():
    weight = matrix(1024, 256)
    assert torch.equal(by_outputs(weight)[3], weight[24:32])
    assert torch.equal(by_owners(weight)[3], weight[48:64])
    assert torch.equal(by_parts(weight)[3], weight[16:32, 128:])


def test_gates_and_ups_come_in_fours():
    gate, up = matrix(512, 8), matrix(512, 8) + 100
    tiles = gate_and_up(gate, up)
    assert torch.equal(tiles[1, :4], torch.cat([gate[4:6], up[4:6]]))


def test_a_norm_is_multiplied_into_the_matrix_after_it():
    weight, norm, x = matrix(16, 32), matrix(32), matrix(32)
    assert torch.allclose(after(norm, weight) @ x, weight @ (norm * x), atol=1e-5)


def test_eight_bits_lose_at_most_a_sixteenth_of_a_weight():
    tiles = matrix(2, 16, 512)
    code, scale = quantize(tiles)
    loss = (dequantize(code, scale) - tiles).abs()
    least = tiles.abs().amax(-1, keepdim=True) / 480 * 2**-7
    assert (loss <= (tiles.abs() / 16).clamp(min=2 * least)).all()


def test_bytes_lie_in_the_order_in_which_the_kernel_widens_them():
    code, _ = quantize(matrix(1, 16, 512))
    plain, mixed = fragments(code).reshape(-1, 4), byte_fragments(code).reshape(-1, 4)
    assert torch.equal(mixed, plain[:, [2, 0, 3, 1]])


def test_scales_are_padded_to_all_blocks_and_say_what_the_exponents_are_off_by():
    packer = Packer(8)
    packer(by_outputs(matrix(2048, 256)))
    packer(matrix(96, 32, 256))
    scales = packer.scales()["scales"]
    assert scales.shape == (BLOCKS, 16 + 32)
    assert torch.equal(scales[:, :16], quantize(by_outputs(matrix(2048, 256)))[1] * 2.0**-8)
    assert not scales[96:, 16:].any()
