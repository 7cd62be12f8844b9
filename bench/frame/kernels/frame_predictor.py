"""The code predictor of one codec frame: all inner passes, their sampling and their key/value cache, in one launch.

    predictor = RowsPredictor(shape, pack_rows(weights), rows_max=16)     # or SoloPredictor(shape, pack(weights)) for one row
    predictor.run(hidden_cw, codes_cn, sampling)                          # reads codes[:, 0], writes codes[:, 1:]

Pass 0 is the backbone's hidden row, projected; pass p is code p-1, looked up in a table that was projected at load.
After pass p >= 1 head p-1 gives code p. Rows never mix: every product of a row is summed in the same order whatever
the number of rows, so a row's codes do not depend on its batch mates.

Tolerance: logits within 2e-2 (relative, Frobenius) of `reference` in float32; greedy codes equal unless the two best
logits are closer than that error.

Letters: c row of the batch, n codebook, w backbone width, h predictor width, f its feed-forward width, v code.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as nn
from torch import Tensor

from cuda_module import Kernel
from philox import uniform
from tile_packing import (BLOCKS, PART_BYTES, WARPS, by_outputs, by_parts, byte_chunks, byte_fragments, chunks, fragments,
                          gate_and_up, quantize)

EPS = 1e-6
HEADS, KV_HEADS, HEAD_DIM = 16, 8, 128
"""What the kernel is written for."""


@dataclass(frozen=True)
class PredictorShape:
    d_model: int = 1024
    d_ffn: int = 3072
    layers: int = 5
    d_backbone: int = 2048
    codes: int = 2048
    codebooks: int = 16
    rope_theta: float = 1e6


@dataclass
class LayerWeights:
    """As in the checkpoint; q, k, v in one matrix."""

    attn_norm: Tensor
    qkv: Tensor
    q_norm: Tensor
    k_norm: Tensor
    output: Tensor
    mlp_norm: Tensor
    gate: Tensor
    up: Tensor
    down: Tensor


@dataclass
class PredictorWeights:
    layers: list[LayerWeights]
    norm: Tensor
    projection: Tensor
    projection_bias: Tensor
    heads: list[Tensor]
    tables: list[Tensor]
    """codebooks - 1 of [v, h]: the embeddings of code n, projected."""


@dataclass
class Sampling:
    """One entry per row. temperature 0 is greedy; top_k 0 and top_p 1 keep everything."""

    temperature: Tensor
    top_k: Tensor
    top_p: Tensor
    seed: Tensor
    step: Tensor


def rotary(shape: PredictorShape, positions: int, device: torch.device | str) -> tuple[Tensor, Tensor]:
    inverse = shape.rope_theta ** (-torch.arange(0, HEAD_DIM, 2, device=device).double() / HEAD_DIM)
    angles = torch.arange(positions, device=device).double()[:, None] * inverse
    return angles.cos().float(), angles.sin().float()


# ---------------------------------------------------------------- the twin


def _rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat([a * cosine - b * sine, b * cosine + a * sine], -1).to(x.dtype)


def layer_reference(x_ch: Tensor, layer: LayerWeights, cache: list[Tensor], turn: tuple[Tensor, Tensor]) -> Tensor:
    """One position of every row through one layer; cache = [keys, values], each [c, kv_heads, positions, head_dim]."""
    rows, dtype = x_ch.shape[0], x_ch.dtype
    w = {name: value.to(dtype) for name, value in vars(layer).items()}
    mixed = nn.linear(nn.rms_norm(x_ch, x_ch.shape[-1:], w["attn_norm"], EPS), w["qkv"]).view(rows, -1, HEAD_DIM)
    kv_heads = cache[0].shape[1]
    q, k, v = mixed.split([mixed.shape[1] - 2 * kv_heads, kv_heads, kv_heads], 1)
    q = _rotate(nn.rms_norm(q, (HEAD_DIM,), w["q_norm"], EPS), *turn)
    k = _rotate(nn.rms_norm(k, (HEAD_DIM,), w["k_norm"], EPS), *turn)
    cache[0], cache[1] = torch.cat([cache[0], k[:, :, None]], 2), torch.cat([cache[1], v[:, :, None]], 2)
    mixed = nn.scaled_dot_product_attention(q[:, :, None], cache[0], cache[1], enable_gqa=True)
    x_ch = x_ch + nn.linear(mixed.reshape(rows, -1), w["output"])
    y = nn.rms_norm(x_ch, x_ch.shape[-1:], w["mlp_norm"], EPS)
    return x_ch + nn.linear(nn.silu(nn.linear(y, w["gate"])) * nn.linear(y, w["up"]), w["down"])


def sample_reference(logits_cv: Tensor, codebook: int, sampling: Sampling) -> Tensor:
    """Temperature, top-k and top-p on bfloat16-rounded logits (ties at the edge stay), Gumbel-max."""
    rounded = logits_cv.bfloat16().float()
    heat = sampling.temperature[:, None]
    vocab = logits_cv.shape[1]
    keep = torch.where(sampling.top_k > 0, sampling.top_k, vocab).clamp(max=vocab).long()[:, None]
    ordered = rounded.sort(-1, descending=True).values
    kept = rounded >= ordered.gather(1, keep - 1)
    mass = torch.where(kept, ((rounded - ordered[:, :1]) / heat.clamp(min=1e-6)).exp(), 0)
    above = torch.stack([torch.where(rounded > edge[:, None], mass, 0).sum(-1) for edge in rounded.unbind(1)], 1) \
        if bool((sampling.top_p < 1).any()) else torch.zeros_like(mass)
    kept &= (above < sampling.top_p[:, None] * mass.sum(-1, keepdim=True)) | (sampling.top_p[:, None] >= 1)
    noise = -(-uniform(sampling.seed, sampling.step, codebook, vocab).log()).log()
    drawn = torch.where(kept, rounded / heat.clamp(min=1e-6) + noise, -1e30).argmax(-1)
    return torch.where(sampling.temperature > 0, drawn, logits_cv.argmax(-1))


def reference(shape: PredictorShape, weights: PredictorWeights, hidden_cw: Tensor, codes_cn: Tensor,
              sampling: Sampling | None, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """(codes [c, n], logits [n-1, c, v]). Without `sampling` the codes are taken as given."""
    codes, logits = codes_cn.clone(), []
    rows, device = hidden_cw.shape[0], hidden_cw.device
    cosines, sines = rotary(shape, shape.codebooks, device)
    empty = torch.zeros(rows, KV_HEADS, 0, HEAD_DIM, device=device, dtype=dtype)
    caches = [[empty, empty] for _ in weights.layers]
    x = nn.linear(hidden_cw.to(dtype), weights.projection.to(dtype), weights.projection_bias.to(dtype))
    for step in range(shape.codebooks):
        if step:
            x = weights.tables[step - 1][codes[:, step - 1].long()].to(dtype)
        for layer, cache in zip(weights.layers, caches, strict=True):
            x = layer_reference(x, layer, cache, (cosines[step], sines[step]))
        if step:
            out = nn.linear(nn.rms_norm(x, x.shape[-1:], weights.norm.to(dtype), EPS), weights.heads[step - 1].to(dtype))
            logits.append(out.float())
            if sampling:
                codes[:, step] = sample_reference(logits[-1], step, sampling).to(codes.dtype)
    return codes, torch.stack(logits)


# ---------------------------------------------------------------- the kernel

_POINTERS = ("layers projection heads owned scales tables hidden bias head_norms rotary codes mail "
             "temperature top_p top_k step seed logits cache").split()


class _Arguments(ctypes.Structure):
    _fields_ = [*((name, ctypes.c_void_p) for name in _POINTERS), ("rows", ctypes.c_int), ("forced", ctypes.c_int)]


def pack(weights: PredictorWeights) -> dict[str, Tensor]:
    """For SoloPredictor. Norms are multiplied into the matrices that follow them."""

    def own(tiles_bnk: Tensor) -> Tensor:
        return fragments(tiles_bnk)

    def after(norm: Tensor, weight_nk: Tensor) -> Tensor:
        return (weight_nk.float() * norm.float()).to(weight_nk.dtype)

    layers = [chunks([own(by_outputs(after(layer.attn_norm, layer.qkv))), own(by_parts(layer.output)),
                      own(gate_and_up(after(layer.mlp_norm, layer.gate), after(layer.mlp_norm, layer.up))),
                      own(by_parts(layer.down))])
              for layer in weights.layers]
    return {
        "layers": torch.stack(layers, 1).contiguous(),
        "projection": chunks([own(by_parts(weights.projection))]),
        "heads": torch.stack([chunks([own(by_outputs(after(weights.norm, head)))]) for head in weights.heads]),
        "tables": torch.stack(weights.tables).contiguous(),
        "bias": weights.projection_bias.float(),
        "head_norms": torch.stack([torch.stack([layer.q_norm, layer.k_norm]) for layer in weights.layers]).float(),
    }


class _Launch:
    """What both kernels share: mail, arguments, the call."""

    shape: PredictorShape
    packed: dict[str, Tensor]
    rows_max: int
    kernel: Kernel

    def _allocate_mail(self, device: torch.device) -> None:
        shape = self.shape
        hidden_parts = BLOCKS // (shape.d_model // 16) * shape.d_model
        layer_mail = 4096 + 2048 + 2 * hidden_parts + shape.d_ffn
        self._row_words = (hidden_parts + shape.codebooks * shape.layers * layer_mail) // 2 \
            + (shape.codebooks - 1) * (shape.codes + 1)
        self.mail = torch.empty(self._row_words * self.rows_max, dtype=torch.int32, device=device)
        cosines, sines = rotary(shape, shape.codebooks, device)
        self.rotary = torch.stack([cosines, sines], 1).contiguous()
        self._argument = _Arguments()

    def run(self, hidden_cw: Tensor, codes_cn: Tensor, sampling: Sampling, logits: Tensor | None = None,
            forced: bool = False, fill: bool = True) -> None:
        """Tensors must stay where they are as long as a graph that captured this is replayed."""
        rows = hidden_cw.shape[0]
        if fill:
            self.mail[: self._row_words * rows].fill_(-1)
        named: Sequence[tuple[str, Tensor | None]] = [
            *self.packed.items(), ("hidden", hidden_cw), ("codes", codes_cn), ("mail", self.mail),
            ("rotary", self.rotary), ("logits", logits), *vars(sampling).items()]
        for name, tensor in named:
            setattr(self._argument, name, None if tensor is None else tensor.data_ptr())
        self._argument.rows, self._argument.forced = rows, int(forced)
        self.kernel.launch(self._argument)


def pack_bytes(weights: PredictorWeights) -> dict[str, Tensor]:
    """For SoloPredictor with `eight`: as `pack`, with eight bits for each weight."""
    scales: list[Tensor] = []

    def own(tiles_bnk: Tensor) -> Tensor:
        code, scale = quantize(tiles_bnk)
        scales.append(scale)
        return byte_fragments(code)

    def after(norm: Tensor, weight_nk: Tensor) -> Tensor:
        return weight_nk.float() * norm.float()

    layers = [byte_chunks([own(by_outputs(after(layer.attn_norm, layer.qkv))), own(by_parts(layer.output)),
                           own(gate_and_up(after(layer.mlp_norm, layer.gate), after(layer.mlp_norm, layer.up))),
                           own(by_parts(layer.down))]) for layer in weights.layers]
    projection = byte_chunks([own(by_parts(weights.projection))])
    heads = torch.stack([byte_chunks([own(by_outputs(after(weights.norm, head)))]) for head in weights.heads])
    packed = pack(weights) | {"layers": torch.stack(layers, 1).contiguous(), "projection": projection, "heads": heads}
    return packed | {"scales": torch.cat(scales, 1).mul(2.0**-8).contiguous()}


class SoloPredictor(_Launch):
    """The kernel for one row: `packed` comes from `pack`."""

    def __init__(self, shape: PredictorShape, packed: dict[str, Tensor], names: dict[str, int] | None = None,
                 eight: bool = False) -> None:
        self.shape, self.rows_max, self.packed = shape, 1, packed
        device = packed["layers"].device
        places, warps, part = (7, WARPS, PART_BYTES // 2) if eight else (4, WARPS, PART_BYTES)
        cache = shape.layers * 4 * 2 * (shape.codebooks - 1) * 256 + 2048
        shared = places * (warps * part + 16) + cache + 2 * warps * 52 * 4 + 2 * warps * 4 + 512 + warps * 192 * 2 + shape.layers * 512
        shared += 4 * (shape.layers * 112 + shape.codebooks * 16) if eight else 0
        self.kernel = Kernel(
            [Path(__file__).with_name(name) for name in
             ("grid_mail.cuh", "predictor_arguments.cuh", "row_sampling.cuh", "frame_solo.cu")], "frame_solo",
            {"HID": shape.d_model, "FFN": shape.d_ffn, "LAYERS": shape.layers, "WIDTH": shape.d_backbone,
             "CODES": shape.codes, "PASSES": shape.codebooks, "WARPS": warps, "PART": part,
             "PLACES": places, "AHEAD": 0, "EIGHT": int(eight), **(names or {})},
            blocks=BLOCKS, threads=warps * 32 + 32, shared_bytes=shared)
        self._allocate_mail(device)


def pack_rows(weights: PredictorWeights) -> dict[str, Tensor]:
    """For RowsPredictor: `output` and `down` by owners of 16 outputs; norms are multiplied in."""
    def own(tiles_bnk: Tensor) -> Tensor:
        return fragments(tiles_bnk)

    def after(norm: Tensor, weight_nk: Tensor) -> Tensor:
        return (weight_nk.float() * norm.float()).to(weight_nk.dtype)

    def read_by_all(layer: LayerWeights) -> Tensor:
        gates = gate_and_up(after(layer.mlp_norm, layer.gate), after(layer.mlp_norm, layer.up))
        return chunks([own(by_outputs(after(layer.attn_norm, layer.qkv))), own(gates)])

    def owned(layer: LayerWeights) -> Tensor:
        return chunks([own(weight.reshape(64, 16, -1)) for weight in (layer.output, layer.down)])

    return pack(weights) | {
        "layers": torch.stack([read_by_all(layer) for layer in weights.layers], 1).contiguous(),
        "owned": torch.stack([owned(layer) for layer in weights.layers], 1).contiguous(),
        "projection": chunks([own(weights.projection.reshape(64, 16, -1))]),
    }


class RowsPredictor(_Launch):
    """The kernel for 8 to 64 rows: `packed` comes from pack_rows."""

    def __init__(self, shape: PredictorShape, packed: dict[str, Tensor], rows_max: int, places: int | None = None,
                 names: dict[str, int] | None = None) -> None:
        self.shape, self.rows_max, self.packed = shape, rows_max, packed
        tiles, warps, part = (rows_max + 7) // 8, WARPS, PART_BYTES
        pairs, desks = (tiles + 1) // 2, 2 if tiles <= 4 else 1
        fixed = (pairs * (shape.layers * 2 * (shape.codebooks - 1) * 256 + 512) + desks * 4 * (warps * 8 * 52 + 64) + 512
                 + warps * 256 + shape.layers * 512)
        places = places or min((232448 - 128 - fixed) // (warps * part + 16), 6)
        self.places = places
        self.kernel = Kernel(
            [Path(__file__).with_name(name) for name in
             ("grid_mail.cuh", "predictor_arguments.cuh", "row_sampling.cuh", "frame_rows.cu")],
            "frame_rows",
            {"HID": shape.d_model, "FFN": shape.d_ffn, "LAYERS": shape.layers, "WIDTH": shape.d_backbone,
             "CODES": shape.codes, "PASSES": shape.codebooks, "NT": tiles, "WARPS": warps, "PART": part,
             "PLACES": places, **(names or {})},
            blocks=BLOCKS, threads=warps * 32 + 32, shared_bytes=fixed + places * (warps * part + 16))
        self._allocate_mail(packed["layers"].device)


def cluster_tiles(weight_nk: Tensor, blocks_a_cluster: int) -> Tensor:
    """[n, k] -> [blocks, ...]: a cluster has its blocks' outputs, a block its part of k, in the order of cluster_stage.cuh:
    pieces of 32 k, warpgroups, outputs, each 64 bytes of k, swizzled; of 16 outputs a lane of the tensor core gets four
    neighbours, of 32 k a lane has eight neighbours."""
    n, k = weight_nk.shape
    cl = blocks_a_cluster
    view = weight_nk.reshape(BLOCKS // cl, n // (BLOCKS // cl) // 16, 4, 2, 2, cl, 2, k // cl // 64, 4, 2, 2, 2)
    # cluster, 16 outputs, lane q, half, e, rank, warpgroup, piece, lane q, step, half, e
    rows = view.permute(0, 5, 7, 6, 1, 3, 2, 4, 9, 10, 8, 11).reshape(-1, 8, 4, 8)   # 8 outputs, pieces of 16 bytes
    turned = [rows[:, i, [c ^ (i // 2) for c in range(4)]] for i in range(8)]
    return torch.stack(turned, 1).reshape(BLOCKS, -1)


def pack_cluster(weights: PredictorWeights, blocks_a_cluster: int = 2) -> dict[str, Tensor]:
    """For ClusterPredictor; norms are multiplied in."""

    def own(weight_nk: Tensor) -> Tensor:
        return cluster_tiles(weight_nk, blocks_a_cluster)

    def after(norm: Tensor, weight_nk: Tensor) -> Tensor:
        return (weight_nk.float() * norm.float()).to(weight_nk.dtype)

    def packed(layer: LayerWeights) -> Tensor:
        f, k = layer.gate.shape
        eights = [after(layer.mlp_norm, weight).reshape(f // 8, 1, 8, k) for weight in (layer.gate, layer.up)]
        return torch.cat([own(after(layer.attn_norm, layer.qkv)), own(layer.output), own(torch.cat(eights, 1).reshape(2 * f, k)),
                          own(layer.down)], 1)

    return {
        "layers": torch.stack([packed(layer) for layer in weights.layers], 1).contiguous(),
        "projection": own(weights.projection).contiguous(),
        "heads": torch.stack([own(after(weights.norm, head)) for head in weights.heads]).contiguous(),
        "tables": torch.stack(weights.tables).contiguous(),
        "bias": weights.projection_bias.float(),
        "head_norms": torch.stack([torch.stack([layer.q_norm, layer.k_norm]) for layer in weights.layers]).float(),
    }


class ClusterPredictor(_Launch):
    """The kernel for 8 to 64 rows, by clusters of blocks: `packed` comes from pack_cluster."""

    def __init__(self, shape: PredictorShape, packed: dict[str, Tensor], rows_max: int, places: int | None = None,
                 names: dict[str, int] | None = None, blocks_a_cluster: int = 2, cooperative: bool = True) -> None:
        self.shape, self.rows_max, self.packed = shape, rows_max, packed
        tiles = next(n for n in (1, 2, 4, 8) if n * 8 >= rows_max)
        rows, cl = tiles * 8, blocks_a_cluster
        even, odd = 2 * rows * 52 * 4, 2 * rows * 8 * 4
        fixed = (even + odd + WARPS * 6 * 512 + (tiles + 1) // 2 * 8192 + 2 * cl * rows * 4 + 512 + WARPS * 256
                 + shape.layers * 512 + 24)
        chunk = 24576
        places = places or min((232448 - 1024 - fixed) // (chunk + 16), 8)
        self.places = places
        self.kernel = Kernel(
            [Path(__file__).with_name(name) for name in
             ("grid_mail.cuh", "predictor_arguments.cuh", "row_sampling.cuh", "warpgroup.cuh", "cluster_stage.cuh", "frame_cluster.cu")],
            "frame_cluster",
            {"HID": shape.d_model, "FFN": shape.d_ffn, "LAYERS": shape.layers, "WIDTH": shape.d_backbone,
             "CODES": shape.codes, "PASSES": shape.codebooks, "NT": tiles, "WARPS": WARPS, "PART": PART_BYTES,
             "PLACES": places, "CL": cl, **(names or {})},
            blocks=BLOCKS, threads=WARPS * 32 + 32, shared_bytes=fixed + places * (chunk + 16), cooperative=cooperative)
        self._allocate_mail(packed["layers"].device)
        cache = torch.zeros(rows_max * KV_HEADS * shape.layers * 2 * (shape.codebooks - 1) * HEAD_DIM, dtype=torch.bfloat16,
                            device=packed["layers"].device)
        self.packed = {**packed, "cache": cache}
