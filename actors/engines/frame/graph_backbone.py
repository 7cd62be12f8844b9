"""The backbone as library products and fused nodes: one position of many rows, or many positions of a few (prefill).

A layer of many entries, six nodes:

    qkv  attend  + output  gate-up  gate  + down            prefill: place and attend_placed

The weights of its two norms are multiplied into the matrices after them; what a norm multiplies a row by is applied by
the node after the product.

For a single row products are kernels of their own with all the rest in them, five nodes. Of prefill's last layer only
keys and values are wanted.

Invariant: rows do not mix; what a row's numbers are depends on the number of entries only, by the library's choices.
"""

from __future__ import annotations

import torch
from torch import Tensor

from omnirt.kernels.attention_parts import AttentionRoom
from omnirt.kernels.decode_attention import attend
from omnirt.kernels.frame_layout import FrameRows, FrameShape, FrameWeights, LayerWeights
from omnirt.kernels.page_attention import Entries, Pages, Turns
from omnirt.kernels.prefill_attention import attend_placed, place
from omnirt.kernels.row_norm import gate_rows, norm_rows
from omnirt.kernels.row_product import multiply_row
from omnirt.kernels.tile_packing import after

_HEAD = 128


def fits(shape: FrameShape) -> bool:
    """What the nodes are written for."""
    b = shape.backbone
    powers = b.width & (b.width - 1) == 0 and b.width >= 1024
    return powers and b.feed % 1024 == 0 and b.heads == 2 * b.kv_heads and b.head == _HEAD and b.eps == 1e-6


def join_gates(layers: list[LayerWeights]) -> list[Tensor]:
    """[2 * feed, width] of every layer. The layers' own become views of them, so that nothing is there twice. Norms are
    multiplied into the matrices after them, and are ones from then on: whoever reads both reads the same layer."""
    joined = []
    for layer in layers:
        both = torch.cat([after(layer.mlp_norm, layer.gate), after(layer.mlp_norm, layer.up)])
        layer.qkv = after(layer.attn_norm, layer.qkv)
        layer.gate, layer.up = both.chunk(2)
        layer.attn_norm, layer.mlp_norm = torch.ones_like(layer.attn_norm), torch.ones_like(layer.mlp_norm)
        joined.append(both)
    return joined


class Backbone:
    """Room for `entries` at a time, `rows` of which decode; those of a call are the first ones."""

    def __init__(
        self, shape: FrameShape, weights: FrameWeights, state: FrameRows, rotary: Tensor, entries: int, rows: int
    ) -> None:
        b, device = shape.backbone, state.x.device
        self._weights, self._state, self._rotary = weights, state, rotary
        self._gates = join_gates(weights.layers)

        def room(width: int) -> Tensor:
            return torch.empty(entries, width, device=device, dtype=state.x.dtype)

        self._x, self._attended = room(b.width), room(b.heads * _HEAD)
        self._mixed, self._both, self._act = room((b.heads + 2 * b.kv_heads) * _HEAD), room(2 * b.feed), room(b.feed)
        self._parts = AttentionRoom.make(rows, b.kv_heads, device)

    @property
    def tensors(self) -> list[Tensor]:
        """What stands here beside the weights."""
        return [self._x, self._attended, self._mixed, self._both, self._act, *self._parts]

    def decode(self, rows: FrameRows, logits: Tensor) -> None:
        """One position of each of these rows. Writes `rows.hidden` and `logits` [rows, vocab]."""
        if len(rows.x) == 1:
            self._decode_one(rows, logits)
            return
        count, w = len(rows.x), self._weights
        entries = Entries(self._mixed[:count], self._attended[:count], rows.positions, active=rows.active)
        x = rows.x
        for i in range(len(w.layers)):
            self._mix(i, x)
            entries = entries._replace(x=x)
            attend(entries, self._turns(i), self._pages(i), self._parts)
            x = self._finish(i, x)
        norm_rows(x, w.norm, rows.hidden)
        torch.mm(rows.hidden, w.head.t(), out=logits)

    def prefill(self, x: Tensor, positions: Tensor, owners: Tensor) -> None:
        """Keys and values of `x` [entries, width], each at its position of its owner's pages."""
        count, last = len(x), len(self._weights.layers) - 1
        entries = Entries(self._mixed[:count], self._attended[:count], positions, owners=owners)
        for i in range(last + 1):
            self._mix(i, x)
            place(entries._replace(x=x), self._turns(i), self._pages(i))
            if i < last:
                attend_placed(entries, self._pages(i))
                x = self._finish(i, x)

    def _decode_one(self, rows: FrameRows, logits: Tensor) -> None:
        w, x, mixed, attended, act = self._weights, self._x[:1], self._mixed[:1], self._attended[:1], self._act[:1]
        entries = Entries(mixed, attended, rows.positions, active=rows.active)
        x.copy_(rows.x)
        for i, layer in enumerate(w.layers):
            multiply_row(layer.qkv, x, mixed, norm=layer.attn_norm)
            attend(entries, self._turns(i), self._pages(i), self._parts)
            multiply_row(layer.output, attended, x, add=True)
            multiply_row(self._gates[i], x, act, norm=layer.mlp_norm, gated=True)
            multiply_row(layer.down, act, x, add=True)
        multiply_row(w.head, x, logits, norm=w.norm, normed=rows.hidden)

    def _mix(self, i: int, x: Tensor) -> None:
        torch.mm(x, self._weights.layers[i].qkv.t(), out=self._mixed[: len(x)])

    def _finish(self, i: int, x: Tensor) -> Tensor:
        """The layer's end. `x` is read only, the result is in a place of ours."""
        count, layer = len(x), self._weights.layers[i]
        to, both, act = self._x[:count], self._both[:count], self._act[:count]
        torch.addmm(x, self._attended[:count], layer.output.t(), out=to)
        torch.mm(to, self._gates[i].t(), out=both)
        gate_rows(both, act, to)
        return torch.addmm(to, act, layer.down.t(), out=to)

    def _turns(self, i: int) -> Turns:
        layer = self._weights.layers[i]
        return Turns(layer.q_norm, layer.k_norm, self._rotary)

    def _pages(self, i: int) -> Pages:
        s = self._state
        return Pages(s.keys[i], s.values[i], s.tables, s.tables.shape[1])
