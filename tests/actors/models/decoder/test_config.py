import json

import pytest

from omnirt.actors.models.decoder.config import Rope, read_config
from omnirt.errors import ConfigError

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500.0,
    "hidden_act": "silu",
    "torch_dtype": "bfloat16",
    "eos_token_id": 2,
}


@pytest.fixture
def read(tmp_path):
    def written(generation=None, **changes):
        raw = {key: value for key, value in {**LLAMA, **changes}.items() if value != "absent"}
        (tmp_path / "config.json").write_text(json.dumps(raw))
        if generation is not None:
            (tmp_path / "generation_config.json").write_text(json.dumps(generation))
        return read_config(tmp_path)

    return written


def test_every_dimension_comes_from_the_file(read):
    config = read()
    assert (config.family, config.vocab_size, config.hidden, config.ffn, config.layers) == ("llama", 100, 64, 128, 2)
    assert (config.heads, config.kv_heads, config.head_dim, config.context, config.norm_eps) == (4, 2, 16, 256, 1e-5)
    assert (config.tied, config.qkv_bias, config.head_norm, config.dtype) == (False, False, False, "bfloat16")
    assert config.kv_bytes == 2 * 2 * 2 * 16 * 4
    assert config.parameters == 2 * (2 * 64 * 16 * 6 + 3 * 64 * 128) + 2 * 100 * 64


def test_families_differ_in_bias_and_head_norm(read):
    assert read(architectures=["Qwen2ForCausalLM"]).qkv_bias
    qwen3 = read(architectures=["Qwen3ForCausalLM"], head_dim=32, tie_word_embeddings=True, dtype="float16")
    assert (qwen3.head_norm, qwen3.head_dim, qwen3.tied, qwen3.dtype) == (True, 32, True, "float16")


def test_rotary_settings_are_read_as_old_and_new_versions_write_them(read):
    assert read().rope == Rope(500.0, original_context=256)
    new = {"rope_type": "default", "rope_theta": 7.0}
    assert read(rope_theta="absent", rope_parameters=new).rope.theta == 7.0
    assert read(rope_scaling={"type": "linear", "factor": 4}).rope == Rope(500.0, "linear", 4.0, original_context=256)
    llama3 = {
        "rope_type": "llama3",
        "factor": 8,
        "low_freq_factor": 1,
        "high_freq_factor": 4,
        "original_max_position_embeddings": 64,
    }
    assert read(rope_scaling=llama3).rope == Rope(500.0, "llama3", 8.0, 1.0, 4.0, 64)


def test_the_end_of_an_answer_is_the_generation_configs_before_the_models(read):
    assert read().eos_ids == (2,)
    assert read(eos_token_id=[2, 3]).eos_ids == (2, 3)
    assert read(eos_token_id=None).eos_ids == ()
    assert read(generation={"eos_token_id": [5, 6]}).eos_ids == (5, 6)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"architectures": ["MistralForCausalLM"]}, "architectures names MistralForCausalLM"),
        ({"architectures": None}, "architectures names nothing"),
        ({"hidden_size": "absent"}, "hidden_size is missing"),
        ({"max_position_embeddings": 0}, "max_position_embeddings"),
        ({"num_key_value_heads": 3}, "num_key_value_heads = 3"),
        ({"head_dim": 15}, "head_dim = 15"),
        ({"hidden_act": "gelu"}, "hidden_act = 'gelu'"),
        ({"attention_bias": True}, "attention_bias = True"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"use_sliding_window": True, "sliding_window": 128}, "sliding_window = 128"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types with sliding_attention"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, r"rope_scaling.rope_type = 'yarn'"),
        ({"rope_scaling": {"rope_type": "linear"}}, "rope_scaling.factor is missing"),
        ({"rope_parameters": {"rope_type": "dynamic"}}, "rope_parameters.rope_type = 'dynamic'"),
        ({"rope_parameters": {"rope_theta": 1.0, "partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
    ],
)
def test_what_would_change_the_numbers_is_refused_by_its_key(read, changes, said):
    with pytest.raises(ConfigError, match=said) as refused:
        read(**changes)
    assert "config.json" in refused.value.message


def test_a_window_that_cuts_nothing_is_fine(read):
    read(use_sliding_window=True, sliding_window=256, layer_types=["full_attention", "sliding_attention"])
    read(use_sliding_window=False, sliding_window=8)


def test_files_that_are_missing_or_no_json_are_named(tmp_path):
    with pytest.raises(ConfigError, match=r"config\.json does not exist"):
        read_config(tmp_path)
    for text in ("{", "[]"):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(ConfigError, match=r"config\.json (is no JSON|holds no object)"):
            read_config(tmp_path)
