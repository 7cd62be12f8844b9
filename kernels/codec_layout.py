"""The shape of a codec's decoder (codes to samples), its weights by name, and what a request leaves between two calls.

A frame of `books` codes becomes `samples` samples: code embeddings, a convolution of 3, a transformer that sees the
last `window` frames, two kinds of upsampling. Everything is causal, so a request is decoded piece by piece from the
last positions of every convolution's input (its history) and the last keys and values.

Weights are arrays of these names, shaped as torch's convolutions and linear layers have them (see `weight_sizes`):

    tables                        of each codebook, already projected: a frame is the sum of its codes' lines
    pre, enter, leave             convolution of 3 over frames; into the transformer, out of it (`norm` before that)
    layer<i>.*                    qkv (keys and values repeated until there are as many as queries), output, gate, up,
                                  down, norm1, norm2; scale1, scale2: of the layer's two results
    up<i>, up<i>.*                transposed convolution without overlap; depth (7 taps, each channel alone), ln, wide,
                                  narrow, gamma
    first, last                   convolutions of 7 at both ends of the stack; `final` is the snake before the last
    block<i>, block<i>.*          snake; stretch (transposed convolution, kernel twice the stride); per dilation <d> of
                                  3: snake <d>.a, convolution <d>.wide, snake <d>.b, convolution <d>.point

A snake has `.alpha` and `.beta`, as checkpoints store them (their exponentials count); a bias is called `<name>.bias`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

DILATIONS = (1, 3, 9)
TAPS = 7
SNAKE_EPS = 1e-9
LAYER_NORM_EPS = 1e-6


@dataclass(frozen=True)
class CodecShape:
    books: int
    codes: int
    """Of each codebook."""
    width: int
    """Of a code's embedding."""
    latent: int
    hidden: int
    feed: int
    layers: int
    heads: int
    head: int
    window: int
    """Frames that a frame sees, itself among them."""
    stretch: tuple[int, ...]
    """Of the upsampling without overlap."""
    channels: int
    """Into the first block; each block halves them."""
    rates: tuple[int, ...]
    eps: float
    theta: float

    @property
    def samples(self) -> int:
        """Of a frame."""
        return math.prod(self.stretch) * math.prod(self.rates)


class History(NamedTuple):
    """What a convolution keeps of its input: `kept` positions of `channels`, of which a frame has `each`."""

    name: str
    kept: int
    channels: int
    each: int


def histories(s: CodecShape) -> list[History]:
    found, each = [History("pre", 2, s.width, 1)], 1
    for i, rate in enumerate(s.stretch):
        each *= rate
        found.append(History(f"up{i}.depth", TAPS - 1, s.latent, each))
    found.append(History("first", TAPS - 1, s.latent, each))
    channels = s.channels
    for i, rate in enumerate(s.rates):
        found.append(History(f"block{i}", 1, channels, each))
        channels, each = channels // 2, each * rate
        found += [History(f"block{i}.{d}", (TAPS - 1) * d, channels, each) for d in DILATIONS]
    return [*found, History("last", TAPS - 1, channels, each)]


def tail_size(s: CodecShape) -> int:
    """Numbers in a request's histories."""
    return sum(history.kept * history.channels for history in histories(s))


def weight_sizes(s: CodecShape) -> dict[str, tuple[int, ...]]:
    inner, sizes = s.heads * s.head, {"tables": (s.books, s.codes, s.width), "norm": (s.hidden,)}
    sizes |= _biased("pre", s.latent, s.width, 3) | _biased("enter", s.hidden, s.latent)
    sizes |= _biased("leave", s.latent, s.hidden)
    for i in range(s.layers):
        sizes |= {f"layer{i}.{name}": (s.hidden,) for name in ("norm1", "norm2", "scale1", "scale2")}
        sizes |= {f"layer{i}.qkv": (3 * inner, s.hidden), f"layer{i}.output": (s.hidden, inner)}
        sizes |= {f"layer{i}.{name}": (s.feed, s.hidden) for name in ("gate", "up")}
        sizes[f"layer{i}.down"] = (s.hidden, s.feed)
    for i, rate in enumerate(s.stretch):
        sizes |= _biased(f"up{i}", s.latent, s.latent, rate) | {f"up{i}.gamma": (s.latent,)}
        sizes |= _biased(f"up{i}.depth", s.latent, 1, TAPS) | _biased(f"up{i}.ln", s.latent)
        sizes |= _biased(f"up{i}.wide", 4 * s.latent, s.latent) | _biased(f"up{i}.narrow", s.latent, 4 * s.latent)
    sizes |= _biased("first", s.channels, s.latent, TAPS)
    channels = s.channels
    for i, rate in enumerate(s.rates):
        sizes |= _snake(f"block{i}", channels)
        sizes[f"block{i}.stretch"] = (channels, channels // 2, 2 * rate)
        channels //= 2
        sizes[f"block{i}.stretch.bias"] = (channels,)
        for d in DILATIONS:
            unit = f"block{i}.{d}"
            sizes |= _snake(f"{unit}.a", channels) | _snake(f"{unit}.b", channels)
            sizes |= _biased(f"{unit}.wide", channels, channels, TAPS) | _biased(f"{unit}.point", channels, channels, 1)
    return sizes | _snake("final", channels) | _biased("last", 1, channels, TAPS)


def weight_count(s: CodecShape) -> int:
    return sum(math.prod(size) for size in weight_sizes(s).values())


def _biased(name: str, *size: int) -> dict[str, tuple[int, ...]]:
    return {name: size, f"{name}.bias": size[:1]}


def _snake(name: str, channels: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.alpha": (channels,), f"{name}.beta": (channels,)}
