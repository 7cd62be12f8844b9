"""The fields of a transcription, as JSON and as a form."""

import pytest

from omnirt.gateway.errors import ApiError
from omnirt.gateway.transcription_request import (
    TranscriptionRequest,
    TranscriptionRules,
    form_fields,
    parse_transcription,
    recording_in,
)

ALL = TranscriptionRules(frozenset({"language", "prompt", "temperature", "timestamps"}))
NONE = TranscriptionRules()


def parse(rules=ALL, **fields):
    return parse_transcription(fields, rules)


def refusal(work, *args, **fields):
    with pytest.raises(ApiError) as caught:
        work(*args, **fields)
    assert caught.value.refusal.status == 400
    return caught.value.refusal


def test_nothing_given_is_json_without_times():
    assert parse() == TranscriptionRequest(params={"timestamps": "none"})
    assert parse(NONE) == TranscriptionRequest()


@pytest.mark.parametrize(
    ("fields", "times"),
    [
        ({"response_format": "json"}, "none"),
        ({"response_format": "text"}, "none"),
        ({"response_format": "srt"}, "segment"),
        ({"response_format": "vtt"}, "segment"),
        ({"response_format": "verbose_json"}, "segment"),
        ({"response_format": "verbose_json", "timestamp_granularities": ["segment"]}, "segment"),
        ({"response_format": "verbose_json", "timestamp_granularities": ["word", "segment"]}, "word"),
        ({"timestamp_granularities": "word"}, "word"),
        ({"stream": True}, "segment"),
    ],
)
def test_times_are_made_only_where_they_are_shown(fields, times):
    assert parse(**fields).params["timestamps"] == times


def test_wishes_reach_a_pipeline_that_honours_them_and_no_other():
    wishes = {"language": "en", "prompt": "Mr. Lévy", "temperature": 0.25}
    assert parse(**wishes).params == wishes | {"timestamps": "none"}
    assert parse(NONE, **wishes).params == {}
    assert parse(NONE, **wishes).language == "en"


def test_what_is_ignored_whatever_it_is():
    ignored = {
        "chunking_strategy": {"type": "server_vad"},
        "include": ["logprobs"],
        "keywords": ["omnirt"],
        "languages": ["en", "de"],
        "known_speaker_names": ["a"],
        "user": 7,
    }
    assert parse(**ignored) == parse()
    assert parse(language=None, prompt=None, stream=None, response_format=None) == parse()
    assert parse(language="", prompt="", stream="", response_format="", temperature="") == parse()
    assert parse(language="auto") == parse()


def test_a_form_reads_like_json():
    parts = {
        "model": ["voice"],
        "response_format": ["verbose_json"],
        "timestamp_granularities[]": ["word", "segment"],
        "temperature": ["0.5"],
        "stream": ["true"],
        "language": ["en", "de"],
    }
    fields = form_fields(parts)
    assert fields["timestamp_granularities"] == ["word", "segment"]
    assert parse_transcription(fields, ALL) == parse(
        response_format="verbose_json",
        timestamp_granularities=["word", "segment"],
        temperature=0.5,
        stream=True,
        language="de",
    )


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("True", True), ("1", True), ("false", False), ("0", False), ("no", False)]
)
def test_flags_of_a_form(text, value):
    assert parse(stream=text).stream is value


def test_fields_in_extra_body_count():
    assert parse(extra_body={"language": "en"}).language == "en"
    assert parse(extra_body={"language": "en"}, language="de").language == "de"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": "xml"}, "response_format"),
        ({"response_format": 1}, "response_format"),
        ({"timestamp_granularities": ["phoneme"]}, "timestamp_granularities"),
        ({"timestamp_granularities": [["word"]]}, "timestamp_granularities"),
        ({"timestamp_granularities": {"word": 1}}, "timestamp_granularities"),
        ({"language": 7}, "language"),
        ({"language": "english please"}, "language"),
        ({"language": "x" * 65}, "language"),
        ({"prompt": ["a"]}, "prompt"),
        ({"prompt": "a" * 10_000}, "prompt"),
        ({"temperature": "warm"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"temperature": 1.5}, "temperature"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": "nan"}, "temperature"),
        ({"stream": "maybe"}, "stream"),
        ({"stream": 1}, "stream"),
        ({"extra_body": 1}, "extra_body"),
    ],
)
def test_wrong_values_are_refused_by_name(fields, param):
    found = refusal(parse, **fields)
    assert (found.code, found.param) == ("invalid_value", param)


def test_who_spoke_and_when_each_word_was_said_are_not_left_out_silently():
    for found, param in [
        (refusal(parse, response_format="diarized_json"), "response_format"),
        (refusal(parse, NONE, timestamp_granularities=["word"]), "timestamp_granularities"),
    ]:
        assert (found.code, found.param) == ("unsupported_parameter", param)
    assert parse(NONE, timestamp_granularities=["segment"]) == TranscriptionRequest()


def test_translating_is_a_task():
    assert parse_transcription({}, NONE, "translate").params == {"task": "translate"}


@pytest.mark.parametrize("body", [[], "x", None, 1])
def test_a_body_that_is_no_object(body):
    assert refusal(parse_transcription, body, ALL).param is None


def test_the_recording_in_json():
    assert recording_in({"input_audio": {"data": "AAAA", "format": "whatever"}}) == "AAAA"
    assert recording_in({"extra_body": {"input_audio": {"data": "AAAA"}}}) == "AAAA"


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({}, "input_audio", "missing_required_parameter"),
        ({"input_audio": None}, "input_audio", "missing_required_parameter"),
        ({"input_audio": "AAAA"}, "input_audio", "invalid_value"),
        ({"input_audio": {}}, "input_audio.data", "missing_required_parameter"),
        ({"input_audio": {"data": 1}}, "input_audio.data", "invalid_value"),
    ],
)
def test_a_recording_that_is_not_there(body, param, code):
    found = refusal(recording_in, body)
    assert (found.param, found.code) == (param, code)
