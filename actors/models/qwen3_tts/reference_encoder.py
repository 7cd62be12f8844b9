"""A recording -> what the talker needs of its speaker: both encoders of a Base checkpoint, on one device.

Everything is float32, as the codes are choices of nearest neighbours. The device is waited for at the end, for the
results. Convolutions are not cuDNN's: it rounds their inputs to ten bits unless told otherwise, and it makes a plan for
each new length of a recording (the codec then takes 60 ms instead of 20 on an H200). Nearly all of the time, 23 to 27
ms for 2 to 30 seconds, is spent in launching 860 small kernels.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from omnirt.actors.models.json_object import read_json
from omnirt.actors.models.qwen3_tts.config_fields import entries
from omnirt.actors.models.qwen3_tts.mel import RATE
from omnirt.actors.models.qwen3_tts.mimi_encoder import CodecConfig, MimiEncoder
from omnirt.actors.models.qwen3_tts.reference_weights import WeightsBelow
from omnirt.actors.models.qwen3_tts.speaker_encoder import SpeakerConfig, SpeakerEncoder
from omnirt.actors.models.qwen3_tts.voice import SpeakerVoice
from omnirt.errors import ConfigError

SPEAKER = "speaker_encoder."
CODEC = "encoder."
SPEECH_TOKENIZER = "speech_tokenizer"
NOT_BASE = "only a Base checkpoint copies voices; this one is {kind}: leave the stage out, or name other weights"


class ReferenceEncoder:
    def __init__(self, folder: Path, device: str, seconds_max: float) -> None:
        """Raises ConfigError: no Base checkpoint, a file or a tensor that is not there, an extra that is missing."""
        config = read_json(folder / "config.json")
        kind = str(config.get("tts_model_type", "of another family"))
        if kind != "base":
            raise ConfigError(f"{folder}: {NOT_BASE.format(kind=kind)}")
        self._device = device
        speaker = SpeakerConfig.of(entries(config, "speaker_encoder_config", ""))
        self._speaker = SpeakerEncoder(speaker, WeightsBelow(folder, SPEAKER), device)
        speech = folder / SPEECH_TOKENIZER
        codec = CodecConfig.of(read_json(speech / "config.json"))
        self._codec = MimiEncoder(codec, WeightsBelow(speech, CODEC), device, seconds_max)

    def encode(self, samples: np.ndarray, with_codes: bool) -> SpeakerVoice:
        """`samples`: [T] float32 at 24 kHz, at least half a second."""
        with torch.inference_mode(), torch.backends.cudnn.flags(enabled=False):
            on_device = torch.from_numpy(np.array(samples, np.float32)).to(self._device)
            embedding = self._speaker.encode(on_device)
            codes = self._codec.encode(on_device) if with_codes else None
            found = np.zeros((0, self._codec.books), np.int32) if codes is None else codes.int().cpu().numpy()
            return SpeakerVoice(embedding.cpu().numpy(), np.ascontiguousarray(found))

    def warm_up(self, seconds_max: float) -> None:
        """Load kernels, and take the memory that the longest recording needs."""
        noise = np.random.default_rng(0).uniform(-0.3, 0.3, int(seconds_max * RATE)).astype(np.float32)
        for seconds in (seconds_max, min(5.0, seconds_max), min(3.0, seconds_max)):
            self.encode(noise[: int(seconds * RATE)], with_codes=True)
