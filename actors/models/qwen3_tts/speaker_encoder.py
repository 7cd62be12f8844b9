"""Who is speaking: an ECAPA-TDNN over the mel spectrogram, whose output stands in the talker's prompt for a voice.

    mel -> convolution -> blocks -> their outputs side by side -> mean and deviation, weighted by attention -> vector

Every dimension is from `speaker_encoder_config`. Everything is float32, one recording at a time: without a batch there
is no padding, so no length has to be masked. Convolutions are matrix products over shifted copies of their input: those
of the library are made of one launch for each column (dilated ones), or planned anew for each length (cuDNN's).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import torch
from torch import Tensor
from torch.nn import functional

from omnirt.actors.models.qwen3_tts.mel import BANDS, FFT, RATE, log_mel, mel_filters
from omnirt.actors.models.qwen3_tts.reference_weights import WeightsBelow
from omnirt.errors import ConfigError

VARIANCE_FLOOR = 1e-12


class SpeakerConfig(msgspec.Struct, frozen=True):
    """`speaker_encoder_config` of a checkpoint; what it leaves out is as here."""

    mel_dim: int = BANDS
    enc_dim: int = 1024
    enc_channels: tuple[int, ...] = (512, 512, 512, 512, 1536)
    enc_kernel_sizes: tuple[int, ...] = (5, 3, 3, 3, 1)
    enc_dilations: tuple[int, ...] = (1, 2, 3, 4, 1)
    enc_attention_channels: int = 128
    enc_res2net_scale: int = 8
    enc_se_channels: int = 128
    sample_rate: int = RATE

    @staticmethod
    def of(fields: Mapping[str, Any]) -> SpeakerConfig:
        """Raises ConfigError."""
        try:
            config = msgspec.convert(dict(fields), SpeakerConfig)
        except msgspec.ValidationError as error:
            raise ConfigError(f"speaker_encoder_config: {error}") from None
        sizes = {len(config.enc_channels), len(config.enc_kernel_sizes), len(config.enc_dilations)}
        if len(sizes) != 1 or min(sizes) < 3:
            raise ConfigError(
                "speaker_encoder_config: enc_channels, enc_kernel_sizes and enc_dilations must be of one length"
            )
        if config.sample_rate != RATE or config.mel_dim != BANDS:
            raise ConfigError(f"speaker_encoder_config: only {RATE} Hz and {BANDS} mel bands are supported")
        parts = config.enc_channels[1:-1]
        if config.enc_res2net_scale < 1:
            raise ConfigError("speaker_encoder_config: enc_res2net_scale must be 1 or more")
        if any(channels % config.enc_res2net_scale for channels in parts) or len({*config.enc_channels[:-1]}) != 1:
            raise ConfigError(
                "speaker_encoder_config: enc_channels of the blocks must be equal, and divide by the scale"
            )
        if sum(parts) != config.enc_channels[-1]:
            raise ConfigError("speaker_encoder_config: the last of enc_channels must be as wide as all blocks together")
        return config


def tensor_shapes(config: SpeakerConfig) -> dict[str, tuple[int, ...]]:
    """Names below the encoder's prefix, of convolutions [outputs, inputs, kernel] and their biases."""
    channels, kernels, scale = config.enc_channels, config.enc_kernel_sizes, config.enc_res2net_scale
    convolutions: dict[str, tuple[int, int, int]] = {"blocks.0.conv": (channels[0], config.mel_dim, kernels[0])}
    for at in range(1, len(channels) - 1):
        block, own, squeezed = f"blocks.{at}", channels[at], config.enc_se_channels
        convolutions[f"{block}.tdnn1.conv"] = (own, channels[at - 1], 1)
        for part in range(scale - 1):
            convolutions[f"{block}.res2net_block.blocks.{part}.conv"] = (own // scale, own // scale, kernels[at])
        convolutions[f"{block}.tdnn2.conv"] = (own, own, 1)
        convolutions[f"{block}.se_block.conv1"] = (squeezed, own, 1)
        convolutions[f"{block}.se_block.conv2"] = (own, squeezed, 1)
    last, attention = channels[-1], config.enc_attention_channels
    convolutions["mfa.conv"] = (last, sum(channels[1:-1]), kernels[-1])
    convolutions["asp.tdnn.conv"] = (attention, 3 * last, 1)
    convolutions["asp.conv"] = (last, attention, 1)
    convolutions["fc"] = (config.enc_dim, 2 * last, 1)
    found: dict[str, tuple[int, ...]] = {f"{name}.weight": shape for name, shape in convolutions.items()}
    return found | {f"{name}.bias": shape[:1] for name, shape in convolutions.items()}


class SpeakerEncoder:
    def __init__(self, config: SpeakerConfig, weights: WeightsBelow, device: str) -> None:
        """Raises ConfigError naming what does not fit."""
        self.config = config
        self._weights = {
            name: _laid_out(each).to(device) for name, each in weights.tensors(tensor_shapes(config)).items()
        }
        self._filters = torch.from_numpy(mel_filters()).to(device)
        self._window = torch.hann_window(FFT).to(device)

    def encode(self, samples: Tensor) -> Tensor:
        """[T] at 24 kHz, on the device -> [enc_dim]. Does not wait for the device."""
        return self.embed(log_mel(samples, self._filters, self._window))

    def embed(self, mel: Tensor) -> Tensor:
        """[F, bands] -> [enc_dim]"""
        config = self.config
        x = self._tdnn(mel.T, "blocks.0", config.enc_dilations[0])
        outputs: list[Tensor] = []
        for at in range(1, len(config.enc_channels) - 1):
            x = self._block(x, f"blocks.{at}", config.enc_dilations[at])
            outputs.append(x)
        x = self._tdnn(torch.cat(outputs), "mfa", config.enc_dilations[-1])
        return self._convolution(self._pooled(x), "fc")[:, 0]

    def _block(self, x: Tensor, name: str, dilation: int) -> Tensor:
        """[C, F] -> the same: each part of the channels hears the one before it, then channels are weighed."""
        inner = self._tdnn(x, f"{name}.tdnn1")
        first, *parts = inner.chunk(self.config.enc_res2net_scale)
        outputs = [first]
        for at, part in enumerate(parts):
            entering = part if at == 0 else part + outputs[-1]
            outputs.append(self._tdnn(entering, f"{name}.res2net_block.blocks.{at}", dilation))
        inner = self._tdnn(torch.cat(outputs), f"{name}.tdnn2")
        squeezed = self._convolution(inner.mean(dim=1, keepdim=True), f"{name}.se_block.conv1").relu_()
        return x + inner * torch.sigmoid(self._convolution(squeezed, f"{name}.se_block.conv2"))

    def _pooled(self, x: Tensor) -> Tensor:
        """[C, F] -> [2 C, 1]"""
        mean, deviation = _statistics(x, 1.0 / x.shape[1])
        around = torch.cat([x, mean.expand_as(x), deviation.expand_as(x)])
        attention = self._convolution(torch.tanh(self._tdnn(around, "asp.tdnn")), "asp.conv")
        return torch.cat(_statistics(x, torch.softmax(attention, dim=1)))

    def _tdnn(self, x: Tensor, name: str, dilation: int = 1) -> Tensor:
        return self._convolution(x, f"{name}.conv", dilation).relu_()

    def _convolution(self, x: Tensor, name: str, dilation: int = 1) -> Tensor:
        """As long as its input, whose ends are mirrored."""
        weight = self._weights[f"{name}.weight"]
        channels, frames = x.shape
        kernel = weight.shape[1] // channels
        if kernel > 1:
            around = dilation * (kernel - 1)
            x = functional.pad(x, (around // 2, around - around // 2), mode="reflect")
            x = torch.cat([x[:, at * dilation : at * dilation + frames] for at in range(kernel)])
        return torch.addmm(self._weights[f"{name}.bias"], weight, x)


def _laid_out(tensor: Tensor) -> Tensor:
    """Weights [outputs, inputs, kernel] as [outputs, kernel * inputs], biases as columns."""
    return tensor[:, None] if tensor.dim() == 1 else tensor.transpose(1, 2).flatten(1).contiguous()


def _statistics(x: Tensor, weights: Tensor | float) -> tuple[Tensor, Tensor]:
    """Weighted mean and deviation of [C, F] over its frames, [C, 1] each."""
    mean = (weights * x).sum(dim=1, keepdim=True)
    variance = (weights * (x - mean).square()).sum(dim=1, keepdim=True)
    return mean, variance.clamp(min=VARIANCE_FLOOR).sqrt()
