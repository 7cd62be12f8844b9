import base64
import json

import pytest
from serve_read import Events, Record, Refusal, Samples, Whole, samples_of


def event(**delta):
    return b"data: " + json.dumps({"choices": [{"delta": delta}]}).encode() + b"\n\n"


def sound(samples):
    return event(audio={"data": base64.b64encode(bytes(2 * samples)).decode()})


@pytest.mark.parametrize("samples", range(7))
def test_samples_are_counted_by_the_length_of_their_base64(samples):
    assert samples_of(b'"%b"' % base64.b64encode(bytes(2 * samples))) == samples


def test_escapes_and_what_is_missing_are_no_samples():
    assert samples_of(b'"\\/\\/\\/\\/"') == 1
    assert samples_of(b"") == samples_of(b"null") == samples_of(b'""') == 0


def test_only_text_and_sound_that_are_not_empty_are_noted_with_their_time():
    record = Record(0)
    events = Events(record)
    events.feed(event(role="assistant", content=""), 1)
    events.feed(event(content="a") + event(content=None), 2)
    events.feed(event(audio={"id": "x"}) + event(audio={"data": ""}), 3)
    events.feed(sound(5)[:10], 4)
    events.feed(sound(5)[10:] + event(content="b", audio={"transcript": "b"}), 5)
    assert (record.text, record.text_ns, record.sound) == ("ab", [2, 5], [(5, 5)])


def test_usage_and_the_rate_are_taken_from_the_answer():
    record = Record(0)
    events = Events(record)
    events.feed(b'data: {"choices":[{"delta":{},"audio_metadata":{"sample_rate_hz":16000}}]}\n\n', 1)
    events.feed(b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}\n\ndata: [DONE]\n\n', 2)
    events.end()
    assert (record.rate, record.prompt_tokens, record.completion_tokens, record.code) == (16_000, 3, 4, "")


def test_an_answer_without_its_end_mark_or_with_an_error_is_not_whole():
    cut, failed = Record(0), Record(0)
    Events(cut).end()
    events = Events(failed)
    events.feed(b'data: {"error":{"message":"x","code":"stage_lost"}}\n\n', 1)
    events.end()
    assert (cut.code, failed.code) == ("no_end", "stage_lost")


def test_a_sample_that_is_cut_counts_when_its_second_half_arrives():
    record = Record(0)
    samples = Samples(record)
    samples.begin({b"content-type": b"audio/pcm; rate=16000; channels=1"})
    samples.feed(bytes(3), 1)
    samples.feed(bytes(1), 2)
    samples.feed(bytes(1), 3)
    samples.end()
    assert (record.sound, record.rate, record.code) == ([(1, 1), (2, 1)], 16_000, "")
    assert record.received_s == 2 / 16_000


def test_a_body_that_is_no_samples_is_an_error():
    record = Record(0)
    samples = Samples(record)
    samples.begin({b"content-type": b"audio/mpeg"})
    samples.end()
    assert record.code == "not_samples"


def test_a_transcription_is_read_whole():
    record = Record(0)
    whole = Whole(record)
    whole.feed(b'{"te', 1)
    whole.feed(b'xt":"hi"}', 2)
    whole.end()
    assert record.text == "hi"


@pytest.mark.parametrize(
    ("body", "code"), [(b'{"error":{"code":"queue_full"}}', "429 queue_full"), (b"<html>", "429"), (b"{}", "429")]
)
def test_a_refusal_is_known_by_status_and_code(body, code):
    record = Record(0)
    refusal = Refusal(record, 429)
    refusal.feed(body, 1)
    refusal.end()
    assert record.code == code
