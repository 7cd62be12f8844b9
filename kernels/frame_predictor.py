"""The code predictor of one codec frame: all inner passes, their sampling and their key/value cache, in one launch.

    shared = pack_shared(shape, weights)
    predictor = RowsPredictor(shape, shared | pack_rows(weights.predictor), 16, compiler)  # or SoloPredictor, one row
    predictor.run(hidden_cw, codes_cn, draw, mail)          # reads codes[:, 0], writes codes[:, 1:]

Pass 0 is the backbone's hidden row, projected; pass p is code p-1, looked up in a table that was projected at load.
After pass p >= 1 head p-1 gives code p. Rows never mix: every product of a row is summed in the same order whatever
the other rows are, so a row's codes do not depend on its batch mates.

Tolerance: logits within 2e-2 (relative, Frobenius) of the reference in float32; greedy codes equal unless the two best
logits are closer than that error. The reference is in `frame_reference`.

Letters: c row of the batch, n codebook, w WIDTH (2048), h predictor width, f its feed-forward width, v code.
"""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import torch
import torch.nn.functional as nn
from torch import Tensor

from omnirt.kernels.cuda_module import SHARED_BYTES_MAX, Compiler, Kernel, Program
from omnirt.kernels.frame_layout import DecoderShape, FrameShape, FrameWeights, LayerWeights, PredictorWeights
from omnirt.kernels.tile_packing import (
    BLOCKS,
    PART_BYTES,
    WARPS,
    Packer,
    after,
    by_outputs,
    by_owners,
    by_parts,
    chunks,
    gate_and_up,
)

WIDTH = 2048
"""Of the hidden rows that the kernels read. A narrower backbone's rows are followed by zeros."""
ROWS_MAX = 32
"""Of RowsPredictor. PairsPredictor (see `frame_pairs`) takes more."""
_HEAD_DIM = 128


class Draw(NamedTuple):
    """How each row draws; all [c]. temperature 0 is greedy; top_k 0 and top_p 1 keep everything."""

    temperature: Tensor
    top_k: Tensor
    top_p: Tensor
    seed: Tensor
    step: Tensor


def fits(shape: FrameShape) -> bool:
    """What the kernels are written for."""
    p = shape.predictor
    cut = (p.width, p.feed, p.heads, p.kv_heads, p.head, shape.codes, p.eps) == (1024, 3072, 16, 8, 128, 2048, 1e-6)
    return cut and p.layers <= 5 and 2 <= shape.books <= 16 and shape.backbone.width in (1024, WIDTH)


def rotary(shape: DecoderShape, positions: int, device: torch.device | str) -> Tensor:
    """[positions, 2, head / 2]: cosines, sines."""
    exponents = torch.arange(0, shape.head, 2, device=device).double() / shape.head
    angles = torch.arange(positions, device=device).double()[:, None] * shape.theta**-exponents
    return torch.stack([angles.cos(), angles.sin()], 1).float().contiguous()


# ---------------------------------------------------------------- packing


def pack_shared(shape: FrameShape, weights: FrameWeights) -> dict[str, Tensor]:
    """What the kernels for one row and many read alike: tables [n-1, v, h] of projected embeddings, heads, norms."""
    p, device = weights.predictor, weights.embed.device
    tables = torch.empty(shape.books - 1, shape.codes, shape.predictor.width, dtype=weights.embed.dtype, device=device)
    for n in range(shape.books - 1):
        rows = weights.embeds[n - 1] if n else weights.embed[: shape.codes]
        tables[n] = rows if p.projection is None else nn.linear(rows, p.projection, p.bias)
    bias = torch.zeros(shape.predictor.width, device=device) if p.bias is None else p.bias.float()
    return {"tables": tables, "bias": bias, "head_norms": head_norms(p.layers), "heads": _heads(p, Packer(16))}


def head_norms(layers: list[LayerWeights]) -> Tensor:
    """[layers, queries and keys, head]"""
    return torch.stack([torch.stack([layer.q_norm, layer.k_norm]) for layer in layers]).float()


def _heads(weights: PredictorWeights, packer: Packer) -> Tensor:
    return torch.stack([chunks([packer(by_outputs(after(weights.norm, head)))]) for head in weights.heads])


def projection_of(weights: PredictorWeights) -> Tensor:
    """Of a backbone as wide as the predictor: its rows as they are, exactly (one product by one, sums with zeros)."""
    if weights.projection is not None:
        return weights.projection
    norm = weights.norm
    return torch.eye(norm.shape[0], WIDTH, dtype=norm.dtype, device=norm.device)


def _gates(layer: LayerWeights) -> Tensor:
    return gate_and_up(after(layer.mlp_norm, layer.gate), after(layer.mlp_norm, layer.up))


def pack_solo(weights: PredictorWeights, bits: int = 16) -> dict[str, Tensor]:
    """For SoloPredictor. Norms are multiplied into the matrices that follow them."""
    own = Packer(bits)

    def one(layer: LayerWeights) -> Tensor:
        qkv, output = own(by_outputs(after(layer.attn_norm, layer.qkv))), own(by_parts(layer.output))
        return chunks([qkv, output, own(_gates(layer)), own(by_parts(layer.down))])

    layers = torch.stack([one(layer) for layer in weights.layers], 1)
    packed = {"layers": layers, "projection": chunks([own(by_parts(projection_of(weights)))]).contiguous()}
    if bits == 8:
        packed["heads"] = _heads(weights, own)
    return packed | own.scales()


def pack_rows(weights: PredictorWeights) -> dict[str, Tensor]:
    """For RowsPredictor: `output` and `down` by owners of 16 outputs; norms are multiplied in."""
    own = Packer(16)

    def read_by_all(layer: LayerWeights) -> Tensor:
        return chunks([own(by_outputs(after(layer.attn_norm, layer.qkv))), own(_gates(layer))])

    def owned(layer: LayerWeights) -> Tensor:
        return chunks([own(by_owners(weight)) for weight in (layer.output, layer.down)])

    return {
        "layers": torch.stack([read_by_all(layer) for layer in weights.layers], 1),
        "owned": torch.stack([owned(layer) for layer in weights.layers], 1),
        "projection": chunks([own(by_owners(projection_of(weights)))]).contiguous(),
    }


# ---------------------------------------------------------------- the kernels

_POINTERS = (
    *("layers", "projection", "heads", "owned", "scales", "tables", "hidden", "bias", "head_norms", "rotary"),
    *("codes", "mail", "temperature", "top_p", "top_k", "step", "seed", "logits", "cache"),
)


class _Arguments(ctypes.Structure):
    _fields_ = [*((name, ctypes.c_void_p) for name in _POINTERS), ("rows", ctypes.c_int), ("forced", ctypes.c_int)]


def mail_words(shape: FrameShape, rows: int) -> int:
    """Of four bytes: what travels between blocks in one launch."""
    p = shape.predictor
    hidden_parts = BLOCKS // (p.width // 16) * p.width
    layer = 4096 + 2048 + 2 * hidden_parts + p.feed
    passes = (hidden_parts + shape.books * p.layers * layer) // 2
    return rows * (passes + (shape.books - 1) * (shape.codes + 1))


class Predictor:
    """What the kernels share: arguments, the call."""

    def __init__(self, shape: FrameShape, packed: dict[str, Tensor], rows_max: int, kernel: Kernel) -> None:
        self._shape, self._packed, self._rows_max, self._kernel = shape, packed, rows_max, kernel
        self._rotary = rotary(shape.predictor, shape.books, packed["layers"].device)
        self._argument = _Arguments()

    def run(
        self,
        hidden_cw: Tensor,
        codes_cn: Tensor,
        draw: Draw,
        mail: Tensor,
        *,
        logits: Tensor | None = None,
        forced: bool = False,
    ) -> None:
        """Tensors must stay where they are as long as a graph that captured this is replayed. `mail` [words] int32 is
        nobody's before and after. With `forced` codes are taken as given. `logits` [n-1, c, v] float32."""
        rows = hidden_cw.shape[0]
        assert rows <= self._rows_max, rows
        assert hidden_cw.shape[1] == WIDTH
        mail[: mail_words(self._shape, rows)].fill_(-1)
        named = {
            **self._packed,
            **draw._asdict(),
            "hidden": hidden_cw,
            "codes": codes_cn,
            "mail": mail,
            "rotary": self._rotary,
            "logits": logits,
        }
        for name in _POINTERS:
            tensor = named.get(name)
            setattr(self._argument, name, None if tensor is None else tensor.data_ptr())
        for name, address in self.more(rows, mail).items():
            setattr(self._argument, name, address)
        self._argument.rows, self._argument.forced = rows, int(forced)
        self._kernel.launch(self._argument)

    def more(self, rows: int, mail: Tensor) -> dict[str, int]:
        """Addresses that are arguments of one kernel only."""
        return {}


SHARED_FILES = ("grid_mail.cuh", "predictor_arguments.cuh", "row_sampling.cuh")
THREADS = WARPS * 32 + 32


def sizes(shape: FrameShape, part: int, places: int) -> tuple[tuple[str, int], ...]:
    p = shape.predictor
    return (
        *(("HID", p.width), ("FFN", p.feed), ("LAYERS", p.layers), ("WIDTH", WIDTH), ("CODES", shape.codes)),
        *(("PASSES", shape.books), ("WARPS", WARPS), ("PART", part), ("PLACES", places)),
    )


class SoloPredictor(Predictor):
    """The kernel for one row: `packed` is that of pack_shared and pack_solo."""

    def __init__(self, shape: FrameShape, packed: dict[str, Tensor], compiler: Compiler, bits: int = 16) -> None:
        layers, part, places = shape.predictor.layers, PART_BYTES * bits // 16, self._places(bits)
        shared = places * (WARPS * part + 16) + layers * 4 * 2 * (shape.books - 1) * 256 + 2048
        shared += 2 * WARPS * 52 * 4 + 2 * WARPS * 4 + 512 + WARPS * 192 * 2 + layers * 512
        shared += 4 * (layers * 112 + shape.books * 16) if bits == 8 else 0
        code = compiler.code(self.program(shape, bits))
        kernel = Kernel(code, "frame_solo", blocks=BLOCKS, threads=THREADS, shared_bytes=shared)
        super().__init__(shape, packed, 1, kernel)

    @staticmethod
    def _places(bits: int) -> int:
        return 7 if bits == 8 else 4

    @staticmethod
    def program(shape: FrameShape, bits: int = 16) -> Program:
        named = sizes(shape, PART_BYTES * bits // 16, SoloPredictor._places(bits))
        return Program("frame_solo", (*SHARED_FILES, "frame_solo.cu"), (*named, ("AHEAD", 0), ("EIGHT", bits // 8 % 2)))


class RowsPredictor(Predictor):
    """The kernel for up to `rows_max` (at most ROWS_MAX) rows: `packed` is that of pack_shared and pack_rows."""

    def __init__(self, shape: FrameShape, packed: dict[str, Tensor], rows_max: int, compiler: Compiler) -> None:
        assert rows_max <= ROWS_MAX, rows_max
        places, fixed = self._room(shape, rows_max)
        shared = fixed + places * (WARPS * PART_BYTES + 16)
        code = compiler.code(self.program(shape, rows_max))
        kernel = Kernel(code, "frame_rows", blocks=BLOCKS, threads=THREADS, shared_bytes=shared)
        super().__init__(shape, packed, rows_max, kernel)

    @staticmethod
    def _room(shape: FrameShape, rows_max: int) -> tuple[int, int]:
        """Places of the ring, and the bytes of shared memory beside it."""
        pairs, layers = (rows_max + 15) // 16, shape.predictor.layers
        fixed = pairs * (layers * 2 * (shape.books - 1) * 256 + 512) + 2 * 4 * (WARPS * 8 * 52 + 64) + 512
        fixed += WARPS * 256 + layers * 512
        return min((SHARED_BYTES_MAX - 128 - fixed) // (WARPS * PART_BYTES + 16), 6), fixed

    @staticmethod
    def program(shape: FrameShape, rows_max: int) -> Program:
        places, _ = RowsPredictor._room(shape, rows_max)
        named = sizes(shape, PART_BYTES, places)
        return Program("frame_rows", (*SHARED_FILES, "frame_rows.cu"), (*named, ("NT", (rows_max + 7) // 8)))
