import base64
import json

import msgspec
import pytest

from omnirt.cli.chat_events import Answer, EventStream, Piece, message_of


def event(**delta):
    return b"data: " + json.dumps({"choices": [{"delta": delta, "finish_reason": None}]}).encode() + b"\n\n"


@pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
def test_events_are_found_wherever_the_bytes_are_cut(ending):
    whole = ending.join([b": hi", b"", b"event: x", b"data: one", b"id: 3", b"", b"data:two", b"data: more", b"", b""])
    for cut in range(len(whole) + 1):
        stream = EventStream()
        assert stream.feed(whole[:cut]) + stream.feed(whole[cut:]) == [b"one", b"two\nmore"]


def test_an_event_without_its_empty_line_is_not_one_yet():
    stream = EventStream()
    assert stream.feed(b"data: one\n") == []
    assert stream.feed(b"\n") == [b"one"]


def test_text_and_sound_come_in_the_order_they_were_sent():
    answer = Answer()
    sound = base64.b64encode(b"\1\0").decode()
    pieces = answer.feed(event(role="assistant", content="") + event(content="a") + event(audio={"data": sound}))
    assert pieces == [Piece("a"), Piece("", b"\1\0")]
    assert answer.feed(event(content="é")) == [Piece("é")]
    assert (answer.text, answer.complete) == ("aé", False)
    answer.feed(b"data: [DONE]\n\n")
    assert answer.complete


@pytest.mark.parametrize(("first", "second"), [("content", "transcript"), ("transcript", "content")])
def test_a_text_that_is_named_twice_is_given_once(first, second):
    def named(kind, text):
        return event(content=text) if kind == "content" else event(audio={"transcript": text})

    answer = Answer()
    for text in ("a", "b"):
        answer.feed(named(first, text) + named(second, text))
    assert answer.text == "ab"


def test_the_finish_reason_and_usage_only_chunks_are_understood():
    answer = Answer()
    answer.feed(b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}\n\n')
    answer.feed(b'data: {"choices":[],"usage":{"prompt_tokens":3}}\n\n')
    assert (answer.finish_reason, answer.error) == ("length", "")


@pytest.mark.parametrize(
    ("error", "words"), [({"message": "lost", "code": "x"}, "lost"), ("lost", "lost"), ({"code": 3}, "{'code': 3}")]
)
def test_an_error_is_kept_in_the_servers_words(error, words):
    answer = Answer()
    answer.feed(b"data: " + json.dumps({"error": error}).encode() + b"\n\n")
    assert answer.error == words == message_of(error)


def test_what_is_no_chat_is_an_error():
    with pytest.raises(msgspec.MsgspecError):
        Answer().feed(b"data: hello\n\n")
