"""The code predictor of one codec frame for up to 64 rows, by pairs of blocks: what RowsPredictor does for fewer.

    predictor = PairsPredictor(shape, pack_shared(shape, weights) | pack_pairs(weights.predictor), compiler)
    predictor.run(hidden_cw, codes_cn, draw, mail)          # as RowsPredictor

Both blocks of a pair have the same outputs and half of the inputs each, so that a row's inputs are read by 64 pairs and
not by 128 blocks; see pair_stage.cuh. Device: 64 clusters of two blocks must fit at once (an H200 has room for 66).

Invariants and tolerance: those of `frame_predictor`. A row's numbers do not depend on the number of rows. They are not
bit for bit those of RowsPredictor: inputs are summed in another order.

Letters: n output, k input.
"""

from __future__ import annotations

import torch
from torch import Tensor

from omnirt.kernels.cuda_module import SHARED_BYTES_MAX, Compiler, Kernel, Program
from omnirt.kernels.frame_layout import FrameShape, LayerWeights, PredictorWeights
from omnirt.kernels.frame_predictor import SHARED_FILES, THREADS, Predictor, mail_words, projection_of, sizes
from omnirt.kernels.tile_packing import BLOCKS, PART_BYTES, WARPS, after

ROWS_MAX = 64
_PAIRS = BLOCKS // 2
_PLACE_BYTES = 24576
"""Of the ring; a chunk has up to that many."""


def pair_tiles(weight_nk: Tensor) -> Tensor:
    """[n, k] -> [blocks, n / 64 * k / 2]: a pair has a 64th of the outputs, a block its half of k.

    Pieces of 32 k, each for both warpgroups (they halve k again), outputs, each 64 bytes of k. Among 16 outputs and
    among 32 k, the order is such that a lane of the tensor core has four neighbours and eight. Of an output i (of
    eight) the 16-byte piece c is at c ^ (i / 2): the tensor core's own order for 64 bytes.
    """
    n, k = weight_nk.shape
    view = weight_nk.reshape(_PAIRS, n // _PAIRS // 16, 4, 2, 2, 2, 2, k // 128, 4, 2, 2, 2)
    # pair, 16 outputs, lane, half, e; block, warpgroup, piece, lane, step, half, e
    rows = view.permute(0, 5, 7, 6, 1, 3, 2, 4, 9, 10, 8, 11).reshape(-1, 8, 4, 8)
    turned = [rows[:, i, [c ^ (i // 2) for c in range(4)]] for i in range(8)]
    return torch.stack(turned, 1).reshape(BLOCKS, -1)


def _gates(layer: LayerWeights) -> Tensor:
    """Outputs in turn: eight gates, eight ups."""
    f, k = layer.gate.shape
    eights = [after(layer.mlp_norm, weight).reshape(f // 8, 1, 8, k) for weight in (layer.gate, layer.up)]
    return torch.cat(eights, 1).reshape(2 * f, k)


def pack_pairs(weights: PredictorWeights) -> dict[str, Tensor]:
    """For PairsPredictor; over what pack_shared gives, of which it replaces the heads. Norms are multiplied in."""

    def one(layer: LayerWeights) -> Tensor:
        matrices = (after(layer.attn_norm, layer.qkv), layer.output, _gates(layer), layer.down)
        return torch.cat([pair_tiles(matrix) for matrix in matrices], 1)

    return {
        "layers": torch.stack([one(layer) for layer in weights.layers], 1),
        "projection": pair_tiles(projection_of(weights)),
        "heads": torch.stack([pair_tiles(after(weights.norm, head)) for head in weights.heads]),
    }


class PairsPredictor(Predictor):
    """The kernel for up to ROWS_MAX rows: `packed` is that of pack_shared and pack_pairs."""

    def __init__(self, shape: FrameShape, packed: dict[str, Tensor], compiler: Compiler) -> None:
        places, fixed = self._room(shape)
        shared = fixed + places * (_PLACE_BYTES + 16)
        code = compiler.code(self.program(shape))
        kernel = Kernel(code, "frame_pairs", blocks=BLOCKS, threads=THREADS, shared_bytes=shared)
        super().__init__(shape, packed, ROWS_MAX, kernel)

    def more(self, rows: int, mail: Tensor) -> dict[str, int]:
        """The cache lies behind this kernel's mail, which is shorter than what mail_words counts."""
        used = 2 * self._mail_halves(self._shape, rows)
        begin = (used + 127) // 128 * 128
        p = self._shape.predictor
        cache = rows * p.kv_heads * p.layers * 2 * (self._shape.books - 1) * p.head * 2
        assert begin + cache <= 4 * mail_words(self._shape, rows)
        return {"cache": mail.data_ptr() + begin}

    @staticmethod
    def _mail_halves(shape: FrameShape, rows: int) -> int:
        """As the kernel counts: hidden rows; of every layer and pass; logits and codes."""
        p = shape.predictor
        layer = 4096 + 2048 + 2 * p.width + p.feed
        return rows * (p.width + shape.books * p.layers * layer + 2 * (shape.books - 1) * (shape.codes + 1))

    @staticmethod
    def _room(shape: FrameShape) -> tuple[int, int]:
        """Places of the ring, and the bytes of shared memory beside it."""
        regions = 2 * ROWS_MAX * (52 + 8) * 4
        desk, tiles = WARPS * 6 * 512, 4 * 8192
        small = 4 * ROWS_MAX * 4 + 512 + WARPS * 256 + shape.predictor.layers * 512 + 24
        fixed = regions + desk + tiles + small
        return (SHARED_BYTES_MAX - 1024 - fixed) // (_PLACE_BYTES + 16), fixed

    @staticmethod
    def program(shape: FrameShape) -> Program:
        places, _ = PairsPredictor._room(shape)
        files = (*SHARED_FILES, "warpgroup.cuh", "pair_stage.cuh", "frame_pairs.cu")
        return Program("frame_pairs", files, sizes(shape, PART_BYTES, places))
