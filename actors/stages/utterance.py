"""What travels from voice activity to the recogniser: a stretch of a recording in which somebody speaks."""

from __future__ import annotations

import numpy as np

from omnirt.wire.payload import Payload

RATE = 16_000


class Utterance(Payload, frozen=True):
    """`samples`: [T] int16 at RATE, pauses included, from `start_s` of recording `clip`. The last of a clip has `last`
    set (and no samples when nothing was said since the one before); `clip_s` is then the recording's length."""

    samples: np.ndarray
    clip: int = 0
    start_s: float = 0.0
    last: bool = False
    clip_s: float = 0.0
