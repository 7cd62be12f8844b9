"""Streaming decoder of Qwen3-TTS (12 Hz): frames of 16 codes to samples, stateful and exact, many requests in one call.

`Bucket` decodes `rows` requests by up to `frames` frames each in one fixed list of launches (so it can be captured as a graph).
State lives in slots as plain tensors: `positions` (frames decoded so far; 0 means a new request, no reset is needed), `tails` (the
history of every convolution) and rings of keys and values. `lengths` says how many frames of a row count: the rest is computed and
forgotten, so rows of any chunk length share a call. `PlainDecoder` is the twin in plain torch, for float32 and float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.nn.functional as nn
from torch import Tensor

from decoder_state import PIECE, embed_codes, load_history, save_history
from tap_conv import Tile, View, depth_conv_norm, last_conv, pieces, residual_unit, tap_conv
from window_attention import attend_window

FUSED_CHANNELS = 192
DILATIONS = (1, 3, 9)


@dataclass(frozen=True)
class DecoderShape:
    books: int = 16
    codes: int = 2048
    width: int = 512
    latent: int = 1024
    hidden: int = 512
    feed: int = 1024
    layers: int = 8
    heads: int = 16
    head: int = 64
    window: int = 72
    stretch: tuple[int, ...] = (2, 2)
    channels: int = 1536
    rates: tuple[int, ...] = (8, 5, 4, 3)
    theta: float = 1e4
    longest: int = 8192

    @property
    def samples(self) -> int:
        return math.prod(self.stretch) * math.prod(self.rates)


def random_weights(s: DecoderShape, device: str, seed: int = 3) -> dict[str, Tensor]:
    """Names and layouts as torch convolutions have them; scaled so that values keep their size."""
    g = torch.Generator(device=device).manual_seed(seed)
    w: dict[str, Tensor] = {}

    def put(name: str, *size: int, fan: int = 0, bias: int = 0, k: float = 1.0) -> None:
        w[name] = torch.randn(*size, device=device, generator=g) * k / math.sqrt(fan or 1)
        if bias:
            w[name + ".bias"] = torch.randn(bias, device=device, generator=g) * 0.02

    def snake(name: str, c: int) -> None:
        w[name + ".alpha"] = torch.randn(c, device=device, generator=g) * 0.3
        w[name + ".beta"] = torch.randn(c, device=device, generator=g) * 0.3

    put("tables", s.books, s.codes, s.width, fan=s.books)
    put("pre", s.latent, s.width, 3, fan=3 * s.width, bias=s.latent)
    put("enter", s.hidden, s.latent, fan=s.latent, bias=s.hidden)
    inner = s.heads * s.head
    for i in range(s.layers):
        for name, a, b in (("qkv", 3 * inner, s.hidden), ("output", s.hidden, inner), ("gate", s.feed, s.hidden), ("up", s.feed, s.hidden),
                           ("down", s.hidden, s.feed)):
            put(f"layer{i}.{name}", a, b, fan=b)
        for name in ("norm1", "norm2", "scale1", "scale2"):
            w[f"layer{i}.{name}"] = (1 if "norm" in name else 0.3) + 0.1 * torch.randn(s.hidden, device=device, generator=g)
    w["norm"] = 1 + 0.1 * torch.randn(s.hidden, device=device, generator=g)
    put("leave", s.latent, s.hidden, fan=s.hidden, bias=s.latent)
    for i, r in enumerate(s.stretch):
        put(f"up{i}", s.latent, s.latent, r, fan=s.latent, bias=s.latent)
        put(f"up{i}.depth", s.latent, 1, 7, fan=7, bias=s.latent)
        w[f"up{i}.ln"] = 1 + 0.1 * torch.randn(s.latent, device=device, generator=g)
        w[f"up{i}.ln.bias"] = 0.1 * torch.randn(s.latent, device=device, generator=g)
        put(f"up{i}.wide", 4 * s.latent, s.latent, fan=s.latent, bias=4 * s.latent)
        put(f"up{i}.narrow", s.latent, 4 * s.latent, fan=4 * s.latent, bias=s.latent)
        w[f"up{i}.gamma"] = 0.5 + 0.1 * torch.randn(s.latent, device=device, generator=g)
    put("first", s.channels, s.latent, 7, fan=7 * s.latent, bias=s.channels)
    c = s.channels
    for i, r in enumerate(s.rates):
        snake(f"block{i}", c)
        put(f"block{i}.stretch", c, c // 2, 2 * r, fan=2 * c, bias=c // 2)
        c //= 2
        for d in DILATIONS:
            snake(f"block{i}.{d}.a", c)
            put(f"block{i}.{d}.wide", c, c, 7, fan=7 * c, bias=c, k=0.7)
            snake(f"block{i}.{d}.b", c)
            put(f"block{i}.{d}.point", c, c, 1, fan=c, bias=c, k=0.3)
    snake("final", c)
    put("last", 1, c, 7, fan=7 * c, bias=1, k=0.1)
    return w


def rotary(s: DecoderShape, device: str) -> tuple[Tensor, Tensor]:
    rate = s.theta ** (-torch.arange(0, s.head, 2, device=device, dtype=torch.float64) / s.head)
    angle = torch.arange(s.longest, device=device, dtype=torch.float64)[:, None] * rate
    return angle.cos().float(), angle.sin().float()


class PlainDecoder:
    """The twin: torch's own convolutions; `state` is filled and read by name, an empty one starts a request."""

    def __init__(self, s: DecoderShape, w: dict[str, Tensor], kind: torch.dtype = torch.float32):
        self.s, self.w, self.kind = s, {k: v.to(kind) for k, v in w.items()}, kind
        self.turns = [t.to(kind) for t in rotary(s, next(iter(w.values())).device.type)]

    def _history(self, state: dict[str, Tensor], name: str, x: Tensor, n: int) -> Tensor:
        y = torch.cat([state.get(name, x.new_zeros(x.shape[0], x.shape[1], n)), x], -1)
        state[name] = y[..., -n:]
        return y

    def _conv(self, state, name, x, dilation=1, groups=1):
        w = self.w[name]
        if w.shape[-1] > 1:
            x = self._history(state, name, x, (w.shape[-1] - 1) * dilation)
        return nn.conv1d(x, w, self.w[name + ".bias"], dilation=dilation, groups=groups)

    def _stretch(self, state, name, x, rate):
        w, t = self.w[name], x.shape[-1]
        if w.shape[-1] == rate:
            return nn.conv_transpose1d(x, w, self.w[name + ".bias"], stride=rate)
        y = nn.conv_transpose1d(self._history(state, name, x, 1), w, self.w[name + ".bias"], stride=rate)
        return y[..., rate:rate + t * rate]

    def _snake(self, name, x):
        a, b = self.w[name + ".alpha"].exp()[:, None], self.w[name + ".beta"].exp()[:, None]
        return x + (x * a).sin().square() / (b + 1e-9)

    def _layer(self, state, i, x, start):
        s, w = self.s, lambda n: self.w[f"layer{i}.{n}"]
        b, t, _ = x.shape
        q, k, v = nn.linear(nn.rms_norm(x, x.shape[-1:], w("norm1"), 1e-5), w("qkv")).view(b, t, 3, s.heads, s.head).permute(2, 0, 3, 1, 4)
        cos, sin = (turn[start:start + t] for turn in self.turns)

        def rotate(y):
            p, q = y.chunk(2, -1)
            return torch.cat([p * cos - q * sin, q * cos + p * sin], -1)

        q, k = rotate(q), rotate(k)
        if f"k{i}" in state:
            k, v = torch.cat([state[f"k{i}"], k], 2), torch.cat([state[f"v{i}"], v], 2)
        state[f"k{i}"], state[f"v{i}"] = k[:, :, -(s.window - 1):], v[:, :, -(s.window - 1):]
        at = torch.arange(start, start + t, device=x.device)[:, None]
        key = torch.arange(start + t - k.shape[2], start + t, device=x.device)[None]
        y = nn.scaled_dot_product_attention(q, k, v, (key <= at) & (at - key < s.window))
        x = x + w("scale1") * nn.linear(y.transpose(1, 2).reshape(b, t, -1), w("output"))
        h = nn.rms_norm(x, x.shape[-1:], w("norm2"), 1e-5)
        return x + w("scale2") * nn.linear(nn.silu(nn.linear(h, w("gate"))) * nn.linear(h, w("up")), w("down"))

    def __call__(self, codes_btq: Tensor, state: dict[str, Tensor]) -> Tensor:
        s, w = self.s, self.w
        start = int(state.get("start", 0))
        state["start"] = torch.tensor(start + codes_btq.shape[1])
        x = sum(w["tables"][q][codes_btq[..., q].long()] for q in range(s.books)).transpose(1, 2)
        x = self._conv(state, "pre", x).transpose(1, 2)
        x = nn.linear(x, w["enter"], w["enter.bias"])
        for i in range(s.layers):
            x = self._layer(state, i, x, start)
        x = nn.linear(nn.rms_norm(x, x.shape[-1:], w["norm"], 1e-5), w["leave"], w["leave.bias"]).transpose(1, 2)
        for i, r in enumerate(s.stretch):
            n = f"up{i}"
            x = self._stretch(state, n, x, r)
            h = self._conv(state, n + ".depth", x, groups=s.latent).transpose(1, 2)
            h = nn.layer_norm(h, (s.latent,), w[n + ".ln"], w[n + ".ln.bias"], 1e-6)
            h = nn.linear(nn.gelu(nn.linear(h, w[n + ".wide"], w[n + ".wide.bias"])), w[n + ".narrow"], w[n + ".narrow.bias"])
            x = x + (w[n + ".gamma"] * h).transpose(1, 2)
        x = self._conv(state, "first", x)
        for i, r in enumerate(s.rates):
            x = self._stretch(state, f"block{i}.stretch", self._snake(f"block{i}", x), r)
            for d in DILATIONS:
                n = f"block{i}.{d}"
                h = self._conv(state, n + ".wide", self._snake(n + ".a", x), d)
                x = x + self._conv(state, n + ".point", self._snake(n + ".b", h))
        return self._conv(state, "last", self._snake("final", x)).clamp(-1, 1)[:, 0]


class PackedDecoder:
    """Weights as the kernels read them: taps and channels in as rows, norms and layer scales multiplied in."""

    def __init__(self, s: DecoderShape, w: dict[str, Tensor], kind: torch.dtype):
        self.shape, self.kind = s, kind
        self.w: dict[str, Tensor] = {}
        self.bias = {k[:-5]: v.float().contiguous() for k, v in w.items() if k.endswith(".bias")}
        self.snakes = {k[:-6]: (v.float().exp().contiguous(), 1 / (w[k[:-6] + ".beta"].float().exp() + 1e-9))
                       for k, v in w.items() if k.endswith(".alpha")}
        put = lambda name, v: self.w.__setitem__(name, v.to(kind).contiguous())
        put("tables", w["tables"])
        conv = lambda v: v.permute(2, 1, 0).reshape(-1, v.shape[0])
        for name in ["pre", "first", *(f"block{i}.{d}.{n}" for i in range(len(s.rates)) for d in DILATIONS for n in ("wide", "point"))]:
            put(name, conv(w[name]))
        put("enter", w["enter"].t())
        for i in range(s.layers):
            l = lambda n: w[f"layer{i}.{n}"]
            put(f"layer{i}.qkv", (l("qkv") * l("norm1")).t())
            put(f"layer{i}.output", (l("output") * l("scale1")[:, None]).t())
            put(f"layer{i}.both", torch.cat([l("gate") * l("norm2"), l("up") * l("norm2")]).t())
            put(f"layer{i}.down", (l("down") * l("scale2")[:, None]).t())
        put("leave", (w["leave"] * w["norm"]).t())
        for i in range(len(s.stretch)):
            n = f"up{i}"
            put(n, w[n].permute(0, 2, 1).flatten(1))
            self.w[n + ".depth"] = w[n + ".depth"][:, 0].t().float().contiguous()
            self.w[n + ".ln"] = w[n + ".ln"].float()
            put(n + ".wide", w[n + ".wide"].t())
            put(n + ".narrow", (w[n + ".narrow"] * w[n + ".gamma"][:, None]).t())
            self.bias[n + ".narrow"] = (self.bias[n + ".narrow"] * w[n + ".gamma"].float()).contiguous()
        for i, r in enumerate(s.rates):
            v = w[f"block{i}.stretch"]
            put(f"block{i}.stretch", torch.stack([v[..., r:], v[..., :r]]).permute(0, 1, 3, 2).flatten(2).flatten(0, 1))
        self.w["last"] = w["last"].permute(2, 1, 0).flatten().float().contiguous()
        self.cosines, self.sines = rotary(s, w["tables"].device.type)
        self._pad_units()

    def _pad_units(self) -> None:
        s, c = self.shape, self.shape.channels
        for i in range(len(s.rates)):
            c //= 2
            if c > FUSED_CHANNELS:
                continue
            wide = sum(pieces(c))
            more = lambda v: nn.pad(v, (0, wide - c)).contiguous()
            for d in DILATIONS:
                n = f"block{i}.{d}"
                self.w[n + ".wide"] = more(self.w[n + ".wide"])
                self.w[n + ".point"] = nn.pad(self.w[n + ".point"], (0, wide - c, 0, wide - c)).contiguous()
                for part in ("wide", "point"):
                    self.bias[f"{n}.{part}"] = more(self.bias[f"{n}.{part}"])
            for name in [f"block{i}.{d}.{x}" for d in DILATIONS for x in "ab"] + [f"block{i + 1}" if i + 1 < len(s.rates) else "final"]:
                a, b = self.snakes[name]
                self.snakes[name] = (more(a), more(b))


@dataclass
class DecoderSlots:
    """The state of every request: what a slot keeps between calls."""

    positions: Tensor
    tails: Tensor
    keys: Tensor
    values: Tensor

    @staticmethod
    def make(s: DecoderShape, slots: int, chunk: int, kind: torch.dtype, device: str) -> DecoderSlots:
        ring = -(-(s.window + chunk - 1) // 16) * 16
        size = (s.layers, slots, s.heads, ring, s.head)
        zeros = lambda *n: torch.zeros(*n, device=device, dtype=kind)
        return DecoderSlots(torch.zeros(slots, device=device, dtype=torch.int32), zeros(slots, tail_size(s)), zeros(*size), zeros(*size))


def histories(s: DecoderShape) -> list[tuple[str, int, int, int]]:
    """Of every convolution: name, positions kept, channels, positions a frame."""
    out, each = [("pre", 2, s.width, 1)], 1
    for i, r in enumerate(s.stretch):
        each *= r
        out.append((f"up{i}.depth", 6, s.latent, each))
    out.append(("first", 6, s.latent, each))
    c = s.channels
    for i, r in enumerate(s.rates):
        out.append((f"block{i}", 1, c, each))
        c, each = c // 2, each * r
        out += [(f"block{i}.{d}", 6 * d, c, each) for d in DILATIONS]
    return [*out, ("last", 6, c, each)]


def tail_size(s: DecoderShape) -> int:
    return sum(n * c for _, n, c, _ in histories(s))


def power_in(c: int, most: int) -> int:
    return min(c & -c, most)


def default_tile(m: int, n: int, c: int, deep: bool) -> Tile:
    """The largest tile that still gives every multiprocessor work; small ones look further ahead."""
    for bm, bn, warps, stages in ((128, 256, 8, 3), (128, 128, 8, 4), (64, 128, 4, 4), (64, 64, 4, 4), (32, 64, 4, 4)):
        if m >= bm and n >= bn and -(-m // bm) * -(-n // bn) >= 128:
            return Tile(bm, bn, power_in(c, 64), warps, stages)
    return Tile(16 if m <= 16 else 32, 32, power_in(c, 128), 4, 5 if deep else 4)


@dataclass
class Bucket:
    """`rows` requests of up to `frames` frames: buffers, the list of launches, their tiles."""

    packed: PackedDecoder
    state: DecoderSlots
    rows: int
    frames: int
    tiles: dict[str, Tile] = field(default_factory=dict)
    early: bool = False  # launches start while the one before ends: gains 5 % at one row, nothing from 16 frames on

    def __post_init__(self) -> None:
        s, device, kind = self.packed.shape, self.state.positions.device, self.packed.kind
        self.codes = torch.zeros(self.rows, self.frames, s.books, device=device, dtype=torch.int32)
        self.slots = torch.arange(self.rows, device=device, dtype=torch.int32)
        self.lengths = torch.full((self.rows,), self.frames, device=device, dtype=torch.int32)
        self.samples = torch.empty(self.rows, self.frames * s.samples, device=device)
        self.steps: list[tuple[str, Callable[[Tile], None]]] = []
        self._place(s, kind, device)
        self._build(s)

    def _place(self, s: DecoderShape, kind: torch.dtype, device: torch.device) -> None:
        lines, at, tail = [], 0, 0
        self.spots: dict[str, tuple[int, int, int]] = {}
        for name, kept, c, each in histories(s):
            row = (kept + self.frames * each) * c
            self.spots[name] = (at, row, kept * c)
            for piece in range(0, kept * c, PIECE):
                lines.append((at + piece, row, tail + piece, min(PIECE, kept * c - piece), each * c))
            at, tail = at + -(-self.rows * row // 64) * 64, tail + kept * c
        self.work = torch.zeros(at, device=device, dtype=kind)
        self.table = torch.tensor(lines, device=device, dtype=torch.int64)

    def _whole(self, name: str) -> View:
        """A buffer from its history on: what a convolution reads."""
        at, row, _ = self.spots[name]
        return View(self.work[at:], row)

    def _new(self, name: str) -> View:
        """A buffer's new positions: where the launch before writes."""
        at, row, first = self.spots[name]
        return View(self.work[at:], row, first)

    def _shifted(self, name: str) -> View:
        at, row, first = self.spots[name]
        return View(self.work[at + first:], row)

    def _room(self, positions: int, c: int) -> View:
        return View(torch.empty(self.rows * positions * c, device=self.work.device, dtype=self.work.dtype), positions * c)

    def _step(self, name: str, positions: int, run: Callable[[Tile], None], tile: Tile) -> None:
        self.steps.append((name, run))
        self.tiles.setdefault(name, tile)

    def _conv(self, name: str, a: View, weight: str, positions: int, **more) -> None:
        w = self.packed.w[weight]
        m, n = self.rows * positions, w.shape[1] // (2 if more.get("gated") else 1)
        c = w.shape[0] // more.get("taps", 1)
        bias = self.packed.bias.get(weight)
        tile = default_tile(m, n, c, w.shape[0] > 2048)
        self._step(name, positions, lambda t: tap_conv(a, w, self.rows, positions, t, bias=bias, early=self.early, **more), tile)

    def _build(self, s: DecoderShape) -> None:
        none = Tile(0, 0, 0, 0, 0)
        p, b = self.packed, self
        self._step("load", 0, lambda t: load_history(b.state.tails, b.work, b.table, b.slots, b.state.positions), none)
        self._step("embed", 0, lambda t: embed_codes(b.codes, p.w["tables"], b.work[b.spots["pre"][0]:], *b.spots["pre"][1:]), none)
        x = self._transformer(s)
        x, each = self._stretches(s, x)
        self._conv("first", self._whole("first"), "first", b.frames * each, taps=7, snaked=self._new("block0"), snake=p.snakes["block0"])
        c = s.channels
        for i, r in enumerate(s.rates):
            c, each = c // 2, each * r
            self._block(i, r, c, each, len(s.rates))
        self._step("last", 0, lambda t: last_conv(b._whole("last"), p.w["last"], p.bias["last"], b.samples, b.rows, b.frames * each, 7, t,
                                                  b.early), Tile(64, 0, 0, 4, 0))
        self._step("save", 0, lambda t: save_history(b.state.tails, b.work, b.table, b.slots, b.state.positions, b.lengths), none)

    def _transformer(self, s: DecoderShape) -> View:
        t, p, st, inner = self.frames, self.packed, self.state, s.heads * s.head
        wide, x, mixed, att, act, y = (self._room(t, n) for n in (s.latent, s.hidden, 3 * inner, inner, s.feed, s.latent))
        self._conv("pre", self._whole("pre"), "pre", t, taps=3, out=wide)
        self._conv("enter", wide, "enter", t, out=x)
        for i in range(s.layers):
            self._conv(f"layer{i}.qkv", x, f"layer{i}.qkv", t, norm=True, out=mixed)
            attend = lambda _, i=i: attend_window(mixed.data, p.cosines, p.sines, st.keys, st.values, i, self.slots, st.positions,
                                                  self.lengths, att.data, self.rows, t, s.window, self.early)
            self._step(f"layer{i}.attend", 0, attend, Tile(0, 0, 0, 0, 0))
            self._conv(f"layer{i}.output", att, f"layer{i}.output", t, res=x, out=x)
            self._conv(f"layer{i}.both", x, f"layer{i}.both", t, norm=True, gated=True, out=act)
            self._conv(f"layer{i}.down", act, f"layer{i}.down", t, res=x, out=x)
        self._conv("leave", x, "leave", t, norm=True, out=y)
        return y

    def _stretches(self, s: DecoderShape, x: View) -> tuple[View, int]:
        p, each = self.packed, 1
        for i, r in enumerate(s.stretch):
            n, depth = f"up{i}", self._whole(f"up{i}.depth")
            self._conv(n, x, n, self.frames * each, period=s.latent, out=self._new(n + ".depth"))
            each *= r
            y, wide = self._room(self.frames * each, s.latent), self._room(self.frames * each, 4 * s.latent)
            run = lambda _, n=n, y=y, depth=depth, t=self.frames * each: depth_conv_norm(
                depth, p.w[n + ".depth"], p.bias[n + ".depth"], p.w[n + ".ln"], p.bias[n + ".ln"], y.data, self.rows, t, 7, self.early)
            self._step(n + ".depth", 0, run, Tile(0, 0, 0, 0, 0))
            self._conv(n + ".wide", y, n + ".wide", self.frames * each, gelu=True, out=wide)
            last = i + 1 == len(s.stretch)
            x = self._new("first") if last else self._room(self.frames * each, s.latent)
            self._conv(n + ".narrow", wide, n + ".narrow", self.frames * each, res=self._shifted(n + ".depth"), out=x)
        return x, each

    def _block(self, i: int, rate: int, c: int, each: int, blocks: int) -> None:
        p, t = self.packed, self.frames * each
        x, h = self._room(t, c), self._room(t if c > FUSED_CHANNELS else 0, c)
        fits = lambda name: tuple(v[:c].contiguous() for v in p.snakes[name])
        self._conv(f"block{i}.stretch", self._whole(f"block{i}"), f"block{i}.stretch", t // rate, taps=2, period=c, out=x,
                   snaked=self._new(f"block{i}.1"), snake=fits(f"block{i}.1.a"))
        for j, d in enumerate(DILATIONS):
            n, final = f"block{i}.{d}", j + 1 == len(DILATIONS)
            after = f"block{i}.{DILATIONS[j + 1]}" if not final else f"block{i + 1}" if i + 1 < blocks else "last"
            snake = p.snakes[after + ".a" if not final else "final" if after == "last" else after]
            if c > FUSED_CHANNELS:
                self._conv(n + ".wide", self._whole(n), n + ".wide", t, taps=7, dilation=d, snaked=h, snake=p.snakes[n + ".b"])
                self._conv(n + ".point", h, n + ".point", t, res=x, out=None if final else x, snaked=self._new(after), snake=snake)
                continue
            one = (p.w[n + ".wide"], p.bias[n + ".wide"], *p.snakes[n + ".b"])
            two = (p.w[n + ".point"], p.bias[n + ".point"], *snake)
            run = lambda tile, s=self._whole(n), o=self._new(after), one=one, two=two, d=d, keep=not final: residual_unit(
                s, x, one, two, o, self.rows, t, c, d, 7, keep, tile, self.early)
            m = self.rows * t
            bm = 128 if m >= 128 * 128 else 64 if m >= 64 * 64 else 32 if m >= 1024 else 16
            self._step(n + ".unit", t, run, Tile(bm, 0, power_in(c, 64), 8 if bm == 128 else 4, 3))

    def run(self) -> None:
        for name, step in self.steps:
            step(self.tiles[name])
