"""A tiny Llama of random numbers in the real layout, and engines on it."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from omnirt.actors.engines.language import LanguageEngine
from omnirt.actors.models.decoder import native
from omnirt.actors.models.decoder.config import read_config
from omnirt.actors.models.decoder.weights import shapes, stored_name

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 200,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 400,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    "tie_word_embeddings": True,
    "eos_token_id": 7,
    "dtype": "float32",
}


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    rng = np.random.default_rng(11)
    tensors = {}
    for name, shape in shapes(read_config(folder)).items():
        spread = 0.1 if len(shape) == 1 else 1.5 / shape[-1] ** 0.5
        values = rng.standard_normal(shape) * spread + (1.0 if len(shape) == 1 else 0.0)
        tensors[stored_name(name)] = values.astype(np.float32)
    save_file(tensors, folder / "model.safetensors")
    return folder


@pytest.fixture(params=["native", "torch"])
def load(request, checkpoint, monkeypatch):
    """load(**options) -> engine, by the kernel and in plain torch."""
    if request.param == "torch":
        monkeypatch.setattr(native, "shape_of", lambda config: None)

    def loaded(**options):
        return LanguageEngine.load(checkpoint, **{"rows_max": 4, "prefill_tokens": 48, "cache_blocks": 64, **options})

    return loaded
