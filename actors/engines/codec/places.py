"""Where everything between two layers lies in one work memory, for a size of call. Pure.

All sizes share the memory, as nothing lives there between calls. A history and the positions behind it are one place,
so that a convolution reads them as one.
"""

from __future__ import annotations

from typing import NamedTuple

from omnirt.actors.engines.codec.rounds import Size
from omnirt.kernels.codec_layout import CodecShape, histories

ALIGNED = 64
"""Numbers: a place begins at a multiple of them."""


class Place(NamedTuple):
    at: int
    row: int
    """Numbers from one row to the next."""
    first: int
    """Numbers before the new positions: the history."""


class Room(NamedTuple):
    """Positions without a history."""

    name: str
    channels: int
    each: int


def rooms(s: CodecShape, fused_channels: int) -> list[Room]:
    inner = s.heads * s.head
    found = [
        Room("pre.out", s.latent, 1),
        Room("x", s.hidden, 1),
        Room("qkv", 3 * inner, 1),
        Room("mixed", inner, 1),
        Room("feed", s.feed, 1),
        Room("leave.out", s.latent, 1),
    ]
    each, channels = 1, s.channels
    for i, rate in enumerate(s.stretch):
        each *= rate
        found += [Room(f"up{i}.normed", s.latent, each), Room(f"up{i}.wide", 4 * s.latent, each)]
        found.append(Room(f"up{i}.out", s.latent, each))
    for i, rate in enumerate(s.rates):
        each, channels = each * rate, channels // 2
        found.append(Room(f"block{i}.x", channels, each))
        if channels > fused_channels:
            found.append(Room(f"block{i}.h", channels, each))
    return found


def places(s: CodecShape, size: Size, fused_channels: int) -> dict[str, Place]:
    found, at = {}, 0
    areas = [(h.name, h.kept * h.channels, h.each * h.channels) for h in histories(s)]
    areas += [(room.name, 0, room.each * room.channels) for room in rooms(s, fused_channels)]
    for name, first, frame in areas:
        row = first + size.frames * frame
        found[name] = Place(at, row, first)
        at += -(-size.rows * row // ALIGNED) * ALIGNED
    return found


def count(found: dict[str, Place], rows: int) -> int:
    """Numbers that the work memory must have."""
    return max(place.at + rows * place.row for place in found.values())
