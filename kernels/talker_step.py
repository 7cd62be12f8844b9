"""The backbone of one codec frame in one launch: all layers at one position of up to 16 rows, head, hidden rows.

    step = TalkerStep(shape, pack_talker(weights), 16, compiler, row_pages=...)
    step.run(TalkerRows(...), mail)

Writes each active row's new key and value at its position; a row that is not active attends to nothing and writes
none. Rows never mix, and how a row's positions are shared out depends on how many rows take part only: a row's numbers
do not depend on its batch mates.

Tolerance: hidden rows within 5e-2 (28 bfloat16 layers) of the reference in float32, as plain bfloat16.

Letters: c row, w width, v code, l layer, p page.
"""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import torch
from torch import Tensor

from omnirt.kernels.cuda_module import Compiler, Kernel, Program
from omnirt.kernels.frame_layout import PAGE, FrameShape, FrameWeights, LayerWeights
from omnirt.kernels.frame_predictor import head_norms
from omnirt.kernels.tile_packing import BLOCKS, PART_BYTES, WARPS, Packer, after, by_outputs, chunks, gate_and_up

ROWS_MAX = 16
_PLACES = 8
"""Of the ring: 4, 6 or 8 measure the same."""
_POINTERS = (
    *("layers", "head", "head_norms", "norm", "rotary", "x", "hidden", "logits", "keys", "values"),
    *("positions", "tables", "active", "mail", "scales"),
)


class _Arguments(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in _POINTERS),
        *((name, ctypes.c_int) for name in ("rows", "pages", "row_pages", "parts")),
    ]


class TalkerRows(NamedTuple):
    """x [c, w], keys and values [l, p, h, PAGE, d], positions [c] int64, tables [c, n] and active [c] int32; written:
    hidden [c, w], logits [c, v] float32. rotary [positions, 2, d / 2] float32."""

    x: Tensor
    keys: Tensor
    values: Tensor
    positions: Tensor
    tables: Tensor
    active: Tensor
    rotary: Tensor
    hidden: Tensor
    logits: Tensor


def fits(shape: FrameShape) -> bool:
    """What the kernel is written for. Some blocks must be left over by the head."""
    b = shape.backbone
    cut = (b.width, b.feed, b.heads, b.kv_heads, b.head, b.eps) == (2048, 6144, 16, 8, 128, 1e-6)
    return cut and b.layers <= 28 and shape.vocab % 32 == 0 and shape.vocab <= 32 * (BLOCKS - 16)


def pack_talker(weights: FrameWeights, bits: int = 16) -> dict[str, Tensor]:
    """Layer by layer into one place, so that no more than a layer is there three times at any moment."""
    own = Packer(bits)

    def packed(layer: LayerWeights) -> Tensor:
        gates = gate_and_up(after(layer.mlp_norm, layer.gate), after(layer.mlp_norm, layer.up))
        qkv = own(by_outputs(after(layer.attn_norm, layer.qkv)))
        return chunks([qkv, own(by_outputs(layer.output)), own(gates), own(by_outputs(layer.down))])

    layers: Tensor | None = None
    for i, layer in enumerate(weights.layers):
        one = packed(layer)
        if layers is None:
            layers = torch.empty(BLOCKS, len(weights.layers), *one.shape[1:], dtype=one.dtype, device=one.device)
        layers[:, i] = one
    assert layers is not None
    head = after(weights.norm, weights.head)
    return {
        "layers": layers,
        "head": chunks([own(head.reshape(-1, 32, head.shape[1]))]).contiguous(),
        "head_norms": head_norms(weights.layers),
        "norm": weights.norm.float(),
        **own.scales(),
    }


def mail_words(shape: FrameShape, rows: int) -> int:
    """Of four bytes: what travels between blocks in one launch."""
    b = shape.backbone
    return b.layers * (rows * (4096 + 2048 + 2 * b.width + b.feed) // 2 + BLOCKS * 260)


class TalkerStep:
    """For up to `rows_max` rows. `packed` is that of pack_talker with as many bits."""

    def __init__(
        self,
        shape: FrameShape,
        packed: dict[str, Tensor],
        rows_max: int,
        compiler: Compiler,
        *,
        row_pages: int,
        bits: int = 16,
    ) -> None:
        assert rows_max <= ROWS_MAX
        self._shape, self._packed, self._rows_max = shape, packed, rows_max
        layers, part = shape.backbone.layers, PART_BYTES * bits // 16
        shared = _PLACES * (WARPS * part + 16) + 4 * (2 * WARPS * 8 * 100 + 128 + WARPS * 256 + WARPS * 4)
        shared += layers * 512 + 4 * ((row_pages + 3) // 4 * 4) + (4 * (layers * 160 + 32) if bits == 8 else 0)
        code = compiler.code(self.program(shape, rows_max, bits))
        self._kernel = Kernel(code, "talker_rows", blocks=BLOCKS, threads=WARPS * 32 + 32, shared_bytes=shared)
        self._argument = _Arguments()

    @staticmethod
    def program(shape: FrameShape, rows_max: int, bits: int = 16) -> Program:
        b = shape.backbone
        definitions = (
            *(("HID", b.width), ("FFN", b.feed), ("LAYERS", b.layers), ("VOCAB", shape.vocab), ("PAGE", PAGE)),
            *(("NT", (rows_max + 7) // 8), ("WARPS", WARPS), ("PART", PART_BYTES * bits // 16), ("PLACES", _PLACES)),
            ("EIGHT", bits // 8 % 2),
        )
        return Program("talker_rows", ("grid_mail.cuh", "talker_rows.cu"), definitions)

    def run(self, at: TalkerRows, mail: Tensor) -> None:
        """Tensors must stay where they are as long as a graph that captured this is replayed. `mail` [words] int32 is
        nobody's before and after."""
        rows = at.x.shape[0]
        assert rows <= self._rows_max, rows
        assert at.logits.dtype == torch.float32
        mail[: mail_words(self._shape, rows)].fill_(-1)
        named = {**self._packed, **at._asdict(), "mail": mail}
        for name in _POINTERS:
            tensor = named.get(name)
            setattr(self._argument, name, None if tensor is None else tensor.data_ptr())
        argument = self._argument
        argument.rows, argument.pages, argument.row_pages = rows, at.keys.shape[1], at.tables.shape[1]
        argument.parts = max(1, BLOCKS // (rows * at.keys.shape[2]))
        self._kernel.launch(argument)
