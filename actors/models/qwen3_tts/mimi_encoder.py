"""A recording as codec frames: the encoder half of transformers' Mimi, from the `speech_tokenizer` of a checkpoint.

The only file that knows transformers. What it takes care of:
    only the first of the codebooks are used, and only they are loaded; of the decoder half nothing is loaded;
    names inside transformers' model differ between its versions, those of the checkpoint do not;
    newer versions honour Mimi's attention window, the one that the reference implementation runs with attends to all
    that was before: codes are to be those of the reference, so the window is made as long as the longest recording;
    the model keeps sizes of its convolutions on the device, and would wait for it at each: they are kept here.

A recording of T samples gives T / 1920 frames, rounded up; the last one hears zeros behind the recording's end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from torch import Tensor

from omnirt.actors.models.qwen3_tts.mel import RATE
from omnirt.actors.models.qwen3_tts.reference_weights import WeightsBelow
from omnirt.errors import ConfigError
from omnirt.extras import extra

DECODER_PARTS = ("decoder", "decoder_transformer", "upsample")
SIZES = ("stride", "kernel_size", "padding_total")
"""Of a convolution of transformers' model: numbers, kept as tensors."""
ONLY_FOR_TRAINING = ".codebook.initialized"
MOVED = {"encoder.encoder_seanet.": "encoder.", "encoder.encoder_transformer.": "encoder_transformer."} | {
    "encoder.downsample.": "downsample."
}
"""Where newer versions keep what checkpoints (and older versions) have at the right."""


class CodecConfig(msgspec.Struct, frozen=True):
    """`speech_tokenizer/config.json`, as far as it concerns encoding."""

    encoder_config: dict[str, Any]
    encoder_valid_num_quantizers: int = 16
    input_sample_rate: int = RATE
    encode_downsample_rate: int = 1920

    @staticmethod
    def of(fields: Mapping[str, Any]) -> CodecConfig:
        """Raises ConfigError."""
        try:
            config = msgspec.convert(dict(fields), CodecConfig)
        except msgspec.ValidationError as error:
            raise ConfigError(f"speech_tokenizer/config.json: {error}") from None
        if config.input_sample_rate != RATE:
            raise ConfigError(f"speech_tokenizer/config.json: only input_sample_rate = {RATE} is supported")
        if config.encode_downsample_rate < 1:
            raise ConfigError("speech_tokenizer/config.json: encode_downsample_rate must be 1 or more")
        return config


class MimiEncoder:
    def __init__(self, config: CodecConfig, weights: WeightsBelow, device: str, seconds_max: float) -> None:
        """Raises ConfigError naming what does not fit."""
        self.books = config.encoder_valid_num_quantizers
        self._frame = config.encode_downsample_rate
        self._model = _built(config, seconds_max)
        _fill(self._model, weights)
        self._model.to(device)
        _keep_sizes(self._model)

    def encode(self, samples: Tensor) -> Tensor:
        """[T] at 24 kHz, on the device -> [frames, books] integers. Does not wait for the device."""
        codes = self._model.encode(samples[None, None], return_dict=True).audio_codes[0]  # [books, frames]
        frames = -(-len(samples) // self._frame)
        return codes[: self.books, :frames].T


def _built(config: CodecConfig, seconds_max: float) -> Any:
    """The encoder half, on the CPU, its weights not yet those of the checkpoint."""
    try:
        from huggingface_hub import errors
        from transformers import MimiConfig, MimiModel
    except ImportError as error:
        raise ConfigError(f"cloning a voice needs transformers ({error}); {extra('qwen3-tts')}") from None
    fields = dict(config.encoder_config)
    longer_than_any = int(seconds_max * RATE) + 1
    fields |= {"num_quantizers": config.encoder_valid_num_quantizers, "sliding_window": longer_than_any}
    fields |= {"decoder_config": None}  # newer versions then build no decoder; in older ones it says nothing
    refusal = getattr(errors, "StrictDataclassError", ValueError)  # older versions look at nothing
    try:
        model = MimiModel(MimiConfig(**fields))
    except (TypeError, ValueError, KeyError, refusal) as error:
        why = " ".join(str(error).split())
        raise ConfigError(f"speech_tokenizer/config.json: encoder_config: {type(error).__name__}: {why}") from None
    for part in DECODER_PARTS:
        if part in dict(model.named_children()):
            setattr(model, part, None)
    return model.eval()


def _fill(model: Any, weights: WeightsBelow) -> None:
    own = {name: tensor for name, tensor in model.state_dict().items() if not name.endswith(ONLY_FOR_TRAINING)}
    stored = weights.tensors({_stored_name(name): tuple(tensor.shape) for name, tensor in own.items()})
    model.load_state_dict({name: stored[_stored_name(name)] for name in own}, strict=False)


def _stored_name(name: str) -> str:
    for ours, stored in MOVED.items():
        if name.startswith(ours):
            return stored + name.removeprefix(ours)
    return name


def _keep_sizes(model: Any) -> None:
    for module in model.modules():
        for name in SIZES:
            if name in dict(module.named_buffers(recurse=False)):
                setattr(module, name, getattr(module, name).cpu())
