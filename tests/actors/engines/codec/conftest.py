"""A tiny codec in the layout of real checkpoints, and random weights of any shape."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture(scope="session")
def reference() -> ModuleType:
    """The script that made the golden samples: it also makes the checkpoint they belong to."""
    spec = importlib.util.spec_from_file_location("codec_reference", ROOT / "tests/parity/qwen_codec_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def codec(reference, tmp_path_factory):
    pytest.importorskip("torch")
    from omnirt.actors.models.qwen3_tts.codec_weights import read_codec

    folder = tmp_path_factory.mktemp("speech_tokenizer")
    reference.write_checkpoint(folder, reference.tensors())
    return read_codec(folder)


@pytest.fixture(scope="session")
def interpreted() -> None:
    """Kernels run on the processor, where triton is there at all."""
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("bench/codec_decoder.py checks the kernels on a device")
    os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is defined
    pytest.importorskip("triton")


@pytest.fixture(scope="session")
def random_weights() -> Callable[..., dict[str, np.ndarray]]:
    """Scaled so that values keep their size from layer to layer."""

    def make(shape, seed: int = 0) -> dict[str, np.ndarray]:
        from omnirt.kernels.codec_layout import weight_sizes

        rng = np.random.default_rng(seed)
        return {name: _scaled(name, size, rng) for name, size in weight_sizes(shape).items()}

    return make


def _scaled(name: str, size: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    value, end = rng.standard_normal(size).astype(np.float32), name.split(".")[-1]
    if end.startswith("norm") or end == "ln":
        return 1 + 0.1 * value
    if end.startswith(("scale", "gamma")):
        return 0.4 + 0.1 * value
    if end in ("alpha", "beta", "bias", "tables"):
        return value * {"bias": 0.02, "tables": 0.5}.get(end, 0.3)
    if end == "stretch" or end in ("up0", "up1"):
        return value / (size[0] * (2 if end == "stretch" else 1)) ** 0.5
    return value * {"point": 0.3, "last": 0.1}.get(end, 0.7) / float(np.prod(size[1:])) ** 0.5
