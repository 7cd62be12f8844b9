import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from omnirt.actors.models.decoder.config import DecoderConfig, Rope
from omnirt.actors.models.decoder.weights import Weights, shapes, stored_name
from omnirt.errors import ConfigError


def config(**changes):
    plain = {
        "family": "llama",
        "vocab_size": 12,
        "hidden": 8,
        "ffn": 16,
        "layers": 2,
        "heads": 2,
        "kv_heads": 1,
        "head_dim": 4,
        "context": 32,
        "norm_eps": 1e-5,
        "rope": Rope(100.0),
        "tied": False,
        "qkv_bias": False,
        "head_norm": False,
        "eos_ids": (),
        "dtype": "float32",
    }
    return DecoderConfig(**{**plain, **changes})


def tensors(of):
    rng = np.random.default_rng(1)
    return {stored_name(name): rng.standard_normal(shape).astype(np.float32) for name, shape in shapes(of).items()}


def test_every_tensor_is_found_under_our_name(tmp_path):
    for of in (config(), config(qkv_bias=True), config(head_norm=True)):
        stored = tensors(of)
        save_file(stored, tmp_path / "model.safetensors")
        weights = Weights(tmp_path, of)
        assert sorted(weights) == sorted(shapes(of))
        assert len(weights) == len(stored)
        for name in weights:
            assert np.array_equal(weights[name], stored[stored_name(name)]), name
        with pytest.raises(KeyError):
            weights["0.nothing"]


def test_tied_weights_are_one_array(tmp_path):
    of = config(tied=True)
    save_file({**tensors(of), "lm_head.weight": np.zeros((12, 8), np.float32)}, tmp_path / "model.safetensors")
    weights = Weights(tmp_path, of)
    assert weights["lm_head"] is weights["embed"]
    assert "lm_head" in set(weights)
    assert weights["embed"].any()


def test_shards_are_found_through_their_index(tmp_path):
    of = config()
    stored = tensors(of)
    names = sorted(stored)
    parts = {"a.safetensors": names[:7], "b.safetensors": names[7:]}
    for file, part in parts.items():
        save_file({name: stored[name] for name in part}, tmp_path / file)
    index = {"weight_map": {name: file for file, part in parts.items() for name in part}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    weights = Weights(tmp_path, of)
    assert np.array_equal(weights["1.down"], stored["model.layers.1.mlp.down_proj.weight"])
    (tmp_path / "b.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"b\.safetensors"):
        Weights(tmp_path, of)


def test_missing_unexpected_and_misshapen_weights_are_all_named(tmp_path):
    of = config()
    stored = tensors(of)
    del stored["model.norm.weight"]
    stored["model.layers.0.self_attn.q_proj.bias"] = np.zeros(8, np.float32)
    stored["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.zeros(2, np.float32)  # old files have it
    stored["lm_head.weight"] = np.zeros((13, 8), np.float32)
    save_file(stored, tmp_path / "model.safetensors")
    with pytest.raises(ConfigError) as refused:
        Weights(tmp_path, of)
    said = refused.value.message
    assert "missing: model.norm.weight;" in said
    assert "unexpected: model.layers.0.self_attn.q_proj.bias;" in said
    assert "lm_head.weight is [13, 8], config.json says [12, 8]" in said


def test_a_long_list_of_names_is_cut(tmp_path):
    of = config()
    save_file({"model.norm.weight": np.zeros(8, np.float32)}, tmp_path / "model.safetensors")
    with pytest.raises(ConfigError, match="and 15 more"):
        Weights(tmp_path, of)


def test_a_folder_without_weights_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"holds neither model\.safetensors nor"):
        Weights(tmp_path, config())
