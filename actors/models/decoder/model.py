"""The decoder in plain torch: for devices without a kernel of ours, for shapes that the kernel refuses, and to read.

With `alone` every token is computed by itself, so that its numbers depend on its sequence only, bit for bit: slow, and
what a CPU without the kernel gets. Otherwise all tokens of a pass go through the matrix products together.

Shapes: T tokens of a pass, m of one piece, H hidden, q heads, kv key heads, d head_dim, P positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from omnirt.actors.models.decoder.config import DecoderConfig
from omnirt.actors.models.decoder.pieces import Piece
from omnirt.actors.models.decoder.rope import rotary_tables
from omnirt.actors.models.decoder.weights import Weights, shapes

if TYPE_CHECKING:
    import torch

JOINED = {"qkv": ("q", "k", "v"), "qkv_bias": ("q_bias", "k_bias", "v_bias"), "gate_up": ("gate", "up")}
"""Matrices with the same input are kept as one."""
_JOINED_OF = {part: whole for whole, parts in JOINED.items() for part in parts}


class TorchDecoder:
    def __init__(
        self, config: DecoderConfig, weights: dict[str, torch.Tensor], cache: tuple[torch.Tensor, ...], *, alone: bool
    ) -> None:
        """`weights` as `gathered` makes them. `cache`: keys, values, [slots, layers, kv, P, d] float32."""
        import torch

        self.config = config
        self._weights = weights
        self._alone = alone
        self._device = weights["embed"].device
        self._keys, self._values = cache
        tables = rotary_tables(config, self._keys.shape[3])
        self._cos, self._sin = (torch.from_numpy(table).to(self._device).unsqueeze(1) for table in tables)  # [P, 1, d]

    def run(self, pieces: Sequence[Piece], logits: np.ndarray) -> None:
        """Keys and values of every token into the cache, and of each piece that wants them its logits into the next row
        of `logits`. A slot may have one piece in a pass."""
        import torch

        passes = [[token] for piece in pieces for token in piece.single()] if self._alone else [pieces]
        row = 0
        with torch.inference_mode():
            for part in passes:
                found = self._pass(part)
                logits[row : row + len(found)] = found.cpu().numpy()
                row += len(found)

    def _pass(self, pieces: Sequence[Piece]) -> torch.Tensor:
        """Logits, [pieces that want them, vocab]."""
        import torch

        ids = torch.tensor([token for piece in pieces for token in piece.ids], device=self._device)
        positions = torch.cat([torch.arange(p.start, p.start + len(p.ids)) for p in pieces]).to(self._device)
        turn = self._cos[positions], self._sin[positions]  # [T, 1, d]
        hidden = self._weights["embed"][ids].float()  # [T, H]
        for layer in range(self.config.layers):
            normed = self._norm(hidden, f"{layer}.attn_norm")
            hidden = hidden + self._product(self._attention(layer, normed, turn, pieces), f"{layer}.o")
            gate, up = self._product(self._norm(hidden, f"{layer}.mlp_norm"), f"{layer}.gate_up").chunk(2, dim=-1)
            hidden = hidden + self._product(torch.nn.functional.silu(gate) * up, f"{layer}.down")
        ends = np.cumsum([len(piece.ids) for piece in pieces]) - 1
        last = hidden[[int(end) for end, piece in zip(ends, pieces, strict=True) if piece.wanted]]
        return self._product(self._norm(last, "norm"), "embed" if self.config.tied else "lm_head")

    def _attention(
        self, layer: int, normed: torch.Tensor, turn: tuple[torch.Tensor, torch.Tensor], pieces: Sequence[Piece]
    ) -> torch.Tensor:
        """[T, H] -> [T, q * d]"""
        import torch

        c = self.config
        qkv = self._product(normed, f"{layer}.qkv")  # [T, (q + 2 kv) * d]
        if c.qkv_bias:
            qkv = qkv + self._weights[f"{layer}.qkv_bias"]
        q, k, v = qkv.view(len(qkv), -1, c.head_dim).split((c.heads, c.kv_heads, c.kv_heads), dim=1)
        if c.head_norm:
            q, k = self._norm(q, f"{layer}.q_norm"), self._norm(k, f"{layer}.k_norm")
        q, k = rotated(q, *turn), rotated(k, *turn)
        mixed, at = [], 0
        for piece in pieces:
            m = len(piece.ids)
            end = piece.start + m
            keys, values = self._keys[piece.slot, layer], self._values[piece.slot, layer]  # [kv, P, d]
            keys[:, piece.start : end] = k[at : at + m].transpose(0, 1)
            values[:, piece.start : end] = v[at : at + m].transpose(0, 1)
            mixed.append(attended(q[at : at + m], keys[:, :end], values[:, :end]))
            at += m
        return torch.cat(mixed)

    def _product(self, x: torch.Tensor, name: str) -> torch.Tensor:
        import torch

        weight = self._weights[name]
        return torch.nn.functional.linear(x.to(weight.dtype), weight).float()

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        spread = x.pow(2).mean(-1, keepdim=True)
        return x * (spread + self.config.norm_eps).rsqrt() * self._weights[name]


def attended(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """q [m, q, d], the last m of P positions; keys and values [kv, P, d] -> [m, q * d]."""
    import torch

    m, heads, d = q.shape
    kv, seen, _ = keys.shape
    group = heads // kv
    q = q.transpose(0, 1).reshape(kv, group * m, d)  # heads of one group share their keys
    scores = torch.bmm(q, keys.transpose(1, 2)) * d**-0.5  # [kv, group * m, P]
    if m > 1:
        ahead = torch.full((m, m), float("-inf"), device=q.device).triu(1)
        scores.view(kv, group, m, seen)[..., seen - m :] += ahead
    mixed = torch.bmm(scores.softmax(dim=-1), values)  # [kv, group * m, d]
    return mixed.view(heads, m, d).transpose(0, 1).reshape(m, heads * d)


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """x [T, heads, d]; cos, sin [T, 1, d]."""
    import torch

    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * cos + turned * sin


def gathered(weights: Weights, config: DecoderConfig, dtype: str, device: str) -> dict[str, torch.Tensor]:
    """What TorchDecoder takes: matrices rounded to `dtype` (on CPU kept in float32 then: products of shorter floats are
    slow there), the rest in float32."""
    import torch

    found: dict[str, torch.Tensor] = {}
    for name in shapes(config):
        layer, dot, part = name.rpartition(".")
        joined = _JOINED_OF.get(part, part)
        if layer + dot + joined in found:
            continue
        arrays = [weights[layer + dot + one] for one in JOINED.get(joined, (part,))]
        tensor = torch.from_numpy(np.concatenate(arrays))
        if tensor.dim() == 2:
            tensor = tensor.to(getattr(torch, dtype))
            tensor = tensor.float() if device == "cpu" else tensor
        found[layer + dot + joined] = tensor.to(device)
    return found
