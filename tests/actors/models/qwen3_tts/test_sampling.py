import json

import pytest

from omnirt.actors.models.qwen3_tts.sampling import Drawing, SamplingDefaults
from omnirt.errors import ConfigError, InvalidRequest


def test_a_checkpoint_without_the_file_draws_as_the_family_does(tmp_path):
    found = SamplingDefaults.read(tmp_path)
    assert found.first == found.inner == Drawing(0.9, 50, 1.0)
    assert (found.repetition_penalty, found.frames_min) == (1.05, 2)


def test_a_checkpoints_own_file_goes_before_that(tmp_path):
    raw = {"temperature": 0.7, "top_k": 20, "subtalker_top_p": 0.8, "max_new_tokens": 8192, "top_p": None}
    (tmp_path / "generation_config.json").write_text(json.dumps(raw))
    found = SamplingDefaults.read(tmp_path)
    assert found.first == Drawing(0.7, 20, 1.0)
    assert found.inner == Drawing(0.9, 50, 0.8)
    assert found.frames_max == 8192


def test_not_to_sample_is_greedy():
    found = SamplingDefaults().changed({"do_sample": False, "subtalker_dosample": False, "temperature": 0.5})
    assert found.first.temperature == found.inner.temperature == 0.0
    assert SamplingDefaults().changed({"do_sample": True}) == SamplingDefaults()


def test_a_request_changes_what_it_names():
    found = SamplingDefaults().changed({"temperature": 0, "subtalker_top_k": 1, "repetition_penalty": 2, "voice": "x"})
    assert found.first == Drawing(0.0, 50, 1.0)
    assert found.inner.top_k == 1
    assert found.repetition_penalty == 2.0


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("temperature", -0.1),
        ("temperature", "hot"),
        ("temperature", True),
        ("temperature", float("nan")),
        ("top_k", 1.5),
        ("top_k", -1),
        ("subtalker_top_p", 1.1),
        ("repetition_penalty", 0),
        ("max_new_tokens", 0),
    ],
)
def test_what_cannot_be_is_refused_by_its_name(tmp_path, key, value):
    with pytest.raises(InvalidRequest, match=key) as caught:
        SamplingDefaults().changed({key: value})
    assert caught.value.param == key
    (tmp_path / "generation_config.json").write_text(json.dumps({key: value}))
    with pytest.raises(ConfigError, match=r"generation_config\.json"):
        SamplingDefaults.read(tmp_path)
