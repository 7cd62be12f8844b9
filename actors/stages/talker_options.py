"""What a pipeline file may say of the talker."""

from __future__ import annotations

import msgspec

from omnirt.actors.stages.chunking import SIZES
from omnirt.errors import ConfigError


class TalkerOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    weights: str | tuple[str, ...]
    """A checkpoint's folder or its repository on the hub; of several, the first to be had."""
    dtype: str = "auto"
    """`float32`, `bfloat16`; auto is bfloat16 on a GPU."""
    rows: int = 64
    """Requests at a time."""
    frames_max: int = 8192
    """Of one answer: eleven minutes. What a request may take of them is reserved, and depends on its text."""
    prompt_max: int = 3072
    """Positions of a prompt: a token of text each, and a frame of the recording of a voice."""
    prefill_positions: int = 1536
    """Of new prompts in a step: what answers under way wait for at most (some 9 ms for 1.7B; their lead is 80)."""
    cache_gib: float = 4.0
    """For keys and values of all answers (64 answers of 10 s with 1.7B take 2)."""
    chunk_frames: tuple[int, ...] = SIZES
    """Frames of the first, second, ... chunk of an answer; the last one repeats."""
    weights_bits: int = 16
    """8: the weights that a frame reads are rounded to 8 bits (1.7B on a GPU, few rows): faster alone, less exact."""

    def check(self) -> None:
        """Raises ConfigError."""
        for name, least in (("rows", 1), ("frames_max", 1), ("prompt_max", 32), ("prefill_positions", 1)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name} must be at least {least}, not {getattr(self, name)}")
        if not self.cache_gib > 0:
            raise ConfigError(f"cache_gib must be above 0, not {self.cache_gib}")
        if not self.chunk_frames or min(self.chunk_frames) < 1:
            raise ConfigError("chunk_frames must be at least one number of frames, each 1 or more")
        if self.weights_bits not in (8, 16):
            raise ConfigError(f"weights_bits must be 8 or 16, not {self.weights_bits}")
