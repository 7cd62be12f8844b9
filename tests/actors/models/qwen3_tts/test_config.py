import json

import pytest

from omnirt.actors.models.qwen3_tts import random_checkpoint
from omnirt.actors.models.qwen3_tts.config import Qwen3TtsConfig
from omnirt.errors import ConfigError


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    folder = random_checkpoint.write(tmp_path_factory.mktemp("custom"), "custom_voice", "tiny")
    return json.loads((folder / "config.json").read_text())


def read(folder, raw, **changes):
    """With keys replaced, `a.b` inside `a`; None takes one out."""
    raw = json.loads(json.dumps(raw))
    for path, value in changes.items():
        *parents, key = path.split("/")
        place = raw
        for parent in parents:
            place = place[parent]
        place[key] = value
        if value is None:
            del place[key]
    (folder / "config.json").write_text(json.dumps(raw))
    return Qwen3TtsConfig.read(folder)


def test_every_dimension_and_id_is_that_of_the_file(tmp_path, raw):
    config = read(tmp_path, raw)
    talker, inner = raw["talker_config"], raw["talker_config"]["code_predictor_config"]
    for decoder, said in ((config.backbone, talker), (config.predictor, inner)):
        assert (decoder.width, decoder.feed, decoder.layers) == tuple(
            said[key] for key in ("hidden_size", "intermediate_size", "num_hidden_layers")
        )
        assert (decoder.heads, decoder.kv_heads, decoder.head) == (4, 2, 16)
        assert (decoder.eps, decoder.theta) == (1e-6, 1e6)
    assert (config.vocab, config.codes, config.books) == (1088, 64, 4)
    assert config.languages["english"] == 66
    assert config.speakers["vivian"] == 1081
    assert config.dialects == {"eric": "sichuan_dialect", "dylan": "beijing_dialect"}
    assert config.codec.eos == talker["codec_eos_token_id"]
    assert config.text.bos == raw["tts_bos_token_id"]


def test_the_shape_for_the_frame_step_is_made_of_the_same_numbers(tmp_path, raw):
    pytest.importorskip("torch")
    shape = read(tmp_path, raw).shape
    assert (shape.backbone.width, shape.predictor.width, shape.predictor.layers) == (64, 32, 2)
    assert (shape.vocab, shape.codes, shape.books, shape.stop_code) == (1088, 64, 4, 166)


def test_control_codes_are_never_drawn_but_the_one_that_stops(tmp_path, raw):
    config = read(tmp_path, raw)
    assert set(config.suppressed) == set(range(64, 1088)) - {166}


def test_an_id_may_be_a_list_of_one(tmp_path, raw):
    changes = {"talker_config/spk_id": {"Anna": [900]}, "talker_config/spk_is_dialect": {"Anna": False}}
    config = read(tmp_path, raw, **changes, **{"talker_config/codec_language_id": {"English": [70]}})
    assert (config.speakers, config.languages) == ({"anna": 900}, {"english": 70})


def test_only_checkpoints_that_were_trained_for_instructions_follow_them(tmp_path, raw):
    assert read(tmp_path, raw).follows_instructions
    assert not read(tmp_path, raw, tts_model_size="0b6").follows_instructions
    assert read(tmp_path, raw, tts_model_size="0b6", tts_model_type="voice_design").follows_instructions


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("model_type", "qwen3_omni", "model_type = 'qwen3_omni' is not supported; supported: qwen3_tts"),
        ("tokenizer_type", "qwen3_tts_tokenizer_25hz", "tokenizer_type"),
        ("tts_model_type", "singer", "tts_model_type = 'singer' is not supported; supported: custom_voice, voice"),
        ("talker_config", None, "talker_config is missing"),
        ("talker_config/code_predictor_config", [], "talker_config.code_predictor_config is missing or no object"),
        ("talker_config/hidden_size", 0, "talker_config.hidden_size is missing or no positive integer"),
        ("talker_config/text_vocab_size", None, "text_vocab_size"),
        ("talker_config/use_sliding_window", True, "talker_config.use_sliding_window = True is not supported"),
        ("talker_config/tie_word_embeddings", True, "tie_word_embeddings"),
        ("talker_config/attention_bias", True, "attention_bias"),
        ("talker_config/hidden_act", "gelu", "hidden_act = 'gelu' is not supported, only 'silu' is"),
        ("talker_config/rope_scaling", {"rope_type": "yarn"}, "talker_config.rope_scaling.rope_type = 'yarn'"),
        ("talker_config/code_predictor_config/layer_types", ["sliding_attention"], "code_predictor_config.layer_types"),
        ("talker_config/code_predictor_config/num_code_groups", 3, "must be the same number"),
        ("talker_config/num_key_value_heads", 3, "num_attention_heads = 4 is no multiple"),
        ("talker_config/head_dim", 15, "head_dim = 15 is odd"),
        ("talker_config/vocab_size", 1087, "vocab_size = 1087 must hold the 64 codes"),
        ("talker_config/codec_bos_id", 2000, "ids beyond vocab_size = 1088: bos"),
        ("talker_config/codec_pad_id", None, "talker_config.codec_pad_id is missing"),
        ("talker_config/spk_id/vivian", "x", "talker_config.spk_id.vivian = 'x' is no id"),
        ("talker_config/spk_id", {}, "spk_is_dialect.eric"),
        ("talker_config/spk_is_dialect/eric", "welsh", "spk_is_dialect.eric = 'welsh'"),
        ("tts_pad_token_id", 10**6, "text_vocab_size = .*: pad"),
        ("quantization_config", {"bits": 4}, "quantization_config"),
        ("talker_config/rms_norm_eps", "small", "talker_config.rms_norm_eps = 'small' is no number above 0"),
        ("talker_config/rms_norm_eps", float("nan"), "rms_norm_eps = nan"),
        ("talker_config/rope_theta", [], "rope_theta = "),
        ("talker_config/rope_theta", 0, "rope_theta = 0"),
        ("talker_config/rope_scaling", "x", "rope_scaling is missing or no object"),
        ("talker_config/layer_types", 5, "layer_types = 5"),
        ("talker_config/head_dim", "16", "head_dim"),
        ("talker_config/num_hidden_layers", True, "num_hidden_layers"),
        ("talker_config/spk_id", [1], "talker_config.spk_id"),
        ("talker_config/codec_language_id", [1], "codec_language_id"),
        ("talker_config/spk_is_dialect", [1], "spk_is_dialect"),
        ("speaker_encoder_config", [1], "speaker_encoder_config"),
    ],
)
def test_what_is_not_supported_is_refused_by_its_key(tmp_path, raw, path, value, said):
    with pytest.raises(ConfigError, match=said) as caught:
        read(tmp_path, raw, **{path: value})
    assert str(tmp_path / "config.json") in caught.value.message


def test_a_base_checkpoint_has_embeddings_as_wide_as_the_talker(tmp_path, raw):
    changes = {"tts_model_type": "base", "speaker_encoder_config": {"enc_dim": 64}}
    assert read(tmp_path, raw, **changes).speaker_encoder == {"enc_dim": 64}
    with pytest.raises(ConfigError, match="enc_dim = 1024 must be"):
        read(tmp_path, raw, tts_model_type="base")


def test_a_file_that_is_none_is_said_so(tmp_path):
    with pytest.raises(ConfigError, match="does not exist"):
        Qwen3TtsConfig.read(tmp_path)
    (tmp_path / "config.json").write_text("[")
    with pytest.raises(ConfigError, match="is no JSON"):
        Qwen3TtsConfig.read(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(ConfigError, match="holds no object"):
        Qwen3TtsConfig.read(tmp_path)
