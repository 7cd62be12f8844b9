"""The parser of speech requests, as tables."""

import pytest

from omnirt.gateway.errors import ApiError
from omnirt.gateway.facts import PipelineFacts
from omnirt.gateway.speech_reference import Reference
from omnirt.gateway.speech_request import CHANGES_THE_VOICE, SpeechRequest, SpeechRules, parse_speech


def honouring(*names, **facts):
    return SpeechRules(facts=PipelineFacts(honoured=frozenset(names), **facts))


RULES = honouring("speed")
COPIES = honouring("ref_text", "x_vector_only_mode", cloning=True, task_types=("Base",))
SAMPLED = honouring(
    "temperature", "top_p", "top_k", "repetition_penalty", "ignore_eos", "non_streaming_mode", "subtalker_top_k"
)


def refusal(body, rules=RULES):
    with pytest.raises(ApiError) as caught:
        parse_speech(body, rules)
    return caught.value.refusal


def test_the_smallest_request_gets_the_defaults():
    assert parse_speech({"input": "hi"}, RULES) == SpeechRequest("hi")


def test_every_field_arrives():
    body = {
        "input": "hi",
        "model": "speech",
        "voice": {"id": "heart"},
        "response_format": "flac",
        "speed": 2,
        "stream_format": "sse",
        "sample_rate": 16000,
        "seed": 7,
        "instructions": "softly",
        "language": "English",
        "max_new_tokens": 10,
    }
    params = {"instructions": "softly", "language": "English", "max_new_tokens": 10}
    expected = SpeechRequest("hi", "heart", "flac", 2.0, "sse", 16000, 7, params)
    assert parse_speech(body, RULES) == expected


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("input", None, "missing_required_parameter"),
        ("input", "", "invalid_value"),
        ("input", " \n\t", "invalid_value"),
        ("input", 5, "invalid_value"),
        ("input", ["hi"], "invalid_value"),
        ("input", "x" * 4097, "invalid_value"),
        ("voice", "", "invalid_value"),
        ("voice", " ", "invalid_value"),
        ("voice", 3, "invalid_value"),
        ("voice", {}, "invalid_value"),
        ("voice", {"id": 3}, "invalid_value"),
        ("voice", ["heart"], "invalid_value"),
        ("response_format", "mp4", "invalid_value"),
        ("response_format", "", "invalid_value"),
        ("response_format", 1, "invalid_value"),
        ("speed", 0.24, "invalid_value"),
        ("speed", 10**400, "invalid_value"),
        ("speed", float("inf"), "invalid_value"),
        ("speed", float("nan"), "invalid_value"),
        ("seed", 10**400, "invalid_value"),
        ("sample_rate", 10**400, "invalid_value"),
        ("speed", 4.01, "invalid_value"),
        ("speed", 0, "invalid_value"),
        ("speed", -1, "invalid_value"),
        ("speed", "fast", "invalid_value"),
        ("speed", True, "invalid_value"),
        ("stream_format", "ws", "invalid_value"),
        ("stream", "yes", "invalid_value"),
        ("stream", 1, "invalid_value"),
        ("sample_rate", 0, "invalid_value"),
        ("sample_rate", 1_000_000, "invalid_value"),
        ("sample_rate", 24000.5, "invalid_value"),
        ("seed", "x", "invalid_value"),
        ("seed", 1 << 63, "invalid_value"),
        ("seed", True, "invalid_value"),
        ("instructions", "x" * 10_000, "invalid_value"),
        ("instructions", 3, "invalid_value"),
        ("max_new_tokens", 0, "invalid_value"),
        ("max_new_tokens", -1, "invalid_value"),
        ("max_new_tokens", 1_000_000_000, "invalid_value"),
        ("initial_codec_chunk_frames", -1, "invalid_value"),
        ("language", 1, "invalid_value"),
        ("task_type", "Sing", "invalid_value"),
        ("task_type", "Base", "unsupported_parameter"),
        ("extra_body", 3, "invalid_value"),
        ("ref_audio", "ftp://x/y.wav", "unsupported_parameter"),
        ("ref_audio", "javascript:x", "unsupported_parameter"),
        ("references", [{"audio_path": "x"}], "unsupported_parameter"),
        ("ref_text", "what is said", "unsupported_parameter"),
        ("ref_text", 3, "invalid_value"),
        ("x_vector_only_mode", True, "unsupported_parameter"),
        ("x_vector_only_mode", "yes", "invalid_value"),
        ("speaker_embedding", [0.1, 0.2], "unsupported_parameter"),
    ],
)
def test_a_wrong_field_is_refused_by_its_name(field, value, code):
    found = refusal({"input": "hi", field: value})
    assert (found.status, found.param, found.code) == (400, field, code)
    assert found.type == "invalid_request_error"


@pytest.mark.parametrize("body", [None, [], "hi", 3, True])
def test_a_body_that_is_no_object_is_refused(body):
    assert refusal(body).status == 400


def test_an_unknown_format_names_the_known_ones():
    assert "mp3, opus, aac, flac, wav, pcm" in refusal({"input": "hi", "response_format": "ogg"}).message


def test_null_means_absent_everywhere():
    names = [*CHANGES_THE_VOICE, "model", "voice", "speaker", "response_format", "speed", "stream", "stream_format"]
    names += [
        "ref_audio",
        "references",
        "ref_text",
        "x_vector_only_mode",
        "top_k",
        "sample_rate",
        "seed",
        "instructions",
        "language",
        "task_type",
        "max_new_tokens",
        "extra_body",
    ]
    assert parse_speech({"input": "hi"} | dict.fromkeys(names), RULES) == SpeechRequest("hi")


def test_unknown_fields_are_ignored():
    assert parse_speech({"input": "hi", "user": "u", "temperature": "hot"}, RULES) == SpeechRequest("hi")


def test_nested_extra_body_counts_and_the_top_level_wins():
    body = {"input": "hi", "seed": 1, "speed": None, "extra_body": {"seed": 2, "speed": 2.0, "input": "nested"}}
    assert parse_speech(body, RULES) == SpeechRequest("hi", speed=2.0, seed=1)


def test_speaker_is_another_name_for_voice():
    assert parse_speech({"input": "hi", "speaker": "deep"}, RULES).voice == "deep"
    assert parse_speech({"input": "hi", "speaker": "deep", "voice": "heart"}, RULES).voice == "heart"
    assert refusal({"input": "hi", "speaker": ""}).param == "speaker"


@pytest.mark.parametrize("name", CHANGES_THE_VOICE)
def test_what_changes_the_voice_passes_only_where_a_stage_honours_it(name):
    assert refusal({"input": "hi", name: "x"}).code == "unsupported_parameter"
    assert parse_speech({"input": "hi", name: False}, RULES) == SpeechRequest("hi")
    assert parse_speech({"input": "hi", name: "x"}, honouring(name)).params == {name: "x"}


def test_a_recording_to_copy_is_a_field_of_its_own():
    body = {"input": "hi", "ref_audio": "data:,x", "ref_text": " what is said ", "x_vector_only_mode": False}
    expected = SpeechRequest("hi", reference=Reference("data:,x"), ref_text="what is said", x_vector_only=False)
    assert parse_speech(body, COPIES) == expected
    assert parse_speech({"input": "hi", "x_vector_only_mode": True}, COPIES).x_vector_only


def test_sampling_is_checked_where_a_stage_acts_on_it_and_ignored_elsewhere():
    values = {"temperature": 0.7, "top_p": 1, "top_k": -1, "repetition_penalty": 1.05, "ignore_eos": True}
    values |= {"non_streaming_mode": False, "subtalker_top_k": 50}
    assert parse_speech({"input": "hi"} | values, SAMPLED).params == values | {"top_k": 0}
    assert parse_speech({"input": "hi"} | values, RULES).params == {}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", "hot"),
        ("temperature", float("nan")),
        ("top_p", 1.1),
        ("top_p", 0),
        ("top_k", 1.5),
        ("top_k", -2),
        ("top_k", True),
        ("subtalker_top_k", "x"),
        ("repetition_penalty", 0),
        ("ignore_eos", 1),
        ("non_streaming_mode", "no"),
    ],
)
def test_sampling_out_of_range_is_refused_by_its_name(field, value):
    found = refusal({"input": "hi", field: value}, SAMPLED)
    assert (found.status, found.param) == (400, field)


def test_a_task_that_the_model_cannot_do_is_refused_with_those_it_can():
    rules = honouring(task_types=("VoiceDesign", "Base"))
    assert parse_speech({"input": "hi", "task_type": "Base"}, rules).task_type == "Base"
    found = refusal({"input": "hi", "task_type": "CustomVoice"}, rules)
    assert (found.param, found.code) == ("task_type", "unsupported_parameter")
    assert "VoiceDesign, Base" in found.message


def test_another_speed_is_refused_where_no_stage_honours_it():
    assert parse_speech({"input": "hi", "speed": 1.0}, SpeechRules()).speed == 1.0
    found = refusal({"input": "hi", "speed": 1.5}, SpeechRules())
    assert (found.param, found.code) == ("speed", "unsupported_parameter")


def test_languages_are_checked_where_the_stages_name_them():
    rules = honouring(languages=("English", "en"))
    assert parse_speech({"input": "hi", "language": "english"}, rules).params == {"language": "english"}
    assert parse_speech({"input": "hi", "language": "en-GB"}, rules).params == {"language": "en-GB"}
    assert parse_speech({"input": "hi", "language": "Auto"}, rules).params == {}
    assert refusal({"input": "hi", "language": "Klingon"}, rules).param == "language"


@pytest.mark.parametrize(
    ("stream_format", "stream", "delivery"),
    [
        (None, None, "audio"),
        (None, True, "sse"),
        (None, False, "complete"),
        ("sse", None, "sse"),
        ("sse", True, "sse"),
        ("sse", False, "sse"),
        ("audio", None, "audio"),
        ("audio", True, "audio"),
        ("audio", False, "complete"),
    ],
)
def test_how_the_answer_is_delivered(stream_format, stream, delivery):
    body = {"input": "hi", "stream_format": stream_format, "stream": stream}
    assert parse_speech(body, RULES).delivery == delivery


def test_limits_come_from_the_rules():
    rules = SpeechRules(input_chars_max=3, default_format="wav")
    assert parse_speech({"input": "abc"}, rules).format == "wav"
    assert "limit is 3" in refusal({"input": "abcd"}, rules).message


@pytest.mark.parametrize("value", [{}, {"a": 1}, []])
def test_a_stages_own_parameter_is_a_plain_value_or_refused(value):
    rules = honouring("normalize")
    assert refusal({"input": "hi", "normalize": value}, rules).param == "normalize"
    assert parse_speech({"input": "hi", "normalize": False}, rules).params == {"normalize": False}
