import numpy as np
import pytest

from omnirt.actors.models.gguf import weights
from omnirt.actors.models.gguf.config import model_config
from omnirt.actors.models.gguf.weights import bfloat16, parameter, rotary_rows, write_weights
from omnirt.errors import ConfigError

torch = pytest.importorskip("torch")


def written(metadata, path):
    from safetensors.torch import load_file

    write_weights(metadata, model_config(metadata), path, lambda text: None)
    return load_file(path)


def as_the_format_orders(rows, heads):
    """What the format's converter does to Llama's query and key rows."""
    return rows.reshape(heads, 2, len(rows) // heads // 2, -1).swapaxes(1, 2).reshape(rows.shape)


def test_names_are_those_of_the_checkpoint_layout():
    assert parameter("token_embd.weight") == "model.embed_tokens.weight"
    assert parameter("blk.12.attn_q.bias") == "model.layers.12.self_attn.q_proj.bias"
    assert parameter("blk.0.ffn_norm.weight") == "model.layers.0.post_attention_layernorm.weight"
    for name in ("blk.0.ffn_gate_exps.weight", "output.scale", "attn_q.weight", "blk.0.token_embd.weight"):
        with pytest.raises(ConfigError, match=name):
            parameter(name)


def test_numbers_round_to_bfloat16_as_torch_rounds_them():
    rng = np.random.default_rng(0)
    scales = np.float32(10.0) ** rng.integers(-38, 38, 4096).astype(np.float32)
    values = np.concatenate([
        rng.standard_normal(4096).astype(np.float32) * scales,
        rng.integers(0, 2**32, 4096, dtype=np.uint32).view(np.float32),
        np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.00390625, 1.01171875, 3.4e38], np.float32),
    ])  # fmt: skip
    expected = torch.from_numpy(values).to(torch.bfloat16)
    found = torch.from_numpy(bfloat16(values).view(np.int16)).view(torch.bfloat16)
    assert torch.equal(torch.isnan(found), torch.isnan(expected))
    assert torch.equal(found.nan_to_num(0.0), expected.nan_to_num(0.0))


def test_rows_of_heads_are_put_back():
    rows = np.arange(24.0).reshape(24, 1)
    assert np.array_equal(as_the_format_orders(rows, 3)[rotary_rows(24, 3)], rows)


def test_the_file_holds_every_tensor_in_the_models_own_order(metadata_of, tmp_path, monkeypatch):
    monkeypatch.setattr(weights, "SLICE_VALUES", 64 * 5)  # so that tensors come in several slices
    originals = {}

    def reorder(file):
        originals.update(file.tensors)
        for name, heads in (("attn_q", 4), ("attn_k", 2)):
            for layer in range(2):
                key = f"blk.{layer}.{name}.weight"
                file.tensors[key] = as_the_format_orders(file.tensors[key], heads)

    found = written(metadata_of(reorder), tmp_path / "model.safetensors")
    assert len(found) == len(originals)
    for name, values in originals.items():
        assert torch.equal(found[parameter(name)], torch.from_numpy(values).to(torch.bfloat16)), name


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "F16", "BF16"])
def test_quantised_tensors_are_close_to_what_they_were(metadata_of, tmp_path, kind):
    originals = {}

    def quantised(file):
        originals.update(file.tensors)
        file.types = {name: kind for name in file.tensors if "ffn_up" in name or "token_embd" in name}

    found = written(metadata_of(quantised), tmp_path / "model.safetensors")
    for name in ("token_embd.weight", "blk.1.ffn_up.weight"):
        error = (found[parameter(name)].float() - torch.from_numpy(originals[name])).abs().mean()
        assert error < {"4": 0.15, "5": 0.08}.get(kind[1], 0.01), (name, error)


@pytest.mark.parametrize("kind", ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"])
def test_blocks_of_256_are_read_slice_by_slice_as_at_once(kind):
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
    from gguf.quants import dequantize

    number = GGMLQuantizationType[kind]
    data = np.random.default_rng(1).integers(0, 60, (7, 2 * GGML_QUANT_SIZES[number][1]), dtype=np.uint8)

    class Tensor:
        name, tensor_type, shape = "x.weight", number, (512, 7)

    Tensor.data = data
    order = np.array([3, 1, 2, 0, 6, 5, 4])
    slices = list(weights._slices(Tensor, order))
    assert np.array_equal(np.concatenate(slices), dequantize(data, number)[order], equal_nan=True)


def test_a_quantisation_that_cannot_be_read_is_named(metadata_of, tmp_path):
    from gguf import GGMLQuantizationType

    metadata = metadata_of()
    tensor = metadata.tensors["blk.0.ffn_up.weight"]
    metadata.tensors["blk.0.ffn_up.weight"] = tensor._replace(tensor_type=GGMLQuantizationType.Q8_K)
    with pytest.raises(ConfigError, match=r"blk.0.ffn_up.weight is quantised as Q8_K"):
        written(metadata, tmp_path / "model.safetensors")
    assert not (tmp_path / "model.safetensors").exists()
