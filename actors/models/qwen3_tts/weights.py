"""The talker's weights, from a checkpoint to a device: what the frame step needs, and what makes rows of text.

Names and shapes are compared with config.json before anything is read; whatever does not fit is named at once. Parts
that the step multiplies as one matrix are read into one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from omnirt.actors.models.qwen3_tts.config import Decoder, Qwen3TtsConfig
from omnirt.actors.models.qwen3_tts.tensors import StoredTensors
from omnirt.errors import ConfigError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from omnirt.kernels.frame_layout import FrameWeights, LayerWeights

Shape = tuple[int, ...]
Fill = Callable[[str, "Tensor"], None]
"""Writes the tensor that checkpoints call so into a part of ours."""

TALKER = "talker."
PROJECTED_ROWS = 8192
"""At a time."""
PROJECTED_WORK = 1 << 34
"""Products that a processor may spend on projecting all ids at once: tiny models."""
NAMED_MAX = 5
"""How many names a complaint lists."""
_COMPUTED = (".rotary_emb.inv_freq",)
_BACKBONE, _PREDICTOR = "talker.model.", "talker.code_predictor.model."
_HEADS, _PROJECTION = "talker.code_predictor.lm_head.", "talker.code_predictor.small_to_mtp_projection."
_TEXT = "talker.text_projection.linear_"


@dataclass
class TextWeights:
    """`embed` [text ids, X] and the projection that leads from X over X (SiLU) to the backbone's width W; or without
    one `embed` [text ids, W], where every id is projected already."""

    embed: Tensor
    projection: tuple[Tensor, Tensor, Tensor, Tensor] | None
    """Weight and bias of the two layers."""

    def rows(self, ids: Tensor) -> Tensor:
        """[n] ids to [n, W]: what text adds to the backbone's inputs."""
        from torch.nn import functional

        rows = functional.embedding(ids, self.embed)
        return rows if self.projection is None else self._projected(rows)

    def projected(self) -> TextWeights:
        """The same rows by look-up alone: an id's row is the same bits whatever it is asked for with, and no launch
        but one is needed for text that comes while a row speaks."""
        import torch

        assert self.projection is not None
        width = self.projection[2].shape[0]
        table = torch.empty(len(self.embed), width, device=self.embed.device, dtype=self.embed.dtype)
        with torch.no_grad():
            for start in range(0, len(table), PROJECTED_ROWS):
                part = slice(start, start + PROJECTED_ROWS)
                table[part] = self._projected(self.embed[part])
        return TextWeights(table, None)

    def _projected(self, rows: Tensor) -> Tensor:
        from torch.nn import functional

        assert self.projection is not None
        first, first_bias, second, second_bias = self.projection
        return functional.linear(functional.silu(functional.linear(rows, first, first_bias)), second, second_bias)


def load(folder: Path, config: Qwen3TtsConfig, device: str, kind: torch.dtype) -> tuple[FrameWeights, TextWeights]:
    """Raises ConfigError naming what is missing, unexpected or of another shape."""
    stored = StoredTensors(folder)
    wanted = shapes(config)
    complaints = "; ".join(_complaints(wanted, stored))
    if complaints:
        raise ConfigError(f"{folder}: the weights do not fit config.json; {complaints}")
    small = config.text_vocab * config.text_width**2 <= PROJECTED_WORK
    return build(config, stored.copy, device, kind, project=small or device != "cpu")


def weight_bytes(folder: Path, number_bytes: int = 2) -> int:
    """What `load` takes on the device at most, from the headers of the files."""
    stored = StoredTensors(folder)
    return number_bytes * sum(stored.count(name) for name in stored if name.startswith(TALKER))


def shapes(config: Qwen3TtsConfig) -> dict[str, Shape]:
    """Every tensor of the talker, as checkpoints call it."""
    width, inner = config.backbone.width, config.predictor.width
    found: dict[str, Shape] = {
        "talker.codec_head.weight": (config.vocab, width),
        f"{_BACKBONE}codec_embedding.weight": (config.vocab, width),
        f"{_BACKBONE}text_embedding.weight": (config.text_vocab, config.text_width),
        f"{_TEXT}fc1.weight": (config.text_width, config.text_width),
        f"{_TEXT}fc1.bias": (config.text_width,),
        f"{_TEXT}fc2.weight": (width, config.text_width),
        f"{_TEXT}fc2.bias": (width,),
        **_decoder_shapes(_BACKBONE, config.backbone),
        **_decoder_shapes(_PREDICTOR, config.predictor),
    }
    for book in range(config.books - 1):
        found[f"{_PREDICTOR}codec_embedding.{book}.weight"] = (config.codes, width)
        found[f"{_HEADS}{book}.weight"] = (config.codes, inner)
    if inner != width:
        found |= {f"{_PROJECTION}weight": (inner, width), f"{_PROJECTION}bias": (inner,)}
    return found


def build(
    config: Qwen3TtsConfig, fill: Fill, device: str, kind: torch.dtype, *, project: bool = False
) -> tuple[FrameWeights, TextWeights]:
    """`fill` gives the numbers: those of a checkpoint, or others. `project`: all text ids at once."""
    import torch

    from omnirt.kernels.frame_layout import FrameWeights, PredictorWeights

    wanted = shapes(config)

    def one(name: str) -> Tensor:
        into = torch.empty(wanted[name], device=device, dtype=kind)
        fill(name, into)
        return into

    def joined(names: list[str], size: Shape) -> Tensor:
        """One after the other, along the first axis."""
        into = torch.empty(size, device=device, dtype=kind)
        start = 0
        rows = into.view(-1, size[-1])
        for name in names:
            end = start + wanted[name][0]
            fill(name, rows[start:end])
            start = end
        return into

    def layers(prefix: str, decoder: Decoder) -> list[LayerWeights]:
        return [_layer(f"{prefix}layers.{at}.", decoder, one, joined) for at in range(decoder.layers)]

    # First, so that what projecting gives back is used for the rest.
    text = TextWeights(
        one(f"{_BACKBONE}text_embedding.weight"),
        (one(f"{_TEXT}fc1.weight"), one(f"{_TEXT}fc1.bias"), one(f"{_TEXT}fc2.weight"), one(f"{_TEXT}fc2.bias")),
    )
    text = text.projected() if project else text
    projects = config.predictor.width != config.backbone.width
    others = range(config.books - 1)
    predictor = PredictorWeights(
        layers=layers(_PREDICTOR, config.predictor),
        norm=one(f"{_PREDICTOR}norm.weight"),
        projection=one(f"{_PROJECTION}weight") if projects else None,
        bias=one(f"{_PROJECTION}bias") if projects else None,
        heads=[one(f"{_HEADS}{book}.weight") for book in others],
    )
    embeds = [f"{_PREDICTOR}codec_embedding.{book}.weight" for book in others]
    frame = FrameWeights(
        layers=layers(_BACKBONE, config.backbone),
        norm=one(f"{_BACKBONE}norm.weight"),
        head=one("talker.codec_head.weight"),
        embed=one(f"{_BACKBONE}codec_embedding.weight"),
        embeds=joined(embeds, (len(others), config.codes, config.backbone.width)),
        predictor=predictor,
    )
    return frame, text


def _layer(
    prefix: str, decoder: Decoder, one: Callable[[str], Tensor], joined: Callable[[list[str], Shape], Tensor]
) -> LayerWeights:
    from omnirt.kernels.frame_layout import LayerWeights

    rows = (decoder.heads + 2 * decoder.kv_heads) * decoder.head
    return LayerWeights(
        attn_norm=one(f"{prefix}input_layernorm.weight"),
        qkv=joined([f"{prefix}self_attn.{part}_proj.weight" for part in "qkv"], (rows, decoder.width)),
        q_norm=one(f"{prefix}self_attn.q_norm.weight"),
        k_norm=one(f"{prefix}self_attn.k_norm.weight"),
        output=one(f"{prefix}self_attn.o_proj.weight"),
        mlp_norm=one(f"{prefix}post_attention_layernorm.weight"),
        gate=one(f"{prefix}mlp.gate_proj.weight"),
        up=one(f"{prefix}mlp.up_proj.weight"),
        down=one(f"{prefix}mlp.down_proj.weight"),
    )


def _decoder_shapes(prefix: str, decoder: Decoder) -> dict[str, Shape]:
    width, feed = decoder.width, decoder.feed
    q, kv = decoder.heads * decoder.head, decoder.kv_heads * decoder.head
    layer: dict[str, Shape] = {
        "input_layernorm.weight": (width,),
        "self_attn.q_proj.weight": (q, width),
        "self_attn.k_proj.weight": (kv, width),
        "self_attn.v_proj.weight": (kv, width),
        "self_attn.q_norm.weight": (decoder.head,),
        "self_attn.k_norm.weight": (decoder.head,),
        "self_attn.o_proj.weight": (width, q),
        "post_attention_layernorm.weight": (width,),
        "mlp.gate_proj.weight": (feed, width),
        "mlp.up_proj.weight": (feed, width),
        "mlp.down_proj.weight": (width, feed),
    }
    all_layers = range(decoder.layers)
    return {f"{prefix}layers.{at}.{name}": shape for at in all_layers for name, shape in layer.items()} | {
        f"{prefix}norm.weight": (width,)
    }


def _complaints(wanted: dict[str, Shape], stored: StoredTensors) -> Iterator[str]:
    spare = (name for name in stored if name.startswith(TALKER) and not name.endswith(_COMPUTED))
    found = {
        "missing": [name for name in wanted if name not in stored],
        "unexpected": [name for name in spare if name not in wanted],
        "of another shape": [
            f"{name} is {list(stored.shape(name))}, config.json says {list(shape)}"
            for name, shape in wanted.items()
            if name in stored and stored.shape(name) != shape
        ],
    }
    for what, names in found.items():
        if names:
            more = len(names) - NAMED_MAX
            yield f"{what}: {', '.join(names[:NAMED_MAX])}" + (f" and {more} more" if more > 0 else "")
