"""Writes a Qwen3-TTS checkpoint with random weights, in the files and under the names of the published ones.

The tiny ones are for tests: their numbers come from numpy, so they are the same everywhere. The full-size ones are for
measuring speed and memory only; what they say is noise. Both say so in a README.

    python -m omnirt.actors.models.qwen3_tts.random_checkpoint custom_voice 1b7 FOLDER --device cuda
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from omnirt.actors.models.qwen3_tts import random_config, random_shapes, random_vocabulary
from omnirt.actors.models.qwen3_tts.config import Qwen3TtsConfig
from omnirt.actors.models.qwen3_tts.weights import shapes

if TYPE_CHECKING:
    from torch import Tensor

Shape = tuple[int, ...]
README = """Random weights, made by scripts/checkpoint: {kind}, {size}, seed {seed}.

What this checkpoint says is noise. It has the files, names and sizes of a published Qwen3-TTS checkpoint, for tests and
for measuring speed and memory; nothing can be learnt from it about how a model sounds.
"""
GAINS = {"codec_head": 4.0, "lm_head": 4.0, ".conv2.conv.": 0.3}
"""Logits are spread, so that the likeliest code is well apart from the next; what residual units add is damped."""
SOUND_GAIN = 0.05
"""Samples stay clear of their bounds, mostly."""
TEXT_ROUND = 64
"""Rows of the text embedding are a multiple of it."""
PUBLISHED_TEXT_ROWS = 151_936


def write(folder: Path, kind: str, size: str = "tiny", device: str = "cpu", seed: int = 0) -> Path:
    """`kind`: custom_voice, voice_design or base. `size`: tiny, tiny_0b6, 0b6 or 1b7. Gives the folder."""
    form = random_config.SIZES[size]
    assert kind in random_config.KINDS
    inner = folder / "speech_tokenizer"
    inner.mkdir(parents=True, exist_ok=True)
    added = random_vocabulary.write(folder, form.text_first)
    rows = -(-(max(added.values()) + 1) // TEXT_ROUND) * TEXT_ROUND if form.is_tiny else PUBLISHED_TEXT_ROWS
    raw = random_config.root(kind, form, added, rows)
    speech = random_config.speech_tokenizer(form)
    files = {
        folder / "config.json": raw,
        folder / "generation_config.json": random_config.GENERATION,
        folder / "preprocessor_config.json": {"padding_side": "left", "processor_class": "Qwen3TTSProcessor"},
        inner / "config.json": speech,
        inner / "preprocessor_config.json": random_config.EXTRACTOR,
    }
    for path, content in files.items():
        path.write_text(json.dumps(content, indent=2), encoding="utf-8")
    (folder / "README.md").write_text(README.format(kind=kind, size=size, seed=seed), encoding="utf-8")
    numbers = Numbers(seed, device, by_numpy=form.is_tiny)
    talker = shapes(Qwen3TtsConfig.read(folder))
    talker |= random_shapes.speaker_encoder(raw["speaker_encoder_config"]) if kind == "base" else {}
    _save(folder / "model.safetensors", talker, numbers, "F32" if form.is_tiny else "BF16")
    _save(inner / "model.safetensors", random_shapes.speech_tokenizer(speech), numbers, "F32")
    return folder


class Numbers:
    """A tensor's numbers depend on the seed and its name, not on what else there is."""

    def __init__(self, seed: int, device: str, *, by_numpy: bool) -> None:
        self._seed = seed
        self._device = device
        self._by_numpy = by_numpy

    def fill(self, name: str, into: Tensor) -> None:
        """As `weights.build` asks for them: a random checkpoint without its files."""
        import torch

        mean, spread = spread_of(name, tuple(into.shape))
        seed = (self._seed << 32) + zlib.crc32(name.encode())
        if self._by_numpy:
            drawn = np.random.default_rng(seed).standard_normal(tuple(into.shape), np.float32)
            into.copy_(torch.from_numpy(drawn * np.float32(spread) + np.float32(mean)))
            return
        into.normal_(mean, spread, generator=torch.Generator(into.device).manual_seed(seed))

    def made(self, name: str, shape: Shape, kind: str) -> np.ndarray:
        """As it is stored: bfloat16 as its 16 bits."""
        import torch

        into = torch.empty(shape, device=self._device, dtype=torch.bfloat16 if kind == "BF16" else torch.float32)
        self.fill(name, into)
        if name.endswith(("cluster_usage", "codebook.initialized")):
            into.abs_()
        host = into.cpu()
        return host.view(torch.int16).numpy() if kind == "BF16" else host.numpy()


def spread_of(name: str, shape: Shape) -> tuple[float, float]:
    """Mean and deviation that keep sums about as large as what they are made of."""
    if name.endswith(("norm.weight", "cluster_usage")):  # also of queries, keys and layers
        return 1.0, 0.1
    if name.endswith("initialized"):
        return 1.0, 0.0
    if name.endswith((".scale", ".gamma")):
        return 0.3, 0.1
    if name.endswith((".bias", ".alpha", ".beta")):
        return 0.0, 0.1
    if "embed" in name:
        return 0.0, 1.0
    gain = next((gain for part, gain in GAINS.items() if part in name), 1.0)
    if len(shape) == 3 and shape[0] == 1 and name.startswith("decoder."):
        gain = SOUND_GAIN
    return 0.0, gain / math.sqrt(_inputs(name, shape))


def _inputs(name: str, shape: Shape) -> int:
    """How many numbers an output is the sum of."""
    if name.startswith("decoder.upsample.") and name.endswith(".0.conv.weight"):
        return shape[0]  # a transposed convolution, a tap for each output
    if name.startswith("decoder.decoder.") and name.endswith(".block.1.conv.weight"):
        return 2 * shape[0]  # two taps
    return math.prod(shape[1:])


def _save(path: Path, wanted: dict[str, Shape], numbers: Numbers, kind: str) -> None:
    """Tensor by tensor, so that memory holds one of them."""
    size, start = (2 if kind == "BF16" else 4), 0
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    for name, shape in wanted.items():
        end = start + size * math.prod(shape)
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [start, end]}
        start = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, shape in wanted.items():
            file.write(memoryview(numbers.made(name, shape, kind)).cast("B"))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="scripts/checkpoint", description="A checkpoint with random weights.")
    parser.add_argument("kind", choices=random_config.KINDS)
    parser.add_argument("size", choices=list(random_config.SIZES))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cpu", help="where the numbers are drawn (cpu, cuda)")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args(arguments)
    write(chosen.folder, chosen.kind, chosen.size, chosen.device, chosen.seed)
    sys.stdout.write(f"{chosen.folder}: random weights ({chosen.kind}, {chosen.size})\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
