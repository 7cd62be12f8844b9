"""The least a step can take: its bytes at the speed of memory or its operations at the speed of the tensor cores.

Launches, sampling and norms count nothing, and each pass of the predictor reads its weights again (they are more than
the L2 cache holds). The two rates were measured on an H200, so a floor says nothing about another device.
Pure: dimensions in, seconds out.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct
from tts_ask import FRAME_S

from omnirt.actors.models.qwen3_tts.config import Qwen3TtsConfig
from omnirt.pipeline.checkpoint import is_checkpoint

BYTES_PER_S = 4.3e12
"""A copy from device to device, bytes read and written."""
FLOPS_PER_S = 790e12
"""A bfloat16 product of 8192-wide matrices."""
WEIGHT_BYTES = 2
CODEC_FLOPS = 4.96e9
"""Of one frame of the streaming decoder at full size."""
CODEC_WEIGHT_BYTES = 211e6
CODEC_DIM = 1536
"""`decoder_dim` of the decoder that these two are of."""


class Dimensions(Protocol):
    """Of the backbone, or of the predictor."""

    width: int
    feed: int
    layers: int
    heads: int
    kv_heads: int
    head: int


class Floor(Struct, frozen=True):
    """Of one model. Counts of weights are of what a frame reads, each as often as it is read."""

    backbone: int
    inner: int
    kv_bytes: int
    """Of one position of one row."""
    has_codec: bool
    """Whether the decoder is of the size whose operations are known."""

    @property
    def weights(self) -> int:
        return self.backbone + self.inner

    def frame_s(self, rows: int, position: float) -> float:
        """One frame of `rows`, each with so many positions before it."""
        read = WEIGHT_BYTES * self.weights + rows * position * self.kv_bytes
        return max(read / BYTES_PER_S, 2 * self.weights * rows / FLOPS_PER_S)

    def codec_s(self, rows: int, frames: int = 1) -> float:
        """One call of the decoder; 0 where its size is not known."""
        if not self.has_codec:
            return 0.0
        return max(CODEC_WEIGHT_BYTES / BYTES_PER_S, rows * frames * CODEC_FLOPS / FLOPS_PER_S)

    def prefill_s(self, positions: int) -> float:
        """Prompts of so many positions in all, in one pass over the backbone."""
        return max(WEIGHT_BYTES * self.backbone / BYTES_PER_S, 2 * self.backbone * positions / FLOPS_PER_S)

    def audio_s_per_s(self, rows: int, position: float) -> float:
        """Frames and what the decoder computes for them, on one device, its weights read only now and then."""
        codec = rows * CODEC_FLOPS / FLOPS_PER_S if self.has_codec else 0.0
        return rows * FRAME_S / (self.frame_s(rows, position) + codec)


def floor_for(pipeline: str, device: str) -> Floor | None:
    """Of a checkpoint on a GPU; elsewhere there is none to name."""
    if not is_checkpoint(pipeline) or not device.startswith("cuda"):
        return None
    return floor_of(Qwen3TtsConfig.read(Path(pipeline)), Path(pipeline))


def floor_of(config: Any, folder: Path) -> Floor:
    """Of a checkpoint: `config` is its Qwen3TtsConfig."""
    backbone, inner, passes = config.backbone, config.predictor, config.books - 1
    projection = 0 if inner.width == backbone.width else inner.width * backbone.width
    return Floor(
        backbone=_layers(backbone) + config.vocab * backbone.width,
        inner=passes * (_layers(inner) + config.codes * inner.width + projection),
        kv_bytes=2 * WEIGHT_BYTES * backbone.layers * backbone.kv_heads * backbone.head,
        has_codec=_codec_dim(folder) == CODEC_DIM,
    )


def _layers(shape: Dimensions) -> int:
    attention = shape.width * shape.head * (2 * shape.heads + 2 * shape.kv_heads)
    return shape.layers * (attention + 3 * shape.width * shape.feed)


def _codec_dim(folder: Path) -> int:
    try:
        return json.loads((folder / "speech_tokenizer" / "config.json").read_text())["decoder_config"]["decoder_dim"]
    except (OSError, ValueError, KeyError):
        return 0
