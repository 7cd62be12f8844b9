"""The decoder in plain torch: any device, any shape, any float; also the twin of the kernels.

A call decodes rows of equal lengths together. What a slot keeps (see `State`) is of a fixed size and zero at the start
of a request: zeros in front are what a causal convolution pads with; keys before the first frame are masked. So rows
that are at different positions need no distinction but that mask and the turning of queries and keys.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
import torch.nn.functional as nn
from torch import Tensor

from omnirt.kernels.codec_layout import (
    DILATIONS,
    LAYER_NORM_EPS,
    SNAKE_EPS,
    CodecShape,
    histories,
)

Rows = dict[str, Tensor]
"""What the rows of a call keep, by the names of `histories`, and `keys`, `values`."""


class State:
    """Of every slot: [slots, kept, ...]. keys, values: [slots, layers, heads, window - 1, head]."""

    def __init__(self, s: CodecShape, slots: int, device: str, kind: torch.dtype) -> None:
        sizes = {h.name: (h.channels, h.kept) for h in histories(s)}
        sizes |= dict.fromkeys(("keys", "values"), (s.layers, s.heads, s.window - 1, s.head))
        self.tensors = {name: torch.zeros(slots, *size, device=device, dtype=kind) for name, size in sizes.items()}
        self.positions = np.zeros(slots, np.int64)

    def clear(self, slot: int) -> None:
        self.positions[slot] = 0
        for tensor in self.tensors.values():
            tensor[slot].zero_()

    def rows(self, slots: list[int]) -> Rows:
        return {name: tensor[slots] for name, tensor in self.tensors.items()}

    def keep(self, slots: list[int], rows: Rows, frames: int) -> None:
        self.positions[slots] += frames
        for name, tensor in rows.items():
            self.tensors[name][slots] = tensor


class PlainDecoder:
    def __init__(self, s: CodecShape, weights: Mapping[str, np.ndarray], device: str, kind: torch.dtype) -> None:
        self.shape, self.device, self.kind = s, device, kind
        self._w = {name: torch.tensor(weights[name]).to(device, kind) for name in weights}
        half = torch.arange(0, s.head, 2, dtype=torch.float64) / s.head
        self._rates = s.theta**-half

    def decode(self, codes_btq: np.ndarray, positions: np.ndarray, rows: Rows) -> Tensor:
        """[B, T, Q] codes of requests at `positions` [B] -> [B, T * samples]; `rows` becomes what they keep then."""
        s, w = self.shape, self._w
        codes = torch.from_numpy(codes_btq.astype(np.int64)).to(self.device)
        x = sum(w["tables"][book][codes[..., book]] for book in range(s.books))
        assert isinstance(x, Tensor)
        x = self._conv(rows, "pre", x.transpose(1, 2)).transpose(1, 2)
        x = self._transformer(rows, x, torch.from_numpy(positions)).transpose(1, 2)
        for i, rate in enumerate(s.stretch):
            x = self._up(rows, f"up{i}", x, rate)
        x = self._conv(rows, "first", x)
        for i, rate in enumerate(s.rates):
            x = self._stretch(rows, f"block{i}", self._snake(f"block{i}", x), rate)
            for d in DILATIONS:
                x = x + self._unit(rows, f"block{i}.{d}", x, d)
        return self._conv(rows, "last", self._snake("final", x)).clamp(-1, 1)[:, 0]

    # ------------------------------------------------------------ transformer

    def _transformer(self, rows: Rows, x: Tensor, positions: Tensor) -> Tensor:
        s, w = self.shape, self._w
        at = positions[:, None] + torch.arange(x.shape[1])
        angles = at[:, None, :, None] * self._rates
        turns = angles.cos().to(self.device, self.kind), angles.sin().to(self.device, self.kind)
        key = positions[:, None] + torch.arange(1 - s.window, x.shape[1])
        gap = at[:, :, None] - key[:, None]
        seen = ((gap >= 0) & (gap < s.window) & (key >= 0)[:, None])[:, None].to(self.device)
        x = nn.linear(x, w["enter"], w["enter.bias"])
        keys, values = [], []
        for i in range(s.layers):
            name = f"layer{i}"
            q, k, v = self._heads(nn.linear(self._norm(x, f"{name}.norm1"), w[f"{name}.qkv"]), turns)
            k, v = torch.cat([rows["keys"][:, i], k], 2), torch.cat([rows["values"][:, i], v], 2)
            keys.append(k[:, :, k.shape[2] - s.window + 1 :])
            values.append(v[:, :, v.shape[2] - s.window + 1 :])
            mixed = nn.scaled_dot_product_attention(q, k, v, seen).transpose(1, 2).flatten(2)
            x = x + w[f"{name}.scale1"] * nn.linear(mixed, w[f"{name}.output"])
            h = self._norm(x, f"{name}.norm2")
            h = nn.silu(nn.linear(h, w[f"{name}.gate"])) * nn.linear(h, w[f"{name}.up"])
            x = x + w[f"{name}.scale2"] * nn.linear(h, w[f"{name}.down"])
        rows["keys"], rows["values"] = torch.stack(keys, 1), torch.stack(values, 1)
        return nn.linear(self._norm(x, "norm"), w["leave"], w["leave.bias"])

    def _heads(self, qkv: Tensor, turns: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        s, (cos, sin) = self.shape, turns
        q, k, v = qkv.view(*qkv.shape[:2], 3, s.heads, s.head).permute(2, 0, 3, 1, 4)

        def turned(y: Tensor) -> Tensor:
            a, b = y.chunk(2, -1)
            return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

        return turned(q), turned(k), v

    def _norm(self, x: Tensor, name: str) -> Tensor:
        return nn.rms_norm(x, x.shape[-1:], self._w[name], self.shape.eps)

    # ------------------------------------------------------------ convolutions

    def _conv(self, rows: Rows, name: str, x: Tensor, weight: str = "", dilation: int = 1, groups: int = 1) -> Tensor:
        weight = weight or name
        whole = self._with_history(rows, name, x)
        return nn.conv1d(whole, self._w[weight], self._w[f"{weight}.bias"], dilation=dilation, groups=groups)

    def _with_history(self, rows: Rows, name: str, x: Tensor) -> Tensor:
        kept = rows[name].shape[-1]
        whole = torch.cat([rows[name], x], -1)
        rows[name] = whole[..., whole.shape[-1] - kept :]
        return whole

    def _stretch(self, rows: Rows, name: str, x: Tensor, rate: int) -> Tensor:
        """Each position in makes two strides out, so a stride is of two positions: the one before is kept."""
        weight = f"{name}.stretch"
        whole = self._with_history(rows, name, x)
        y = nn.conv_transpose1d(whole, self._w[weight], self._w[f"{weight}.bias"], stride=rate)
        return y[..., rate : rate + x.shape[-1] * rate]

    def _up(self, rows: Rows, name: str, x: Tensor, rate: int) -> Tensor:
        w, latent = self._w, self.shape.latent
        x = nn.conv_transpose1d(x, w[name], w[f"{name}.bias"], stride=rate)
        h = self._conv(rows, f"{name}.depth", x, groups=latent).transpose(1, 2)
        h = nn.layer_norm(h, (latent,), w[f"{name}.ln"], w[f"{name}.ln.bias"], LAYER_NORM_EPS)
        h = nn.gelu(nn.linear(h, w[f"{name}.wide"], w[f"{name}.wide.bias"]))
        h = nn.linear(h, w[f"{name}.narrow"], w[f"{name}.narrow.bias"])
        return x + (w[f"{name}.gamma"] * h).transpose(1, 2)

    def _unit(self, rows: Rows, name: str, x: Tensor, dilation: int) -> Tensor:
        h = self._conv(rows, name, self._snake(f"{name}.a", x), f"{name}.wide", dilation)
        point = f"{name}.point"
        return nn.conv1d(self._snake(f"{name}.b", h), self._w[point], self._w[f"{point}.bias"])

    def _snake(self, name: str, x: Tensor) -> Tensor:
        amount, scale = (self._w[f"{name}.{part}"].exp()[:, None] for part in ("alpha", "beta"))
        return x + (x * amount).sin().square() / (scale + SNAKE_EPS)
