"""A checkpoint's folder on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from omnirt.errors import ConfigError
from omnirt.pipeline.checkpoint import fits, is_checkpoint, pipeline_for
from omnirt.pipeline.deploy import load_plan, packaged_files


def checkpoint(folder: Path, **config: object) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_a_checkpoint_is_a_folder_with_a_config(tmp_path: Path):
    assert is_checkpoint(str(checkpoint(tmp_path / "model")))
    assert not is_checkpoint(str(tmp_path))
    assert not is_checkpoint("voice")


@pytest.mark.parametrize(
    ("kind", "stages"),
    [
        ("custom_voice", ["talker", "decoder"]),
        ("voice_design", ["talker", "decoder"]),
        ("base", ["reference", "talker", "decoder"]),
    ],
)
def test_its_config_says_which_pipeline_serves_it(tmp_path: Path, kind: str, stages: list[str]):
    folder = checkpoint(tmp_path / "my-speaker", model_type="qwen3_tts", tts_model_type=kind)
    plan = load_plan(str(folder), sets=["node.speech.device=cpu"], cores=2)
    assert [stage.name for stage in plan.stages] == stages
    assert plan.name == "my-speaker"
    assert {stage.options["weights"] for stage in plan.stages} == {str(folder)}


def test_values_given_on_the_command_line_win(tmp_path: Path):
    folder = checkpoint(tmp_path / "my-speaker", model_type="qwen3_tts", tts_model_type="base")
    assert load_plan(str(folder), sets=["name=other"], cores=2).name == "other"


def test_a_model_that_no_pipeline_serves_is_an_error_that_says_what_is_served(tmp_path: Path):
    folder = checkpoint(tmp_path / "model", model_type="mystery")
    with pytest.raises(ConfigError, match=r'model_type = "mystery".*"qwen3_tts"'):
        pipeline_for(str(folder), packaged_files())


def test_a_config_that_is_not_json_is_named(tmp_path: Path):
    folder = checkpoint(tmp_path / "model")
    (folder / "config.json").write_text("{")
    with pytest.raises(ConfigError, match=r"config\.json cannot be read"):
        pipeline_for(str(folder), packaged_files())


def test_every_key_of_the_table_must_fit():
    config = {"model_type": "a", "size": 1}
    assert fits({"model_type": "a"}, config)
    assert fits({"model_type": ["b", "a"], "size": 1}, config)
    assert not fits({"model_type": "a", "size": 2}, config)
    assert not fits({"kind": "x"}, config)
