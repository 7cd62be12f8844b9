"""Decoder layers of the plain frame step: norms, rotation of half the head, products, attention over pages.

Rows never mix. Sums are in the rows' own type, attention's weights in float32 at least.
Letters: r row (or position of a prompt), w width, h head, k key/value head, l position, p page, d of a head.
"""

from __future__ import annotations

import torch
import torch.nn.functional as nn
from torch import Tensor

from omnirt.kernels.frame_layout import PAGE, DecoderShape, LayerWeights

Turn = tuple[Tensor, Tensor]
"""Cosines and sines, [positions, d / 2]."""

_ROWS_AT_ONCE = 4
"""On a processor, products of rows in multiples of so many: a row's sums are then in the same order whatever the number
of rows (measured with MKL, one and two threads; with one to three rows it takes another way)."""


def turns(head: int, theta: float, positions: int, like: Tensor) -> Turn:
    """For positions 0, 1, ...; computed in float64, kept in float32 for everything that is not float64."""
    inverse = theta ** (-torch.arange(0, head, 2, dtype=torch.float64) / head)
    angles = torch.arange(positions, dtype=torch.float64)[:, None] * inverse
    kind = wide(like.dtype)
    return angles.cos().to(like.device, kind), angles.sin().to(like.device, kind)


def wide(kind: torch.dtype) -> torch.dtype:
    """The type for sums of a few numbers."""
    return torch.float64 if kind == torch.float64 else torch.float32


def product(x_rw: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    rows = x_rw.shape[0]
    if x_rw.device.type != "cpu" or rows % _ROWS_AT_ONCE == 0:
        return nn.linear(x_rw, weight, bias)
    return nn.linear(nn.pad(x_rw, (0, 0, 0, -rows % _ROWS_AT_ONCE)), weight, bias)[:rows]


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return nn.rms_norm(x, x.shape[-1:], weight, eps)


def mixed(x_rw: Tensor, layer: LayerWeights, shape: DecoderShape, turn: Turn) -> tuple[Tensor, Tensor, Tensor]:
    """Queries [r, h, d], keys and values [r, k, d]; `turn` is that of each row's position."""
    both = product(norm(x_rw, layer.attn_norm, shape.eps), layer.qkv).view(x_rw.shape[0], -1, shape.head)
    q, k, v = both.split([shape.heads, shape.kv_heads, shape.kv_heads], 1)
    return (
        _turned(norm(q, layer.q_norm, shape.eps), turn),
        _turned(norm(k, layer.k_norm, shape.eps), turn),
        v,
    )


def finished(x_rw: Tensor, attended_rhd: Tensor, layer: LayerWeights, eps: float) -> Tensor:
    """The rest of a layer, after attention."""
    x_rw = x_rw + product(attended_rhd.reshape(x_rw.shape[0], -1), layer.output)
    y = norm(x_rw, layer.mlp_norm, eps)
    return x_rw + product(nn.silu(product(y, layer.gate)) * product(y, layer.up), layer.down)


def attend(q_rhd: Tensor, keys_rkld: Tensor, values_rkld: Tensor, seen_rl: Tensor | None = None) -> Tensor:
    """[r, h, d]: each row over its own keys, where `seen_rl` says so."""
    rows, heads, width = q_rhd.shape
    kv_heads = keys_rkld.shape[1]
    scores = q_rhd.reshape(rows, kv_heads, heads // kv_heads, width) @ keys_rkld.transpose(2, 3) * width**-0.5
    if seen_rl is not None:
        scores = scores.masked_fill(~seen_rl[:, None, None], float("-inf"))
    weights = scores.softmax(-1, dtype=wide(q_rhd.dtype)).to(q_rhd.dtype)
    return (weights @ values_rkld).reshape(rows, heads, width)


def attend_in_turn(q_rhd: Tensor, keys_kld: Tensor, values_kld: Tensor, start: int) -> Tensor:
    """Rows are positions `start`, `start` + 1, ... of one sequence. One after the other, each over just what is before
    it: so the result does not depend on how a prompt was cut into pieces. For a processor."""
    parts = [
        attend(q_rhd[i : i + 1], keys_kld[None, :, : start + i + 1], values_kld[None, :, : start + i + 1])
        for i in range(q_rhd.shape[0])
    ]
    return torch.cat(parts)


def attend_together(q_rhd: Tensor, keys_kld: Tensor, values_kld: Tensor, start: int) -> Tensor:
    """The same with one mask."""
    places = torch.arange(keys_kld.shape[1], device=q_rhd.device)
    own = torch.arange(start, start + q_rhd.shape[0], device=q_rhd.device)
    mask = places[None] <= own[:, None]
    return nn.scaled_dot_product_attention(
        q_rhd.transpose(0, 1)[None], keys_kld[None], values_kld[None], attn_mask=mask, enable_gqa=True
    )[0].transpose(0, 1)


def pages_of(cache_pkld: Tensor, pages: Tensor) -> Tensor:
    """The positions of these pages [..., n], one after the other: [..., k, n * PAGE, d]."""
    found = cache_pkld[pages.long()].movedim(-4, -3)
    return found.reshape(*found.shape[:-3], -1, found.shape[-1])


def write(cache_pkld: Tensor, pages_r: Tensor, positions_r: Tensor, rows_rkd: Tensor) -> None:
    cache_pkld[pages_r, :, positions_r % PAGE] = rows_rkd


def _turned(x_rhd: Tensor, turn: Turn) -> Tensor:
    cosine, sine = turn[0][:, None], turn[1][:, None]
    a, b = x_rhd.chunk(2, -1)
    return torch.cat([a * cosine - b * sine, b * cosine + a * sine], -1).to(x_rhd.dtype)
