"""What the decoder takes of a device's memory, known before anything is loaded; and which shapes have kernels."""

from __future__ import annotations

from typing import NamedTuple

from omnirt.actors.engines.codec.rounds import Size
from omnirt.kernels.codec_layout import CodecShape, histories, tail_size, weight_count

POSITIONS_MAX = 1 << 15
"""Frames of one request: three quarters of an hour."""
RING_STEP = 16
SIZES = (Size(1, 1), Size(1, 4), Size(1, 16), Size(8, 4), Size(16, 8), Size(64, 4))
"""Calls that have a graph. A call with fewer rows or frames than its size costs what it has (see `is_live`)."""
LIVE_LEAST = 32
"""Rows times frames from which a size's kernels ask how many there are in a call."""
EARLY_MOST = 4
"""Rows times frames up to which a launch starts while the one before ends."""
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
        parts = zip(("weights", "rows", "work"), self, strict=True)
        return ", ".join(f"{name} {size / 1e9:.2f} GB" for name, size in parts)


def has_kernels(s: CodecShape) -> bool:
    """Whether matrix tiles fit: all widths are multiples of the least, a head is a power of two."""
    widths = (s.width, s.latent, s.hidden, s.feed, s.channels >> len(s.rates))
    return not any(width % _LEAST_CHANNELS for width in widths) and s.head in _HEADS


def sizes_for(slots: int) -> list[Size]:
    """Of SIZES those that so many slots can fill, and one row more of the kind above."""
    found = []
    for size in SIZES:
        rows = min(size.rows, slots)
        if Size(rows, size.frames) not in found:
            found.append(Size(rows, size.frames))
    return found


def codec_bytes(s: CodecShape, slots: int, dtype: str = "bfloat16") -> CodecBytes:
    """bfloat16: with kernels, if the shape has them. While loading, one weight is there in float32 beside the rest."""
    number = {"float32": 4, "bfloat16": 2}[dtype]
    if dtype == "bfloat16" and has_kernels(s):
        sizes = sizes_for(slots)
        samples = max(size.rows * size.frames for size in sizes) * s.samples * 4
        work = max(work_count(s, size) for size in sizes) * number
        tables = (POSITIONS_MAX + max(size.frames for size in sizes)) * s.head * 4
        return CodecBytes(weight_count(s) * number + tables, (slots + 1) * slot_count(s, ring(s)) * number, work + samples)
    widest = max(s.channels // 2**i * rate for i, rate in _positions(s))
    return CodecBytes(weight_count(s) * number, slots * slot_count(s, s.window - 1) * number, 64 * 32 * 8 * widest * number)


def slot_count(s: CodecShape, cached: int) -> int:
    """Numbers that a slot keeps, with keys and values of `cached` frames."""
    return tail_size(s) + 2 * s.layers * s.heads * s.head * cached


def ring(s: CodecShape) -> int:
    """Places for keys of a row: what a call writes is never what it still reads."""
    frames = max(size.frames for size in SIZES)
    return -(-(s.window + frames - 1) // RING_STEP) * RING_STEP
