import json

import pytest
from serve_ask import WORKLOADS, Recording, Settings, asks, paragraphs, prompts

RECORDINGS = [Recording(b"RIFF-one", 1.5), Recording(b"RIFF-two", 2.0)]


def body(ask):
    return json.loads(ask.body)


@pytest.mark.parametrize("workload", WORKLOADS)
def test_the_same_seed_asks_the_same_and_another_seed_something_else(workload):
    first, again = (asks(Settings(workload, seed=3), RECORDINGS) for _ in range(2))
    assert [first(number) for number in range(5)] == [again(number) for number in range(5)]
    if workload in ("chat-text", "chat-audio", "speech"):
        assert first(0) != asks(Settings(workload, seed=4), RECORDINGS)(0)


def test_no_question_comes_twice_before_all_have_been_asked():
    assert len(set(prompts(1))) == len(prompts(1)) == 288
    assert len(paragraphs(1)) == 288


def test_a_chat_in_text_asks_for_text_and_its_usage():
    asked = body(asks(Settings("chat-text", model="m"), [])(0))
    assert asked["modalities"] == ["text"]
    assert asked["stream_options"] == {"include_usage": True}
    assert (asked["model"], asked["max_tokens"]) == ("m", 64)
    assert not {"audio", "ignore_eos", "temperature"} & set(asked)


def test_a_length_that_is_forced_is_asked_for_from_both_sides():
    asked = body(asks(Settings("chat-audio", tokens=7, voice="v", temperature=0.0), [])(0))
    assert (asked["max_tokens"], asked["min_tokens"], asked["ignore_eos"], asked["temperature"]) == (7, 7, True, 0.0)
    assert asked["audio"] == {"format": "pcm16", "voice": "v"}


def test_a_spoken_question_is_a_recording():
    ask = asks(Settings("chat-spoken"), RECORDINGS)(1)
    (part,) = body(ask)["messages"][0]["content"]
    assert part["type"] == "input_audio"
    assert ask.sent_s == 2.0


def test_a_transcription_is_a_form_with_the_file_last():
    ask = asks(Settings("transcription", model="m"), RECORDINGS)(2)
    boundary = ask.content_type.partition("boundary=")[2].encode()
    assert ask.body.count(b"--" + boundary) == 4
    assert ask.body.endswith(b"RIFF-one\r\n--" + boundary + b"--\r\n")
    assert b'name="model"\r\n\r\nm\r\n' in ask.body


def test_speech_is_asked_for_as_samples_that_are_streamed():
    asked = body(asks(Settings("speech"), [])(0))
    assert (asked["response_format"], asked["stream"], asked["stream_format"]) == ("pcm", True, "audio")
