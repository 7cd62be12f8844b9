import hashlib
import json

import pytest

from omnirt.actors.models.decoder.safetensors import Tensors
from omnirt.actors.models.qwen3_tts import random_checkpoint, random_config, random_shapes, random_vocabulary

pytest.importorskip("torch")


def test_the_same_seed_gives_the_same_files(tmp_path):
    one, two = (random_checkpoint.write(tmp_path / name, "base") for name in "ab")
    other = random_checkpoint.write(tmp_path / "c", "base", seed=1)
    for name in ("model.safetensors", "speech_tokenizer/model.safetensors", "vocab.json", "merges.txt", "config.json"):
        assert (one / name).read_bytes() == (two / name).read_bytes()
    assert (one / "model.safetensors").read_bytes() != (other / "model.safetensors").read_bytes()
    assert (one / "vocab.json").read_bytes() == (other / "vocab.json").read_bytes()


def test_the_numbers_are_those_the_golden_files_were_made_of(tmp_path):
    """Whoever changes them makes the files of tests/parity anew."""
    folder = random_checkpoint.write(tmp_path, "base")
    found = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    assert found == "ef2ab46aae0f4c154289daf769b815d2c0e1bdb001db69eec50f76ce07dda857"


def test_it_says_that_it_is_random(tmp_path):
    assert "noise" in (random_checkpoint.write(tmp_path, "voice_design") / "README.md").read_text()


def test_only_base_checkpoints_have_a_speaker_encoder(tmp_path):
    names = {
        kind: set(Tensors(random_checkpoint.write(tmp_path / kind, kind) / "model.safetensors"))
        for kind in random_config.KINDS
    }
    assert {name.split(".")[0] for name in names["base"]} == {"talker", "speaker_encoder"}
    assert names["custom_voice"] == names["voice_design"] == {n for n in names["base"] if n.startswith("talker.")}


@pytest.mark.parametrize("size", ["0b6", "1b7"])
def test_the_full_sizes_are_as_large_as_the_published_ones(size):
    """Parameters as counted from the published dimensions."""
    form = random_config.SIZES[size]
    added = {name: 151_643 + at for at, name in enumerate(random_vocabulary.ADDED)} | {"assistant": 300}
    raw = random_config.root("base", form, added, 151_936)
    assert raw["tts_pad_token_id"] == 151_671
    assert raw["talker_config"]["codec_eos_token_id"] == 2150
    assert raw["talker_config"]["codec_language_id"]["beijing_dialect"] == 2074
    custom = random_config.root("custom_voice", form, added, 151_936)
    assert custom["talker_config"]["spk_id"]["vivian"] == 3065
    assert raw["talker_config"]["rope_scaling"]["mrope_section"] == [24, 20, 20]
    speech = random_shapes.speech_tokenizer(random_config.speech_tokenizer(form))
    decoder = sum(_count(shape) for name, shape in speech.items() if name.startswith("decoder."))
    assert round(decoder / 1e6) == 114


def _count(shape):
    total = 1
    for size in shape:
        total *= size
    return total


def test_the_command_writes_one(tmp_path, capsys):
    assert random_checkpoint.main(["custom_voice", "tiny_0b6", str(tmp_path)]) == 0
    assert "random weights (custom_voice, tiny_0b6)" in capsys.readouterr().out
    assert json.loads((tmp_path / "config.json").read_text())["tts_model_size"] == "0b6"
