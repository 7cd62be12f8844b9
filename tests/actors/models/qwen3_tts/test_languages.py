import msgspec
import pytest

from omnirt.actors.models.qwen3_tts import random_checkpoint
from omnirt.actors.models.qwen3_tts.config import Qwen3TtsConfig
from omnirt.actors.models.qwen3_tts.languages import facts, language_id, language_name, speaker_of
from omnirt.errors import InvalidRequest


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return Qwen3TtsConfig.read(random_checkpoint.write(tmp_path_factory.mktemp("custom"), "custom_voice", "tiny"))


@pytest.mark.parametrize(
    ("said", "name"),
    [
        (None, "auto"),
        ("", "auto"),
        ("Auto", "auto"),
        ("English", "english"),
        (" GERMAN ", "german"),
        ("en", "english"),
        ("en-GB", "english"),
        ("zh_CN", "chinese"),
        ("ZH", "chinese"),
        ("pt-br", "portuguese"),
        ("ja", "japanese"),
    ],
)
def test_a_language_has_a_name_and_a_code(config, said, name):
    assert language_name(config, said) == name


@pytest.mark.parametrize("said", ["klingon", "sv", "beijing_dialect", "english please"])
def test_another_language_is_refused_with_the_valid_ones(config, said):
    with pytest.raises(InvalidRequest, match="valid: Auto, Chinese, English") as caught:
        language_id(config, said)
    assert caught.value.param == "language"


def test_a_speakers_dialect_takes_the_place_of_chinese_and_of_no_choice(config):
    sichuan, chinese = config.languages["sichuan_dialect"], config.languages["chinese"]
    assert language_id(config, "Chinese", "eric") == language_id(config, None, "eric") == sichuan
    assert language_id(config, "English", "eric") == config.languages["english"]
    assert language_id(config, "zh", "vivian") == chinese
    assert language_id(config, "auto", "vivian") is None
    assert language_id(config, "auto") is None


def test_a_speaker_is_found_whatever_the_case(config):
    assert speaker_of(config, "Vivian") == "vivian"
    assert speaker_of(config, "Uncle Fu") == "uncle_fu"
    assert speaker_of(config, None) == speaker_of(config, "default") == "serena"
    with pytest.raises(InvalidRequest, match="valid: serena, vivian") as caught:
        speaker_of(config, "alloy")
    assert caught.value.param == "voice"


def test_a_checkpoint_says_its_voices_and_languages(config):
    said = facts(config)
    assert said["voices"][0] == {"id": "serena", "name": "Serena"}
    assert {"id": "eric", "name": "Eric", "dialect": "sichuan_dialect"} in said["voices"]
    assert said["default_voice"] == "serena"
    assert said["languages"][:3] == ["Auto", "Chinese", "English"]
    assert not any("dialect" in name for name in said["languages"])
    assert said["task_types"] == ["custom_voice"]
    base = facts(msgspec.structs.replace(config, task="base", speakers={}))
    assert base["cloning"]
    assert "voices" not in base
