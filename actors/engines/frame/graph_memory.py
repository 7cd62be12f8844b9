"""What the fused form of the frame step needs: sizes of its predictors, device memory; before anything is loaded."""

from __future__ import annotations

from omnirt.kernels import frame_pairs, frame_predictor, talker_step
from omnirt.kernels.attention_parts import room_bytes
from omnirt.kernels.frame_layout import PAGE, DecoderShape, FrameShape
from omnirt.kernels.frame_predictor import WIDTH

_PREDICTOR_ROWS = (1, 8, 16, frame_predictor.ROWS_MAX, frame_pairs.ROWS_MAX)


def predictor_sizes(buckets: tuple[int, ...]) -> list[int]:
    """Rows of the predictors that these buckets need, ascending. What is beyond the largest runs in parts."""
    most = _PREDICTOR_ROWS[-1]
    return sorted({min(rows for rows in _PREDICTOR_ROWS if rows >= min(bucket, most)) for bucket in buckets})


def mail_words(shape: FrameShape, rows: int) -> int:
    talker = talker_step.mail_words(shape, min(rows, talker_step.ROWS_MAX)) if talker_step.fits(shape) else 0
    return max(frame_predictor.mail_words(shape, min(rows, frame_pairs.ROWS_MAX)), talker)


def _matrices(d: DecoderShape) -> int:
    """Weights of the layers."""
    return d.layers * d.width * (2 * d.head * (d.heads + d.kv_heads) + 3 * d.feed)


def _predictors(shape: FrameShape, buckets: tuple[int, ...], bits: int) -> int:
    """Weights, in places of 16 bits: tables, then each kernel's own. One row of 16 bits and several share the heads."""
    p, sizes = shape.predictor, predictor_sizes(buckets)
    heads = (shape.books - 1) * shape.codes * p.width  # as many as the tables have
    own = _matrices(p) + WIDTH * p.width
    solo, pairs = 1 in sizes, sizes[-1] > frame_predictor.ROWS_MAX
    several = any(1 < size <= frame_predictor.ROWS_MAX for size in sizes)
    count = heads + (heads if several or (solo and bits == 16) else 0)
    count += (own + (heads if bits == 8 else 0)) * bits // 16 if solo else 0
    return count + (own if several else 0) + (own + heads if pairs else 0)


def planned_bytes(
    shape: FrameShape, buckets: tuple[int, ...], prefill_max: int, row_pages: int, *, bits: int = 16
) -> dict[str, int]:
    """What FusedForm will hold, before anything is loaded: as its `bytes`, but for norms and scales (under 1 %)."""
    bits = bits if talker_step.fits(shape) else 16
    b, w = shape.backbone, shape.backbone.width
    talkers = talker_step.fits(shape) and buckets[0] <= talker_step.ROWS_MAX
    packed = _predictors(shape, buckets, bits) + ((_matrices(b) + shape.vocab * w) * bits // 16 if talkers else 0)
    entries = max(prefill_max, buckets[-1])
    work = entries * (2 * w + (2 * b.heads + 2 * b.kv_heads) * b.head + 3 * b.feed) + buckets[-1] * shape.vocab
    work += 2 * (row_pages * PAGE * b.head + mail_words(shape, buckets[-1]) + talker_step.ROWS_MAX * shape.vocab)
    return {
        "embeddings": 2 * w * (shape.vocab + (shape.books - 1) * shape.codes),
        "plain": 2 * (_matrices(b) + shape.vocab * w),
        "packed": 2 * packed,
        "work": 2 * work + room_bytes(buckets[-1], b.kv_heads),
    }
