import json
import shutil

import pytest

from omnirt.actors.models.qwen3_tts import random_checkpoint
from omnirt.actors.models.qwen3_tts.config import Qwen3TtsConfig
from omnirt.actors.models.qwen3_tts.weights import build, load, shapes, weight_bytes
from omnirt.errors import ConfigError

torch = pytest.importorskip("torch")
files = pytest.importorskip("safetensors.torch")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return random_checkpoint.write(tmp_path_factory.mktemp("base"), "base", "tiny")


@pytest.fixture
def copy(checkpoint, tmp_path):
    return shutil.copytree(checkpoint, tmp_path / "copy")


def tensors_of(folder):
    return files.load_file(folder / "model.safetensors")


def loaded(folder, kind=torch.float32):
    return load(folder, Qwen3TtsConfig.read(folder), "cpu", kind)


def test_each_tensor_comes_to_its_place(checkpoint):
    stored = tensors_of(checkpoint)
    frame, text = loaded(checkpoint)
    layer = "talker.model.layers.1."
    parts = [stored[f"{layer}self_attn.{part}_proj.weight"] for part in "qkv"]
    assert torch.equal(frame.layers[1].qkv, torch.cat(parts))
    assert torch.equal(frame.layers[1].down, stored[f"{layer}mlp.down_proj.weight"])
    assert torch.equal(frame.layers[1].mlp_norm, stored[f"{layer}post_attention_layernorm.weight"])
    assert torch.equal(frame.head, stored["talker.codec_head.weight"])
    assert torch.equal(frame.embed, stored["talker.model.codec_embedding.weight"])
    inner = "talker.code_predictor."
    books = [stored[f"{inner}model.codec_embedding.{book}.weight"] for book in range(3)]
    assert torch.equal(frame.embeds, torch.stack(books))
    assert torch.equal(frame.predictor.heads[2], stored[f"{inner}lm_head.2.weight"])
    assert torch.equal(frame.predictor.projection, stored[f"{inner}small_to_mtp_projection.weight"])
    assert torch.equal(frame.predictor.layers[0].q_norm, stored[f"{inner}model.layers.0.self_attn.q_norm.weight"])
    first, bias, second, last = (
        stored[f"talker.text_projection.linear_{part}"] for part in ("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias")
    )
    hidden = torch.nn.functional.silu(stored["talker.model.text_embedding.weight"] @ first.T + bias)
    assert torch.allclose(text.rows(torch.arange(len(hidden))), hidden @ second.T + last, atol=1e-5)


def test_a_predictor_as_wide_as_the_backbone_has_no_projection(tmp_path):
    frame, _ = loaded(random_checkpoint.write(tmp_path, "custom_voice", "tiny_0b6"))
    assert frame.predictor.projection is None
    assert frame.predictor.bias is None


def test_shards_give_the_same_as_one_file(checkpoint, copy):
    stored = tensors_of(copy)
    (copy / "model.safetensors").unlink()
    names = sorted(stored)
    parts = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, inside in parts.items():
        files.save_file({name: stored[name] for name in inside}, copy / file)
    index = {"weight_map": {name: file for file, inside in parts.items() for name in inside}}
    (copy / "model.safetensors.index.json").write_text(json.dumps(index))
    whole, shards = loaded(checkpoint), loaded(copy)
    assert torch.equal(whole[0].embeds, shards[0].embeds)
    assert torch.equal(whole[1].embed, shards[1].embed)
    assert weight_bytes(copy) == weight_bytes(checkpoint)


def test_numbers_are_converted_to_the_kind_that_is_asked_for(checkpoint, copy):
    frame, text = loaded(checkpoint, torch.bfloat16)
    assert frame.layers[0].qkv.dtype == text.embed.dtype == torch.bfloat16
    stored = {name: tensor.bfloat16() for name, tensor in tensors_of(copy).items()}
    files.save_file(stored, copy / "model.safetensors")
    assert torch.equal(loaded(copy, torch.bfloat16)[0].head, frame.head)
    assert torch.equal(loaded(copy)[0].head, frame.head.float())


def test_a_tensor_is_read_in_pieces(checkpoint, monkeypatch):
    from omnirt.actors.models.qwen3_tts import tensors

    before = loaded(checkpoint)[1].embed
    monkeypatch.setattr(tensors, "PIECE_BYTES", 4096)
    assert torch.equal(loaded(checkpoint)[1].embed, before)


def test_the_bytes_are_known_before_anything_is_loaded(checkpoint):
    config = Qwen3TtsConfig.read(checkpoint)
    numbers = random_checkpoint.Numbers(0, "cpu", by_numpy=True)
    frame, text = build(config, numbers.fill, "cpu", torch.bfloat16)
    held = [text.embed, *text.projection, frame.norm, frame.head, frame.embed, frame.embeds, *frame.predictor.heads]
    held += [frame.predictor.norm, frame.predictor.projection, frame.predictor.bias]
    held += [tensor for layer in frame.layers + frame.predictor.layers for tensor in vars(layer).values()]
    assert weight_bytes(checkpoint, 2) == sum(tensor.nbytes for tensor in held)
    assert weight_bytes(checkpoint, 4) == 2 * weight_bytes(checkpoint)


def test_what_does_not_fit_is_named_all_at_once(copy):
    stored = tensors_of(copy)
    del stored["talker.codec_head.weight"]
    stored["talker.model.norm.weight"] = torch.zeros(63)
    stored["talker.model.layers.0.self_attn.q_proj.bias"] = torch.zeros(64)
    stored["talker.model.rotary_emb.inv_freq"] = torch.zeros(8)
    stored["something.else"] = torch.zeros(1)
    files.save_file(stored, copy / "model.safetensors")
    with pytest.raises(ConfigError) as caught:
        loaded(copy)
    message = caught.value.message
    assert "missing: talker.codec_head.weight;" in message
    assert "unexpected: talker.model.layers.0.self_attn.q_proj.bias;" in message
    assert message.endswith("of another shape: talker.model.norm.weight is [63], config.json says [64]")


def test_files_that_are_not_there_are_said_so(copy):
    (copy / "model.safetensors").rename(copy / "kept")
    with pytest.raises(ConfigError, match=r"holds neither model.safetensors nor model.safetensors.index.json"):
        loaded(copy)
    index = copy / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "x.safetensors"}}))
    with pytest.raises(ConfigError, match=r"lists files that are not there: x.safetensors"):
        loaded(copy)
    index.write_text("[]")
    with pytest.raises(ConfigError, match="is no index"):
        loaded(copy)
    index.unlink()
    (copy / "model.safetensors").write_bytes((copy / "kept").read_bytes()[:-100])
    with pytest.raises(ConfigError, match="is it cut off"):
        loaded(copy)


def test_random_weights_need_no_files(checkpoint):
    config = Qwen3TtsConfig.read(checkpoint)
    numbers = random_checkpoint.Numbers(0, "cpu", by_numpy=True)
    frame, _ = build(config, numbers.fill, "cpu", torch.float32)
    assert torch.equal(frame.layers[1].qkv, loaded(checkpoint)[0].layers[1].qkv)
    assert len(shapes(config)) == sum(name.startswith("talker.") for name in tensors_of(checkpoint))


def test_projecting_all_ids_at_once_changes_no_row(checkpoint):
    numbers = random_checkpoint.Numbers(0, "cpu", by_numpy=True)
    _, text = build(Qwen3TtsConfig.read(checkpoint), numbers.fill, "cpu", torch.float32)
    ids = torch.tensor([5, 600, 5, 0])
    assert text.projected().projection is None
    assert torch.allclose(text.projected().rows(ids), text.rows(ids), atol=1e-5)
    assert torch.equal(text.projected().rows(ids)[1:2], text.projected().rows(ids[1:2]))
