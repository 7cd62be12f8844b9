"""What a transcription is answered with."""

import json

import pytest

from omnirt.gateway.transcription_answer import (
    Transcription,
    body_of,
    delta_event,
    done_event,
    error_event,
    segment_event,
    usage_of,
)
from omnirt.gateway.transcription_request import TranscriptionRequest
from omnirt.gateway.transcription_text import Assembly
from omnirt.wire.payload import Transcript, Word

FIRST = Transcript(
    " Hello there.",
    start_s=0.5,
    end_s=1.25,
    language="en",
    words=(Word(" Hello", 0.5, 0.9, 0.75), Word(" there.", 0.9, 1.25)),
    avg_logprob=-0.25,
    no_speech_prob=0.125,
    compression_ratio=1.5,
    temperature=0.2,
    tokens=(7, 8),
)


def done(*transcripts, reports=None, **asked):
    assembly = Assembly()
    for transcript in transcripts:
        assembly.add(transcript)
    return Transcription(TranscriptionRequest(**asked), assembly, 2.0, reports or {})


def event(data):
    assert data.startswith(b"data: ")
    assert data.endswith(b"\n\n")
    assert data.count(b"\n") == 2
    return json.loads(data[6:])


def test_json_has_text_and_usage():
    body, kind = body_of(done(FIRST))
    assert kind == "application/json"
    assert json.loads(body) == {"text": "Hello there.", "usage": {"type": "duration", "seconds": 2.0}}


def test_verbose_json_has_every_key_of_a_segment():
    body, kind = body_of(done(FIRST, format="verbose_json"))
    assert kind == "application/json"
    assert json.loads(body) == {
        "task": "transcribe",
        "language": "en",
        "duration": 2.0,
        "text": "Hello there.",
        "segments": [
            {
                "id": 0,
                "seek": 50,
                "start": 0.5,
                "end": 1.25,
                "text": " Hello there.",
                "tokens": [7, 8],
                "temperature": 0.2,
                "avg_logprob": -0.25,
                "compression_ratio": 1.5,
                "no_speech_prob": 0.125,
            }
        ],
        "usage": {"type": "duration", "seconds": 2.0},
    }


def test_verbose_json_has_words_when_they_were_asked_for():
    body, _ = body_of(done(FIRST, format="verbose_json", words=True))
    assert json.loads(body)["words"] == [
        {"word": "Hello", "start": 0.5, "end": 0.9},
        {"word": "there.", "start": 0.9, "end": 1.25},
    ]
    assert json.loads(body_of(done(format="verbose_json", words=True))[0])["words"] == []


def test_the_language_asked_for_stands_in_where_none_was_told():
    assert json.loads(body_of(done(format="verbose_json", language="de"))[0])["language"] == "de"


@pytest.mark.parametrize(
    ("format", "text"), [("text", "Hello there."), ("srt", "1\n00:00"), ("vtt", "WEBVTT\n\n00:00")]
)
def test_plain_formats_are_plain(format, text):
    body, kind = body_of(done(FIRST, format=format))
    assert kind == "text/plain"
    assert body.decode().startswith(text)


@pytest.mark.parametrize(("format", "body"), [("text", b""), ("srt", b""), ("vtt", b"WEBVTT\n")])
def test_silence_is_an_answer_too(format, body):
    assert body_of(done(Transcript("", last=True), format=format))[0] == body


def test_tokens_are_the_usage_where_they_are_counted():
    counted = {
        "recogniser": {"input_tokens": 100, "output_tokens": 9, "audio_s": 2.0},
        "voice_activity": {"segments": 1},
    }
    assert usage_of(done(reports=counted)) == {
        "type": "tokens",
        "input_tokens": 100,
        "output_tokens": 9,
        "total_tokens": 109,
        "input_token_details": {"audio_tokens": 100, "text_tokens": 0},
    }
    for reports in (
        {},
        {"recogniser": {"input_tokens": 1}},
        {"recogniser": {"input_tokens": "x", "output_tokens": -1}},
    ):
        assert usage_of(done(reports=reports)) == {"type": "duration", "seconds": 2.0}


def test_events_are_lines_of_their_own():
    assert event(delta_event(" a\nb")) == {"type": "transcript.text.delta", "delta": " a\nb"}
    assert event(segment_event(3, FIRST)) == {
        "type": "transcript.text.segment",
        "id": "seg_3",
        "start": 0.5,
        "end": 1.25,
        "text": " Hello there.",
        "speaker": "",
    }
    last = event(done_event(done(FIRST)))
    assert last == {
        "type": "transcript.text.done",
        "text": "Hello there.",
        "usage": {"type": "duration", "seconds": 2.0},
    }
    assert event(error_event({"code": "x"})) == {"type": "error", "error": {"code": "x"}}


def test_the_last_event_of_a_verbose_stream_holds_everything():
    last = event(done_event(done(FIRST, format="verbose_json")))
    assert (last["type"], last["task"], len(last["segments"])) == ("transcript.text.done", "transcribe", 1)
