import numpy as np
import pytest

from omnirt.actors.models.gguf.config import generation_config, model_config
from omnirt.errors import ConfigError


def factors(factor, theta=10000.0, dims=8):
    """As the format's converter computes them for Llama 3."""
    found = []
    for frequency in 1.0 / theta ** (np.arange(0, 2 * dims, 2) / (2 * dims)):
        wavelength = 2 * np.pi / frequency
        if wavelength < 8192 / 4:
            found.append(1.0)
        elif wavelength > 8192 / 1:
            found.append(factor)
        else:
            smooth = (8192 / wavelength - 1) / (4 - 1)
            found.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(found, np.float32)


def test_sizes_and_ids_are_those_of_the_file(metadata_of):
    config = model_config(metadata_of())
    expected = {
        "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 128,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "rope_scaling": None, "attention_bias": False,
        "tie_word_embeddings": True, "eos_token_id": 2, "bos_token_id": 1, "pad_token_id": None,
    }  # fmt: skip
    assert {name: config[name] for name in expected} == expected


def test_answers_end_at_every_token_that_ends_one(metadata_of):
    assert generation_config(metadata_of())["eos_token_id"] == [2, 0]
    assert generation_config(metadata_of(lambda file: file.ids.update(eos=0, eot=2)))["eos_token_id"] == [0, 2]


def test_what_the_engine_does_not_run_is_refused_by_name(metadata_of):
    with pytest.raises(ConfigError, match="of architecture 'gemma3'; read are llama, qwen2, qwen3"):
        model_config(metadata_of(architecture="gemma3"))
    with pytest.raises(ConfigError, match="mixture of experts"):
        model_config(metadata_of(lambda file: file.keys.update(expert_count=8)))
    with pytest.raises(ConfigError, match="only a part of each head"):
        model_config(metadata_of(lambda file: file.keys.update({"rope.dimension_count": 8})))
    with pytest.raises(ConfigError, match=r"lacks the tensor token_embd.weight"):
        model_config(metadata_of(lambda file: file.tensors.pop("token_embd.weight")))


def test_stretched_positions_are_said_in_the_config(metadata_of):
    def linear(file):
        file.texts["rope.scaling.type"] = "linear"
        file.floats["rope.scaling.factor"] = 4.0

    def yarn(file):
        linear(file)
        file.texts["rope.scaling.type"] = "yarn"
        file.keys["rope.scaling.original_context_length"] = 32

    assert model_config(metadata_of(linear))["rope_scaling"] == {"rope_type": "linear", "factor": 4.0}
    expected = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
    assert model_config(metadata_of(yarn))["rope_scaling"] == expected


def test_the_factors_of_llama_3_become_its_parameters(metadata_of):
    def stretch(file):
        file.floats["rope.freq_base"] = 500000.0
        file.tensors["rope_freqs.weight"] = factors(32.0, theta=500000.0)

    scaling = model_config(metadata_of(stretch))["rope_scaling"]
    assert scaling == {
        "rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }  # fmt: skip

    def otherwise(file):
        file.tensors["rope_freqs.weight"] = np.linspace(1, 32, 8, dtype=np.float32)

    with pytest.raises(ConfigError, match="in a way that is not known"):
        model_config(metadata_of(otherwise))
