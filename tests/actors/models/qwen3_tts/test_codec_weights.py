"""A checkpoint's decoder: names and shapes from its configuration, and words for what does not fit."""

import copy
import importlib.util
from pathlib import Path

import numpy as np
import pytest

from omnirt.actors.models.qwen3_tts.codec_weights import read_codec
from omnirt.errors import ConfigError
from omnirt.kernels.codec_layout import weight_sizes

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture(scope="module")
def reference():
    """Makes the tiny checkpoint that the published implementation was run on."""
    spec = importlib.util.spec_from_file_location("codec_reference", ROOT / "tests/parity/qwen_codec_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def written(reference, tmp_path):
    """(config changes, decoder changes, tensors) -> folder."""

    def write(config=None, decoder=None, tensors=None):
        raw = copy.deepcopy(reference.CONFIG) | (config or {})
        raw["decoder_config"] |= decoder or {}
        reference.write_checkpoint(tmp_path, reference.tensors() if tensors is None else tensors, raw)
        return tmp_path

    return write


def test_every_dimension_comes_from_the_configuration(written):
    codec = read_codec(written(config={"output_sample_rate": 16000}))
    s = codec.shape
    assert (s.books, s.codes, s.width, s.latent, s.hidden, s.feed) == (4, 24, 32, 64, 48, 80)
    assert (s.layers, s.heads, s.head, s.window, s.stretch, s.rates, s.channels) == (2, 4, 32, 7, (2, 2), (3, 2), 64)
    assert (s.samples, codec.sample_rate, codec.frame_s) == (24, 16000, 24 / 16000)


def test_weights_have_the_shapes_of_the_layout(written):
    codec = read_codec(written())
    assert {name: array.shape for name, array in codec.weights.items()} == weight_sizes(codec.shape)
    assert all(array.dtype == np.float32 for array in codec.weights.values())
    assert len(codec.weights) == len(weight_sizes(codec.shape))


def test_tables_are_codebooks_divided_by_their_use_and_projected(written, reference):
    stored, tables = reference.tensors(), read_codec(written()).weights["tables"]
    for book, name in ((0, "first.vq.layers.0"), (2, "rest.vq.layers.1")):
        codebook = f"decoder.quantizer.rvq_{name}._codebook"
        used = np.maximum(stored[f"{codebook}.cluster_usage"], 1e-5)
        group = f"decoder.quantizer.rvq_{name.split('.')[0]}"
        want = stored[f"{codebook}.embedding_sum"] / used[:, None] @ stored[f"{group}.output_proj.weight"][..., 0].T
        np.testing.assert_allclose(tables[book], want, rtol=1e-5, atol=1e-6)
        assert np.isfinite(tables[book]).all()


def test_grouped_keys_and_values_are_repeated(written, reference):
    codec = read_codec(written())
    q, k, _ = np.split(codec.weights["layer1.qkv"], 3)
    attention = "decoder.pre_transformer.layers.1.self_attn"
    np.testing.assert_array_equal(q, reference.tensors()[f"{attention}.q_proj.weight"])
    heads = k.reshape(4, 32, 48)
    np.testing.assert_array_equal(heads[0], heads[1])
    np.testing.assert_array_equal(heads[2], reference.tensors()[f"{attention}.k_proj.weight"][32:])


def test_tensors_of_the_encoder_are_not_looked_at(written, reference):
    more = {"encoder.anything": np.zeros(3, np.float32)}
    read_codec(written(tensors=reference.tensors() | more))


def test_missing_and_misshaped_tensors_are_named_at_once(written, reference):
    tensors = reference.tensors()
    del tensors["decoder.pre_conv.conv.bias"]
    tensors["decoder.decoder.2.block.1.conv.weight"] = np.zeros((3, 3), np.float32)
    said = r"missing: decoder.pre_conv.conv.bias; of another shape: decoder.decoder.2.block.1.conv.weight is \[3, 3\]"
    with pytest.raises(ConfigError, match=said):
        read_codec(written(tensors=tensors))


def test_a_long_list_of_names_is_cut(written):
    with pytest.raises(ConfigError, match=r"and [0-9]+ more"):
        read_codec(written(decoder={"num_hidden_layers": 3}))


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("hidden_act", "gelu", "decoder_config.hidden_act = 'gelu' is not supported, only 'silu' is"),
        ("attention_bias", True, "decoder_config.attention_bias = True"),
        ("rope_scaling", {"type": "yarn"}, "decoder_config.rope_scaling"),
        ("num_semantic_quantizers", 2, "decoder_config.num_semantic_quantizers = 2"),
        ("latent_dim", 0, "decoder_config.latent_dim is missing or no positive integer"),
        ("codebook_dim", None, "decoder_config.codebook_dim is missing"),
        ("upsample_rates", [3, "2"], "decoder_config.upsample_rates"),
        ("num_key_value_heads", 3, "4 num_attention_heads cannot share 3"),
        ("rms_norm_eps", "x", "decoder_config.rms_norm_eps = 'x' is no number above 0"),
        ("rope_theta", 0, "decoder_config.rope_theta = 0"),
        ("decoder_dim", 66, "decoder_dim = 66 cannot be halved 2 times"),
        ("upsample_rates", [3, 3], "decode_upsample_rate = 24, but"),
    ],
)
def test_what_is_not_implemented_or_wrong_is_named_by_its_key(written, key, value, said):
    with pytest.raises(ConfigError, match=said) as error:
        read_codec(written(decoder={key: value}))
    assert "config.json" in str(error.value)


def test_a_speech_tokenizer_of_another_rate_is_refused(written):
    with pytest.raises(ConfigError, match="model_type = 'qwen3_tts_tokenizer_25hz' is not supported"):
        read_codec(written(config={"model_type": "qwen3_tts_tokenizer_25hz"}))


def test_a_folder_without_the_files_is_named(tmp_path, written):
    with pytest.raises(ConfigError, match=r"config.json does not exist"):
        read_codec(tmp_path)
    folder = written()
    (folder / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"holds no .safetensors file"):
        read_codec(folder)
    (folder / "config.json").write_text("[]")
    with pytest.raises(ConfigError, match="holds no object"):
        read_codec(folder)
    (folder / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match="is this the folder of a 12 Hz speech tokenizer"):
        read_codec(folder)
