"""What the decoder takes of a device's memory, known before anything is loaded; and which shapes have kernels."""

from __future__ import annotations

from typing import NamedTuple

from omnirt.actors.engines.codec.places import count, places, rooms
from omnirt.actors.engines.codec.rounds import Size
from omnirt.kernels.codec_layout import CodecShape, tail_size, weight_count

POSITIONS_MAX = 1 << 15
"""Frames of one request: three quarters of an hour."""
FUSED_CHANNELS = 192
"""Up to which a residual unit is one kernel. With 384 two are faster: 0.73 against 0.87 ms for three units, 64 x 4."""
RING_STEP = 16
GRAPH_SIZES = (Size(1, 1), Size(1, 4), Size(1, 16), Size(8, 1), Size(8, 4), Size(16, 1), Size(16, 8), Size(64, 4))
"""Calls with kernels. The larger ones cost what is in them, not what would fit (see Bucket)."""
PLAIN_SIZES = (Size(1, 32), Size(8, 8), Size(64, 1))
GRAPH_BYTES = 150 << 20
"""Of graphs and kernels themselves: 120 MB were measured."""
PLAIN_BUFFERS = 8
"""Of the widest layer's, that plain torch has at a time."""
_LEAST_CHANNELS = 16
_HEADS = (32, 64, 128, 256)


class CodecBytes(NamedTuple):
    weights: int
    slots: int
    work: int

    @property
    def total(self) -> int:
        return sum(self)

    def __str__(self) -> str:
        return f"weights {self.weights / 1e9:.2f}, rows {self.slots / 1e9:.2f}, work {self.work / 1e9:.2f} GB"


def has_kernels(s: CodecShape) -> bool:
    """Whether matrix tiles fit: all widths are multiples of the least, a head is a power of two."""
    widths = (s.width, s.latent, s.hidden, s.feed, s.channels >> len(s.rates))
    return not any(width % _LEAST_CHANNELS for width in widths) and s.head in _HEADS


def sizes_for(slots: int) -> list[Size]:
    """GRAPH_SIZES, with no more rows than slots."""
    return list(dict.fromkeys(Size(min(size.rows, slots), size.frames) for size in GRAPH_SIZES))


def codec_bytes(s: CodecShape, slots: int, dtype: str = "bfloat16") -> CodecBytes:
    """bfloat16: with kernels, if the shape has them. While loading, the largest weight is there in float32 as well."""
    if dtype == "bfloat16" and has_kernels(s):
        sizes = sizes_for(slots)
        frames = max(size.rows * size.frames for size in sizes)
        work = 2 * max(count(places(s, size, FUSED_CHANNELS), size.rows) for size in sizes) + 4 * frames * s.samples
        work += GRAPH_BYTES
        turns = 4 * (POSITIONS_MAX + frames_max()) * s.head
        return CodecBytes(2 * weight_count(s) + turns, 2 * (slots + 1) * _slot(s, ring(s)), work)
    number = {"float32": 4, "bfloat16": 2}[dtype]
    widest = max(room.channels * room.each for room in rooms(s, FUSED_CHANNELS))
    work = max(size.rows * size.frames for size in PLAIN_SIZES) * PLAIN_BUFFERS * widest * number
    return CodecBytes(number * weight_count(s), number * slots * _slot(s, s.window - 1), work)


def snapshot_bytes(s: CodecShape, dtype: str = "bfloat16") -> int:
    """Of a slot's copy."""
    return codec_bytes(s, 2, dtype).slots - codec_bytes(s, 1, dtype).slots


def ring(s: CodecShape) -> int:
    """Places for the keys of a row: what a call writes is never what it still reads."""
    return -(-(s.window + frames_max() - 1) // RING_STEP) * RING_STEP


def frames_max() -> int:
    return max(size.frames for size in GRAPH_SIZES)


def _slot(s: CodecShape, cached: int) -> int:
    """Numbers that a slot keeps, with keys and values of `cached` frames."""
    return tail_size(s) + 2 * s.layers * s.heads * s.head * cached
