"""What a clone needs of the speaker it copies: travels from the reference encoder to the talker."""

from __future__ import annotations

import numpy as np

from omnirt.wire.payload import Payload


class SpeakerVoice(Payload, frozen=True):
    """`embedding`: [W] float32, of the speaker encoder. `codes`: [F, Q] int32, the recording in codec frames; F is 0
    where only the embedding is to be used."""

    embedding: np.ndarray
    codes: np.ndarray
