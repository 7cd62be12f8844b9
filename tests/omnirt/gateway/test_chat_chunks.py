"""The events of a chat stream, byte for byte what a JSON encoder would give."""

import base64
import json

import pytest

from omnirt.gateway.chat_chunks import DONE, AnswerId, ChatChunks, Frame
from omnirt.wire.payload import TokenLogprob

ANSWER = AnswerId('chatcmpl-"1"', 123, "org/vöice")
TOKEN = TokenLogprob("hé", "hé".encode(), -0.5, (TokenLogprob("ho", b"ho", -0.7),))


def chunks(audio_id="", shows_text=True, include_usage=False, index=0):
    return ChatChunks(Frame(ANSWER, "chat.completion.chunk", include_usage), index, audio_id, shows_text=shows_text)


def value(event):
    assert event.startswith(b"data: ")
    assert event.endswith(b"\n\n")
    assert event.count(b"\n") == 2, "one line of JSON"
    return json.loads(event[6:])


def delta(event, index=0):
    (choice,) = value(event)["choices"]
    assert choice.keys() == {"index", "delta", "logprobs", "finish_reason"}
    assert choice["index"] == index
    return choice["delta"]


def every_event(made):
    yield made.begin()
    yield made.text('a\n"b" \u2028 ü 🙂', ())
    yield made.text("a", (TOKEN,))
    yield made.audio(b"\1\2")
    yield made.audio_ends(99)
    yield made.end("stop")


@pytest.mark.parametrize("audio_id", ["", "audio_1"])
@pytest.mark.parametrize("include_usage", [False, True])
def test_all_events_of_an_answer_have_the_same_head(audio_id, include_usage):
    for event in every_event(chunks(audio_id, include_usage=include_usage)):
        got = value(event)
        choices = got.pop("choices")
        assert len(choices) == 1
        expected = {"id": 'chatcmpl-"1"', "object": "chat.completion.chunk", "created": 123, "model": "org/vöice"}
        expected |= {"system_fingerprint": None} | ({"usage": None} if include_usage else {})
        assert got == expected


def test_a_text_answer():
    made = chunks(index=3)
    assert delta(made.begin(), 3) == {"role": "assistant", "content": ""}
    assert delta(made.text('a\n"b" ü 🙂', ()), 3) == {"content": 'a\n"b" ü 🙂'}
    end = value(made.end("length"))["choices"][0]
    assert (end["delta"], end["finish_reason"]) == ({}, "length")


def test_a_spoken_answer_names_its_audio_once():
    made = chunks("audio_1")
    assert delta(made.begin()) == {"role": "assistant", "content": ""}
    assert delta(made.text("a", ())) == {"content": "a", "audio": {"id": "audio_1", "transcript": "a"}}
    assert delta(made.text("b", ())) == {"content": "b", "audio": {"transcript": "b"}}
    assert delta(made.audio(b"\1\2")) == {"audio": {"data": base64.b64encode(b"\1\2").decode()}}
    assert delta(made.audio_ends(99)) == {"audio": {"expires_at": 99}}


def test_sound_may_come_first():
    made = chunks("audio_1")
    assert delta(made.audio(b"\1\2")) == {"audio": {"id": "audio_1", "data": "AQI="}}
    assert delta(made.text("a", ())) == {"content": "a", "audio": {"transcript": "a"}}


def test_an_answer_without_sound_still_has_an_id():
    assert delta(chunks("audio_1").audio_ends(99)) == {"audio": {"id": "audio_1", "expires_at": 99}}


def test_where_only_audio_was_asked_for_text_is_transcript():
    made = chunks("audio_1", shows_text=False)
    assert delta(made.begin()) == {"role": "assistant"}
    assert delta(made.text("a", ())) == {"audio": {"id": "audio_1", "transcript": "a"}}


def test_log_probabilities_travel_with_their_text():
    choice = value(chunks().text("hé", (TOKEN,)))["choices"][0]
    top = {"token": "ho", "logprob": -0.7, "bytes": [104, 111]}
    expected = {"token": "hé", "logprob": -0.5, "bytes": [104, 195, 169], "top_logprobs": [top]}
    assert choice["logprobs"] == {"content": [expected], "refusal": None}
    assert choice["finish_reason"] is None


def test_usage_has_no_choice():
    got = value(Frame(ANSWER, "chat.completion.chunk", True).usage({"total_tokens": 3}))
    assert (got["choices"], got["usage"]) == ([], {"total_tokens": 3})


def test_the_end_mark():
    assert DONE == b"data: [DONE]\n\n"
