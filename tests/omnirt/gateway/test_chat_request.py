"""The parser of chat requests, as tables."""

import pytest

from omnirt.gateway.chat_messages import Conversation, MessageRules
from omnirt.gateway.chat_request import ChatRequest, ChatRules, Spoken, parse_chat
from omnirt.gateway.errors import ApiError
from omnirt.testing.scripted_chat import HONOURED
from omnirt.wire.payload import Message, Part

RULES = ChatRules(honoured=frozenset({*HONOURED, "speed", "language", "prompt", "timestamps"}))
SILENT = ChatRules(MessageRules(hears=False), frozenset(HONOURED), speaks=False)
BARE = ChatRules()
SMALLEST = {"messages": [{"role": "user", "content": "hi"}]}
CONVERSATION = Conversation((Message("user", (Part("hi"),)),))


def parse(rules=RULES, **fields):
    return parse_chat(SMALLEST | fields, rules)


def refusal(rules=RULES, **fields):
    with pytest.raises(ApiError) as caught:
        parse(rules, **fields)
    assert caught.value.refusal.status == 400
    return caught.value.refusal


def test_the_smallest_request_gets_the_defaults():
    assert parse() == ChatRequest(CONVERSATION)


def test_every_field_arrives():
    asked = parse(
        model="voice",
        stream=True,
        stream_options={"include_usage": True},
        seed=7,
        n=2,
        temperature=0.5,
        logprobs=True,
        top_logprobs=3,
        max_completion_tokens=9,
        language="en",
        user="me",
        store=True,
        metadata={"a": "b"},
        parallel_tool_calls=True,
        reasoning_effort="low",
    )
    params = {"temperature": 0.5, "max_tokens": 9, "logprobs": True, "top_logprobs": 3, "language": "en"}
    expected = ChatRequest(CONVERSATION, None, True, True, True, 2, 7, True, params)
    assert asked == expected


@pytest.mark.parametrize(
    ("modalities", "spoken", "shows_text"),
    [
        (None, False, True),
        (["text"], False, True),
        (["audio"], True, False),
        (["text", "audio"], True, True),
        (["audio", "text"], True, True),
    ],
)
def test_what_is_asked_for(modalities, spoken, shows_text):
    asked = parse(modalities=modalities)
    assert (asked.spoken is not None, asked.shows_text) == (spoken, shows_text)


@pytest.mark.parametrize("modalities", ["audio", [], [1], {}, ["text", None]])
def test_modalities_are_a_list_of_strings(modalities):
    assert refusal(modalities=modalities).param == "modalities"


def test_a_modality_that_the_pipeline_does_not_give_is_refused():
    for rules, modalities in ((RULES, ["text", "image"]), (SILENT, ["text", "audio"]), (SILENT, ["audio"])):
        error = refusal(rules, modalities=modalities)
        assert (error.param, error.code) == ("modalities", "unsupported_parameter")


@pytest.mark.parametrize(
    ("audio", "stream", "expected"),
    [
        (None, False, Spoken("wav")),
        (None, True, Spoken("pcm16")),
        ({"voice": "heart"}, False, Spoken("wav", "heart")),
        ({"voice": {"id": "heart"}, "format": "mp3"}, False, Spoken("mp3", "heart")),
        ({"format": "flac"}, False, Spoken("flac")),
        ({"format": "aac"}, False, Spoken("aac")),
        ({"format": "pcm16"}, False, Spoken("pcm16")),
        ({"format": "pcm"}, True, Spoken("pcm16")),
        ({"format": "wav"}, True, Spoken("wav")),
        ({"format": "mp3"}, True, Spoken("mp3")),
        ({"format": "opus"}, True, Spoken("opus")),
        ({"format": None, "voice": None}, True, Spoken("pcm16")),
    ],
)
def test_how_it_is_spoken(audio, stream, expected):
    assert parse(modalities=["text", "audio"], audio=audio, stream=stream).spoken == expected


@pytest.mark.parametrize(
    ("audio", "stream", "param", "code"),
    [
        ("heart", False, "audio", "invalid_value"),
        ({"format": "midi"}, False, "audio.format", "invalid_value"),
        ({"format": 1}, False, "audio.format", "invalid_value"),
        ({"format": "flac"}, True, "audio.format", "unsupported_parameter"),
        ({"voice": 1}, False, "audio.voice", "invalid_value"),
        ({"voice": ""}, False, "audio.voice", "invalid_value"),
        ({"voice": {}}, False, "audio.voice", "invalid_value"),
        ({"voice": {"id": 1}}, False, "audio.voice", "invalid_value"),
    ],
)
def test_what_is_wrong_with_the_audio_is_named(audio, stream, param, code):
    error = refusal(modalities=["audio"], audio=audio, stream=stream)
    assert (error.param, error.code) == (param, code)


def test_audio_without_the_modality_is_not_looked_at():
    assert parse(audio={"format": "midi"}).spoken is None


def test_the_speaker_of_other_servers_is_the_voice():
    assert parse(modalities=["audio"], speaker="heart").spoken == Spoken("wav", "heart")
    assert parse(modalities=["audio"], speaker="deep", audio={"voice": "heart"}).spoken == Spoken("wav", "heart")
    assert refusal(modalities=["audio"], speaker=1).param == "speaker"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"functions": [{}]}, "functions"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function"}}, "tool_choice"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"response_format": {}}, "response_format"),
        ({"web_search_options": {"a": 1}}, "web_search_options"),
        ({"logit_bias": {"1": 100}}, "logit_bias"),
        ({"ref_audio": "x"}, "ref_audio"),
        ({"n": 2, "modalities": ["text", "audio"]}, "n"),
    ],
)
def test_what_would_change_the_answer_is_refused(fields, param):
    error = refusal(**fields)
    assert (error.param, error.code) == (param, "unsupported_parameter")


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": []},
        {"tools": [{"type": "function"}], "tool_choice": "none"},
        {"functions": [{}], "function_call": "none"},
        {"tool_choice": "auto"},
        {"response_format": {"type": "text"}},
        {"response_format": None},
        {"logit_bias": {}},
        {"frobnicate": [1]},
        {"timestamps": "word"},
        {"prediction": {"type": "content"}},
    ],
)
def test_what_asks_for_nothing_is_fine(fields):
    assert parse(**fields) == ChatRequest(CONVERSATION)


def test_penalties_are_honoured_or_refused():
    assert parse(frequency_penalty=0.5).params == {"frequency_penalty": 0.5}
    assert refusal(BARE, frequency_penalty=0.5).param == "frequency_penalty"
    assert parse(BARE, frequency_penalty=0, temperature=0.3).params == {}


def test_log_probabilities():
    assert parse(logprobs=True).params == {"logprobs": True, "top_logprobs": 0}
    assert parse(logprobs=False, top_logprobs=0).params == {}
    assert refusal(top_logprobs=2).param == "top_logprobs"
    assert refusal(logprobs=True, top_logprobs=21).param == "top_logprobs"
    assert refusal(logprobs=1).param == "logprobs"
    assert refusal(BARE, logprobs=True).param == "logprobs"


def test_speed_belongs_to_what_is_spoken():
    assert "speed" not in parse(speed=2.0).params
    assert parse(modalities=["audio"], speed=2.0).params["speed"] == 2.0
    assert parse(modalities=["audio"]).params["speed"] == 1.0
    assert refusal(modalities=["audio"], speed=5).param == "speed"
    assert refusal(BARE, modalities=["audio"], speed=2).param == "speed"


def test_what_stages_add_is_a_plain_value():
    rules = ChatRules(honoured=frozenset({"normalize", "language"}))
    assert parse(rules, normalize=False).params == {"normalize": False}
    assert refusal(rules, normalize=[1]).param == "normalize"
    assert refusal(rules, language=5).param == "language"


@pytest.mark.parametrize("field", ["stream", "stream_options", "seed", "n", "temperature", "max_tokens", "stop"])
def test_a_null_is_absent(field):
    assert parse(**{field: None}) == ChatRequest(CONVERSATION)


def test_nested_fields_count_and_the_top_level_wins():
    assert parse(extra_body={"seed": 1}).seed == 1
    assert parse(seed=2, extra_body={"seed": 1}).seed == 2


def test_streams_are_asked_for_with_a_flag():
    assert refusal(stream="yes").param == "stream"
