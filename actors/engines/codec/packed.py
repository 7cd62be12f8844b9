"""Weights as the kernels read them: taps and channels in as rows, norms and layer scales multiplied in.

A product's input norm and its output's scale are linear in its weight, so they cost nothing later. Snakes are kept as
what multiplies the sine's argument and its square. One weight at a time passes the device in float32.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from omnirt.actors.engines.codec.memory import FUSED_CHANNELS, POSITIONS_MAX, frames_max
from omnirt.kernels.codec_layout import DILATIONS, SNAKE_EPS, TAPS, CodecShape
from omnirt.kernels.residual_unit import Half, padded
from omnirt.kernels.tap_conv import Product
from omnirt.kernels.thin_conv import Depth
from omnirt.kernels.window_attention import Turns

Snake = tuple[Tensor, Tensor]


class PackedDecoder:
    def __init__(self, s: CodecShape, weights: Mapping[str, np.ndarray], device: str, kind: torch.dtype) -> None:
        self.shape, self.device, self.kind = s, device, kind
        self._weights = weights
        self.tables = self._read("tables").to(kind)
        self.turns = self._turns()
        self.products: dict[str, Product] = {}
        self.depths: dict[str, Depth] = {}
        self.snakes: dict[str, Snake] = {}
        """Of the value that a block, a unit or the last convolution begins with, by that one's name."""
        self.units: dict[str, tuple[Half, Half]] = {}
        self._pack_transformer()
        self._pack_ups()
        self._pack_blocks()
        self.last = self._read("last")[0].t().contiguous(), self._read("last.bias")

    def _read(self, name: str) -> Tensor:
        return torch.tensor(self._weights[name]).to(self.device)

    def _put(self, name: str, weight_kn: Tensor, bias: Tensor | None = None, **more: float) -> None:
        weight = weight_kn.to(self.kind).contiguous()
        self.products[name] = Product(weight, bias if bias is None else bias.contiguous(), **more)  # pyright: ignore

    def _put_conv(self, name: str, taps: int, dilation: int = 1) -> None:
        weight = _rows(self._read(name))
        self._put(name, weight, self._read(f"{name}.bias"), taps=taps, dilation=dilation)

    def _turns(self) -> Turns:
        s = self.shape
        rate = s.theta ** -(torch.arange(0, s.head, 2, dtype=torch.float64) / s.head)
        angles = torch.arange(POSITIONS_MAX + frames_max(), dtype=torch.float64)[:, None] * rate
        return Turns(angles.cos().float().to(self.device), angles.sin().float().to(self.device))

    def _pack_transformer(self) -> None:
        s, read = self.shape, self._read
        self._put_conv("pre", 3)
        self._put("enter", read("enter").t(), read("enter.bias"))
        for i in range(s.layers):
            name = f"layer{i}"
            norm1, norm2 = read(f"{name}.norm1"), read(f"{name}.norm2")
            self._put(f"{name}.qkv", (read(f"{name}.qkv") * norm1).t(), norm_eps=s.eps)
            self._put(f"{name}.output", (read(f"{name}.output") * read(f"{name}.scale1")[:, None]).t())
            gate = torch.cat([read(f"{name}.gate") * norm2, read(f"{name}.up") * norm2])
            self._put(f"{name}.gate", gate.t(), norm_eps=s.eps, gated=True)
            self._put(f"{name}.down", (read(f"{name}.down") * read(f"{name}.scale2")[:, None]).t())
        self._put("leave", (read("leave") * read("norm")).t(), read("leave.bias"), norm_eps=s.eps)

    def _pack_ups(self) -> None:
        s, read = self.shape, self._read
        for i in range(len(s.stretch)):
            name = f"up{i}"
            self._put(name, read(name).permute(0, 2, 1).flatten(1), read(f"{name}.bias"), period=s.latent)
            weight = read(f"{name}.depth")[:, 0].t().flatten().contiguous()
            self.depths[name] = Depth(weight, read(f"{name}.depth.bias"), read(f"{name}.ln"), read(f"{name}.ln.bias"))
            self._put(f"{name}.wide", read(f"{name}.wide").t(), read(f"{name}.wide.bias"), gelu=True)
            gamma = read(f"{name}.gamma")
            narrow = (read(f"{name}.narrow") * gamma[:, None]).t()
            self._put(f"{name}.narrow", narrow, read(f"{name}.narrow.bias") * gamma)

    def _pack_blocks(self) -> None:
        s = self.shape
        self._put_conv("first", TAPS)
        channels = s.channels
        for i, rate in enumerate(s.rates):
            name, channels = f"block{i}", channels // 2
            self.snakes[name] = self._snake(name)
            weight = self._read(f"{name}.stretch")
            halves = torch.stack([weight[..., rate:], weight[..., :rate]])  # of the position before, of this one
            stretch = halves.permute(0, 1, 3, 2).flatten(2).flatten(0, 1)
            self._put(f"{name}.stretch", stretch, self._read(f"{name}.stretch.bias"), taps=2, period=channels)
            for d in DILATIONS:
                unit = f"{name}.{d}"
                self.snakes[unit] = self._snake(f"{unit}.a")
                self._put_conv(f"{unit}.wide", TAPS, d)
                self._put_conv(f"{unit}.point", 1)
                self.snakes[f"{unit}.point"] = self._snake(f"{unit}.b")
        self.snakes["last"] = self._snake("final")
        for i in range(len(s.rates)):
            self._fuse(i)

    def _fuse(self, i: int) -> None:
        """Units of few channels are one kernel, which ends with the snake of what follows."""
        s = self.shape
        channels = s.channels >> (i + 1)
        if channels > FUSED_CHANNELS:
            return
        for d in DILATIONS:
            unit = f"block{i}.{d}"
            wide, point = self.products.pop(f"{unit}.wide"), self.products.pop(f"{unit}.point")
            assert wide.bias is not None
            assert point.bias is not None
            inner, outer = self.snakes.pop(f"{unit}.point"), self.snakes[after(s, i, d)]
            halves = Half(wide.weight, wide.bias, *inner), Half(point.weight, point.bias, *outer)
            self.units[unit] = padded(halves[0], channels), padded(halves[1], channels)

    def _snake(self, name: str) -> Snake:
        return self._read(f"{name}.alpha").exp(), 1 / (self._read(f"{name}.beta").exp() + SNAKE_EPS)


def after(s: CodecShape, i: int, d: int) -> str:
    """What a unit of block i hands its result to."""
    if d != DILATIONS[-1]:
        return f"block{i}.{DILATIONS[DILATIONS.index(d) + 1]}"
    return f"block{i + 1}" if i + 1 < len(s.rates) else "last"


def _rows(weight: Tensor) -> Tensor:
    """[out, in, taps] -> [taps * in, out]."""
    return weight.permute(2, 1, 0).reshape(-1, weight.shape[0])
