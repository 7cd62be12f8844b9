"""One size of call as a fixed list of launches: `rows` requests by up to `frames` frames each.

    histories in, codes, transformer, both upsamplings, blocks, last convolution, histories out

A large bucket asks the device how many rows and frames a call really has, and does only those; a small one (where that
question would cost more than it saves) always does all. What a row has beyond its own length is computed and forgotten.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from omnirt.actors.engines.codec.memory import FUSED_CHANNELS, ring
from omnirt.actors.engines.codec.packed import PackedDecoder, after
from omnirt.actors.engines.codec.places import Place, places
from omnirt.actors.engines.codec.rounds import Size
from omnirt.actors.engines.codec.tiles import LAST, product_tile, unit_tile
from omnirt.kernels.codec_layout import DILATIONS, LAYER_NORM_EPS, CodecShape, histories, tail_size
from omnirt.kernels.decoder_state import PIECE, Tails, embed_codes, load_history, save_history
from omnirt.kernels.residual_unit import residual_unit
from omnirt.kernels.tap_conv import tap_conv
from omnirt.kernels.tap_layout import Extent, Tile, View
from omnirt.kernels.thin_conv import depth_conv_norm, last_conv
from omnirt.kernels.window_attention import Cache, RowState, attend_window

LIVE_LEAST = 64
"""Rows times frames from which a bucket asks. It costs about a microsecond a launch (0.77 for 0.58 ms at 8 x 1, 3.69
for 3.61 at 64 x 4), and gains as much as is missing: 2.17 with half of the rows."""
EARLY_MOST = 4
"""Rows times frames up to which a launch starts while the one before ends: 0.489 for 0.515 ms at 1 x 1."""


@dataclass
class Slots:
    """What requests keep between calls. The last slot is nobody's. A new request needs no zeros: at position 0 its
    histories are not read, and of keys only what it wrote itself."""

    positions: Tensor
    tails: Tensor
    cache: Cache

    @staticmethod
    def make(s: CodecShape, slots: int, device: str, kind: torch.dtype) -> Slots:
        cache = (s.layers, slots + 1, s.heads, ring(s), s.head)
        return Slots(
            torch.zeros(slots + 1, device=device, dtype=torch.int32),
            torch.zeros(slots + 1, tail_size(s), device=device, dtype=kind),
            Cache(*(torch.zeros(cache, device=device, dtype=kind) for _ in range(2))),
        )


class Inputs:
    """What a call says to the device, in one copy: rows and frames, slots, lengths, codes; int32."""

    def __init__(self, size: Size, books: int) -> None:
        self._size, self._books = size, books
        self.count = 2 + size.rows * (2 + size.frames * books)

    def parts(self, memory: Any) -> tuple[Any, Any, Any, Any]:
        """Live, slots, lengths, codes: views of an array or a tensor."""
        rows, frames = self._size
        codes = memory[2 + 2 * rows : self.count].reshape(rows, frames, self._books)
        return memory[:2], memory[2 : 2 + rows], memory[2 + rows : 2 + 2 * rows], codes


@dataclass
class Memory:
    """That all buckets share: between calls nothing lives there."""

    inputs: Tensor
    work: Tensor
    samples: Tensor


@dataclass
class Step:
    name: str
    run: Callable[[Tile], None]
    tile: Tile
    rows: int
    """Of the product."""
    key: tuple[object, ...]
    """Steps of one key are the same kernel."""


NO_TILE = Tile(0, 0, 0, 0, 0)
_ALIKE = ((re.compile(r"^layer\d+"), "layer"), (re.compile(rf"\.{DILATIONS[1]}\."), f".{DILATIONS[0]}."))
"""Layers, and all but the last unit of a block, differ in nothing that a kernel is compiled for."""


class Bucket:
    def __init__(self, packed: PackedDecoder, slots: Slots, size: Size, memory: Memory) -> None:
        s = packed.shape
        self.size, self._packed, self._slots = size, packed, slots
        self.inputs = Inputs(size, s.books)
        self._live, slots_of, lengths, self._codes = self.inputs.parts(memory.inputs)
        self.samples = memory.samples
        """One row after the other, each as long as the call decodes of it."""
        self._rows = RowState(slots_of, slots.positions, lengths)
        self._exact = packed.kind == torch.float32
        self._places, self._work = places(s, size, FUSED_CHANNELS), memory.work
        table = torch.tensor(_lines(s, self._places), device=packed.device, dtype=torch.int64)
        self._tails = Tails(slots.tails, table)
        work = size.rows * size.frames
        self.live, self.early = work >= LIVE_LEAST, work <= EARLY_MOST and packed.device != "cpu" and not self._exact
        self.steps: list[Step] = []
        self._build()

    def run(self) -> None:
        for step in self.steps:
            step.run(step.tile)

    # ------------------------------------------------------------ where things are

    def _whole(self, name: str) -> View:
        """From its history on: what a convolution reads."""
        return View(self._work[self._places[name].at :], self._places[name].row)

    def _new(self, name: str) -> View:
        """The new positions, as something to write."""
        place = self._places[name]
        return View(self._work[place.at :], place.row, place.first)

    def _room(self, name: str) -> View:
        """The new positions, as something to read."""
        place = self._places[name]
        return View(self._work[place.at + place.first :], place.row)

    def _extent(self, each: int) -> Extent:
        return Extent(*self.size, each, self._live if self.live else None, self.early)

    # ------------------------------------------------------------ launches

    def _add(self, name: str, run: Callable[[Tile], None], tile: Tile = NO_TILE, rows: int = 0) -> None:
        kind = name
        for pattern, stands_for in _ALIKE:
            kind = pattern.sub(stands_for, kind)
        whole = self.live or not tile.m or rows % tile.m == 0
        self.steps.append(Step(name, run, tile, rows, (kind, tile, whole, self.live, self.early)))

    def _product(
        self, name: str, a: View, each: int, *, res: View | None = None, out: View | None = None, snaked: str = ""
    ) -> None:
        """`snaked`: the name of what begins with the snake of the result."""
        product = self._packed.products[name]
        to, snake = (self._to(snaked), self._packed.snakes[snaked]) if snaked else (None, None)

        def run(tile: Tile) -> None:
            tap_conv(a, product, self._extent(each), tile, res=res, out=out, snaked=to, snake=snake)

        rows = self.size.rows * self.size.frames * each
        self._add(name, run, product_tile(product, rows, exact=self._exact), rows)

    def _to(self, name: str) -> View:
        return self._new(f"{name.split('.')[0]}.h" if name.endswith(".point") else name)

    def _build(self) -> None:
        s, p, rows = self._packed.shape, self._packed, self._rows
        tails, work = self._tails, self._work
        self._add("load", lambda _: load_history(tails, work, rows))
        self._add("embed", lambda _: embed_codes(self._codes, p.tables, self._new("pre"), self._extent(1)))
        self._build_transformer()
        each = self._build_ups()
        self._product("first", self._whole("first"), each, snaked="block0")
        for i, rate in enumerate(s.rates):
            self._build_block(i, each, rate)
            each *= rate
        self._add(
            "last", lambda tile: last_conv(self._whole("last"), *p.last, self.samples, self._extent(each), tile), LAST
        )
        self._add("save", lambda _: save_history(tails, work, rows))

    def _build_transformer(self) -> None:
        s, room = self._packed.shape, self._room
        self._product("pre", self._whole("pre"), 1, out=room("pre.out"))
        self._product("enter", room("pre.out"), 1, out=room("x"))
        for i in range(s.layers):
            self._product(f"layer{i}.qkv", room("x"), 1, out=room("qkv"))
            self._add(f"layer{i}.attend", self._attention(i))
            self._product(f"layer{i}.output", room("mixed"), 1, res=room("x"), out=room("x"))
            self._product(f"layer{i}.gate", room("x"), 1, out=room("feed"))
            self._product(f"layer{i}.down", room("feed"), 1, res=room("x"), out=room("x"))
        self._product("leave", room("x"), 1, out=room("leave.out"))

    def _attention(self, layer: int) -> Callable[[Tile], None]:
        p, mixed, out, cache = self._packed, self._room("qkv"), self._room("mixed"), self._slots.cache
        window = p.shape.window
        return lambda _: attend_window(
            mixed, p.turns, cache, self._rows, out, self._extent(1), layer=layer, window=window
        )

    def _build_ups(self) -> int:
        """Gives the positions of a frame."""
        s, x, each = self._packed.shape, self._room("leave.out"), 1
        for i, rate in enumerate(s.stretch):
            name = f"up{i}"
            self._product(name, x, each, out=self._new(f"{name}.depth"))
            each *= rate
            self._add(f"{name}.depth", self._depth(name, each))
            self._product(f"{name}.wide", self._room(f"{name}.normed"), each, out=self._room(f"{name}.wide"))
            x = self._new("first") if i + 1 == len(s.stretch) else self._room(f"{name}.out")
            wide, res = self._room(f"{name}.wide"), self._room(f"{name}.depth")
            self._product(f"{name}.narrow", wide, each, res=res, out=x)
        return each

    def _depth(self, name: str, each: int) -> Callable[[Tile], None]:
        depth, whole, out = self._packed.depths[name], self._whole(f"{name}.depth"), self._room(f"{name}.normed")
        return lambda _: depth_conv_norm(whole, depth, self._extent(each), out, LAYER_NORM_EPS)

    def _build_block(self, i: int, each: int, rate: int) -> None:
        s, name, x = self._packed.shape, f"block{i}", self._room(f"block{i}.x")
        self._product(f"{name}.stretch", self._whole(name), each, out=x, snaked=f"{name}.{DILATIONS[0]}")
        for d in DILATIONS:
            unit, last, to = f"{name}.{d}", d == DILATIONS[-1], after(s, i, d)
            if unit in self._packed.units:
                self._unit(unit, x, d, each * rate, to)
                continue
            self._product(f"{unit}.wide", self._whole(unit), each * rate, snaked=f"{unit}.point")
            h = self._room(f"{name}.h")
            self._product(f"{unit}.point", h, each * rate, res=x, out=None if last else x, snaked=to)

    def _unit(self, unit: str, x: View, dilation: int, each: int, to: str) -> None:
        s, halves, whole, out = self._packed.shape, self._packed.units[unit], self._whole(unit), self._new(to)
        keep = dilation != DILATIONS[-1]

        def run(tile: Tile) -> None:
            residual_unit(whole, x, halves, out, self._extent(each), tile, dilation=dilation, keep=keep)

        channels = s.channels >> (int(unit.split(".")[0].removeprefix("block")) + 1)
        rows = self.size.rows * self.size.frames * each
        self._add(f"{unit}.unit", run, unit_tile(channels, rows, exact=self._exact), rows)


def _lines(s: CodecShape, found: dict[str, Place]) -> list[tuple[int, ...]]:
    """See decoder_state."""
    lines, tail = [], 0
    for name, kept, channels, each in histories(s):
        place = found[name]
        for at in range(0, place.first, PIECE):
            numbers = min(PIECE, place.first - at)
            lines.append((place.at + at, place.row, tail + at, numbers, each * channels))
        tail += kept * channels
    return lines
