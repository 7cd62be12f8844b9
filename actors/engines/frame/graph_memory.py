"""What the fused form of the frame step will hold, worked out before anything is loaded."""

from __future__ import annotations

from omnirt.kernels import frame_predictor, talker_step
from omnirt.kernels.frame_layout import PAGE, DecoderShape, FrameShape
from omnirt.kernels.frame_predictor import WIDTH


def mail_words(shape: FrameShape, rows: int) -> int:
    talker = talker_step.mail_words(shape, min(rows, talker_step.ROWS_MAX)) if talker_step.fits(shape) else 0
    return max(frame_predictor.mail_words(shape, min(rows, frame_predictor.ROWS_MAX)), talker)


def _matrices(d: DecoderShape) -> int:
    """Weights of the layers."""
    return d.layers * d.width * (2 * d.head * (d.heads + d.kv_heads) + 3 * d.feed)


def planned_bytes(
    shape: FrameShape, buckets: tuple[int, ...], prefill_max: int, row_pages: int, *, bits: int = 16
) -> dict[str, int]:
    """What FusedForm will hold, before anything is loaded: as its `bytes`, but for norms and scales (under 1 %)."""
    bits = bits if talker_step.fits(shape) else 16
    b, p, w = shape.backbone, shape.predictor, shape.backbone.width
    tables = (shape.books - 1) * shape.codes * p.width
    solo = (_matrices(p) + WIDTH * p.width) * bits // 16 + (tables if bits == 8 else 0) // 2
    several = _matrices(p) + WIDTH * p.width
    packed = 2 * tables + (solo if 1 in buckets else 0) + (several if buckets[-1] > 1 else 0)
    talkers = talker_step.fits(shape) and buckets[0] <= talker_step.ROWS_MAX
    packed += (_matrices(b) + shape.vocab * w) * bits // 16 if talkers else 0
    entries = max(prefill_max, buckets[-1])
    work = entries * (3 * w + (2 * b.heads + 2 * b.kv_heads) * b.head + 3 * b.feed) + buckets[-1] * shape.vocab
    work += 2 * (row_pages * PAGE * b.head + mail_words(shape, buckets[-1]) + talker_step.ROWS_MAX * shape.vocab)
    return {
        "embeddings": 2 * w * (shape.vocab + (shape.books - 1) * shape.codes),
        "plain": 2 * (_matrices(b) + shape.vocab * w),
        "packed": 2 * packed,
        "work": 2 * work,
    }
