"""What of a checkpoint is there, from the names of its files."""

import json

import pytest

from omnirt.cli.doctor_stages import missing_of, weights
from omnirt.pipeline.deploy import load_plan

INDEX = "model.safetensors.index.json"
WHOLE = (
    "vocab.json",
    "merges.txt",
    "model.safetensors",
    "speech_tokenizer/config.json",
    "speech_tokenizer/a.safetensors",
)


@pytest.fixture
def make(tmp_path):
    """make(file names..., config fields...) -> a folder with these files, and its config.json."""

    def folder(*names, **config):
        (tmp_path / "speech_tokenizer").mkdir()
        for name in names:
            (tmp_path / name).write_text("")
        fields = {"model_type": "qwen3_tts", "tts_model_type": "custom_voice"} | config
        (tmp_path / "config.json").write_text(json.dumps(fields))
        return tmp_path

    return folder


def test_a_whole_checkpoint_lacks_nothing(make):
    assert missing_of(make(*WHOLE)) == []


def test_a_tokenizer_may_be_one_file(make):
    assert missing_of(make("tokenizer.json", *WHOLE[2:])) == []


@pytest.mark.parametrize(
    ("left_out", "said"),
    [
        ("vocab.json", "vocab.json"),
        ("merges.txt", "merges.txt"),
        ("model.safetensors", "model.safetensors"),
        ("speech_tokenizer/config.json", "speech_tokenizer/config.json"),
        ("speech_tokenizer/a.safetensors", "speech_tokenizer/*.safetensors"),
    ],
)
def test_what_is_not_there_is_named(make, left_out, said):
    assert missing_of(make(*(name for name in WHOLE if name != left_out))) == [said]


def test_every_file_that_an_index_lists_is_looked_for(make):
    folder = make(*(name for name in WHOLE if name != "model.safetensors"), "one.safetensors")
    (folder / INDEX).write_text(json.dumps({"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}))
    assert missing_of(folder) == ["two.safetensors"]
    (folder / INDEX).write_text("{")
    assert missing_of(folder) == [f"{INDEX} with a weight_map"]


def test_other_models_have_no_codec(make):
    assert missing_of(make("model.safetensors", model_type="llama")) == []


def test_what_is_no_checkpoint_at_all(tmp_path):
    assert missing_of(tmp_path) == ["config.json"]


def test_only_local_weights_are_looked_at(make):
    assert weights(load_plan("qwen3_tts", cores=2)) is None
    assert weights(load_plan("echo")) is None
    folder = make(*WHOLE)
    found = weights(load_plan(str(folder), cores=2))
    assert (found.level, found.value) == ("ok", f"complete: {folder}")
    (folder / "vocab.json").unlink()
    found = weights(load_plan(str(folder), cores=2))
    assert (found.level, found.value) == ("fail", f"{folder} lacks vocab.json")
