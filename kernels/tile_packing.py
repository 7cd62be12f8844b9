"""Weights in the order in which the warps of a one-launch decoder read them. See grid_mail.cuh.

A block has MT*16 outputs n of a matrix and its own part of the inputs k; warp w has the w-th share of that part.
What a warp reads is a row of fragments: 16 n x 16 k each, 512 bytes, laid out as the tensor core's first operand with
the 32 k of two fragments mixed, so that a lane's share of x is 8 neighbours (16 bytes).
"""

from __future__ import annotations

import torch
from torch import Tensor

BLOCKS, WARPS, PART_BYTES = 128, 8, 2048


def fragments(tiles_bnk: Tensor) -> Tensor:
    """[blocks, n, k] -> [blocks, warps, fragments * 256]: each warp's fragments in the order of their use."""
    blocks, n, k = tiles_bnk.shape
    view = tiles_bnk.reshape(blocks, n // 16, 2, 8, WARPS, k // WARPS // 32, 4, 2, 2, 2)
    mixed = view.permute(0, 4, 5, 7, 1, 3, 6, 8, 2, 9)
    return mixed.reshape(blocks, WARPS, -1)


def chunks(fragments_bwx: list[Tensor]) -> Tensor:
    """Matrices one after the other, cut into chunks with four fragments a warp: [blocks, chunks, warps, 1024]."""
    joined = torch.cat(fragments_bwx, 2)
    return joined.reshape(*joined.shape[:2], -1, PART_BYTES // 2).permute(0, 2, 1, 3)


def by_outputs(weight_nk: Tensor) -> Tensor:
    """Block b has the b-th 128th of the outputs."""
    return weight_nk.reshape(BLOCKS, -1, weight_nk.shape[1])


def by_owners(weight_nk: Tensor) -> Tensor:
    """Sixteen outputs each."""
    return weight_nk.reshape(-1, 16, weight_nk.shape[1])


def by_parts(weight_nk: Tensor) -> Tensor:
    """Block b has 16 outputs, and with fewer than 128 * 16 of them, part b % P of the inputs."""
    n, k = weight_nk.shape
    parts = BLOCKS // (n // 16)
    return weight_nk.reshape(n // 16, 16, parts, k // parts).permute(0, 2, 1, 3).reshape(BLOCKS, 16, k // parts)


def gate_and_up(gate_fk: Tensor, up_fk: Tensor) -> Tensor:
    """Outputs in fours: gate, gate, up, up."""
    f, k = gate_fk.shape
    pairs = [weight.reshape(BLOCKS, f // BLOCKS // 2, 1, 2, k) for weight in (gate_fk, up_fk)]
    return torch.cat(pairs, 2).reshape(BLOCKS, 2 * f // BLOCKS, k)


def after(norm_k: Tensor, weight_nk: Tensor) -> Tensor:
    """A matrix with the norm before it multiplied in."""
    return (weight_nk.float() * norm_k.float()).to(weight_nk.dtype)


# ---------------------------------------------------------------- eight bits


def quantize(tiles_bnk: Tensor) -> tuple[Tensor, Tensor]:
    """Eight bits for each weight (sign, four of exponent, three of mantissa, no zero) and a scale for each output."""
    v = tiles_bnk.float()
    scale = v.abs().amax(-1, keepdim=True).clamp(min=1e-12) / 480
    u = (v.abs() / scale).clamp(2.0**-7, 480)
    exponent = u.log2().floor()
    mantissa = ((u / exponent.exp2() - 1) * 8).round()
    exponent, mantissa = exponent + (mantissa == 8), mantissa % 8
    code = (v < 0).to(torch.int32) * 128 + (exponent + 7).to(torch.int32) * 8 + mantissa.to(torch.int32)
    return code.to(torch.uint8), scale[..., 0]


def dequantize(code: Tensor, scale: Tensor) -> Tensor:
    c = code.to(torch.int32)
    value = (((c >> 3) & 15) - 7).float().exp2() * (1 + (c & 7).float() / 8)
    return torch.where(c >= 128, -value, value) * scale[..., None]


def byte_fragments(code_bnk: Tensor) -> Tensor:
    """Like `fragments`; of a lane's four weights the first two are the upper bytes, as the kernel widens them."""
    parts = fragments(code_bnk)
    return parts.reshape(*parts.shape[:2], -1, 4)[..., [2, 0, 3, 1]].reshape(parts.shape)


class Packer:
    """Fragments of tiles with `bits` (16 or 8) a weight, and with 8 the scales, in the order of the calls."""

    def __init__(self, bits: int) -> None:
        self.bits = bits
        self._scales: list[Tensor] = []

    def __call__(self, tiles_bnk: Tensor) -> Tensor:
        if self.bits == 16:
            return fragments(tiles_bnk)
        code, scale = quantize(tiles_bnk)
        self._scales.append(torch.nn.functional.pad(scale, (0, 0, 0, BLOCKS - scale.shape[0])))
        return byte_fragments(code)

    def scales(self) -> dict[str, Tensor]:
        """[blocks, outputs], with what the kernel's widened exponents are off by."""
        return {"scales": torch.cat(self._scales, 1).mul(2.0**-8).contiguous()} if self._scales else {}
