"""The backbone of one codec frame in one launch: all layers at one position of up to 16 rows, the head, the hidden rows.

    step = TalkerStep(packed, rows_max=16)
    step.run(x_cw, keys, values, positions_c, hidden_cw, logits_cv)

Writes each row's new key and value at its position. Tolerance against `frame_predictor.layer_reference` in float32,
layer after layer: hidden rows within 5e-2 (28 bfloat16 layers), as plain bfloat16.

Letters: c row, w width, v code, l layer. keys, values: [l, c, 8, length, 128].
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch
from torch import Tensor

from cuda_module import Kernel
from frame_predictor import LayerWeights
from tile_packing import (BLOCKS, PART_BYTES, WARPS, by_outputs, byte_chunks, byte_fragments, chunks, fragments, gate_and_up,
                          quantize)

_POINTERS = "layers head head_norms norm rotary x hidden logits keys values positions mail scales".split()


class _Arguments(ctypes.Structure):
    _fields_ = [*((name, ctypes.c_void_p) for name in _POINTERS),
                *((name, ctypes.c_int) for name in ("rows", "length", "parts"))]


def pack_talker(layers: list[LayerWeights], norm: Tensor, head_vw: Tensor, cosines: Tensor, sines: Tensor) -> dict[str, Tensor]:
    def own(tiles_bnk: Tensor) -> Tensor:
        return fragments(tiles_bnk)

    def after(scale: Tensor, weight_nk: Tensor) -> Tensor:
        return (weight_nk.float() * scale.float()).to(weight_nk.dtype)

    def packed(layer: LayerWeights) -> Tensor:
        gates = gate_and_up(after(layer.mlp_norm, layer.gate), after(layer.mlp_norm, layer.up))
        return chunks([own(by_outputs(after(layer.attn_norm, layer.qkv))), own(by_outputs(layer.output)), own(gates),
                       own(by_outputs(layer.down))])

    return {
        "layers": torch.stack([packed(layer) for layer in layers], 1).contiguous(),
        "head": chunks([own(after(norm, head_vw).reshape(-1, 32, head_vw.shape[1]))]),
        "head_norms": torch.stack([torch.stack([layer.q_norm, layer.k_norm]) for layer in layers]).float(),
        "norm": norm.float(),
        "rotary": torch.stack([cosines, sines], 1).contiguous(),
    }


def pack_talker_bytes(layers: list[LayerWeights], norm: Tensor, head_vw: Tensor, cosines: Tensor, sines: Tensor) -> dict[str, Tensor]:
    """As `pack_talker`, with eight bits for each weight: for `eight`."""
    scales: list[Tensor] = []

    def own(tiles_bnk: Tensor) -> Tensor:
        code, scale = quantize(tiles_bnk)
        scales.append(torch.nn.functional.pad(scale, (0, 0, 0, BLOCKS - scale.shape[0])))
        return byte_fragments(code)

    def packed(layer: LayerWeights) -> Tensor:
        attn, mlp = layer.attn_norm.float(), layer.mlp_norm.float()
        return byte_chunks([own(by_outputs(layer.qkv * attn)), own(by_outputs(layer.output)),
                            own(gate_and_up(layer.gate * mlp, layer.up * mlp)), own(by_outputs(layer.down))])

    return {
        "layers": torch.stack([packed(layer) for layer in layers], 1).contiguous(),
        "head": byte_chunks([own((head_vw * norm.float()).reshape(-1, 32, head_vw.shape[1]))]),
        "head_norms": torch.stack([torch.stack([layer.q_norm, layer.k_norm]) for layer in layers]).float(),
        "norm": norm.float(),
        "rotary": torch.stack([cosines, sines], 1).contiguous(),
        "scales": torch.cat(scales, 1).mul(2.0**-8).contiguous(),
    }


class TalkerStep:
    def __init__(self, packed: dict[str, Tensor], rows_max: int, places: int = 8, names: dict[str, int] | None = None,
                 eight: bool = False) -> None:
        assert rows_max <= 16
        self.packed, self.layers = packed, packed["layers"].shape[1]
        part = PART_BYTES // 2 if eight else PART_BYTES
        shared = (places * (WARPS * part + 16) + 4 * (2 * WARPS * 8 * 100 + 128 + WARPS * 256 + WARPS * 4) + self.layers * 512
                  + (4 * (self.layers * 160 + 32) if eight else 0))
        self.kernel = Kernel(
            [Path(__file__).with_name(name) for name in ("grid_mail.cuh", "talker_rows.cu")],
            "talker_rows",
            {"HID": 2048, "FFN": 6144, "LAYERS": self.layers, "VOCAB": packed["head"].shape[0] * 32,
             "NT": (rows_max + 7) // 8, "WARPS": WARPS, "PART": part, "PLACES": places, "EIGHT": int(eight), **(names or {})},
            blocks=BLOCKS, threads=WARPS * 32 + 32, shared_bytes=shared)
        self.mail = torch.empty(self._mail_words(rows_max), dtype=torch.int32, device=packed["layers"].device)
        self._argument = _Arguments()

    def _mail_words(self, rows: int) -> int:
        return self.layers * (rows * (4096 + 2048 + 2 * 2048 + 6144) // 2 + BLOCKS * 260)

    def run(self, x_cw: Tensor, keys: Tensor, values: Tensor, positions_c: Tensor, hidden_cw: Tensor, logits_cv: Tensor) -> None:
        rows = x_cw.shape[0]
        self.mail[: self._mail_words(rows)].fill_(-1)
        named = {**self.packed, "x": x_cw, "keys": keys, "values": values, "positions": positions_c, "hidden": hidden_cw,
                 "logits": logits_cv, "mail": self.mail}
        for name, tensor in named.items():
            setattr(self._argument, name, tensor.data_ptr())
        self._argument.rows, self._argument.length = rows, keys.shape[3]
        self._argument.parts = max(1, BLOCKS // (rows * 8))
        self.kernel.launch(self._argument)
