"""The messages of a chat, as tables."""

import pytest

from omnirt.gateway.chat_messages import RECORDINGS_MAX, Conversation, MessageRules, Recording, parse_messages
from omnirt.gateway.errors import ApiError
from omnirt.wire.payload import Message, Part

RULES = MessageRules(transcript_of={"audio_1": "I said this"}.get)


def refusal(messages, rules=RULES):
    with pytest.raises(ApiError) as caught:
        parse_messages(messages, rules)
    assert caught.value.refusal.status == 400
    return caught.value.refusal


def of_user(*parts):
    return [{"role": "user", "content": list(parts)}]


def heard(data="AAAA", **more):
    return {"type": "input_audio", "input_audio": {"data": data, "format": "wav", **more}}


def test_roles_and_plain_content():
    messages = [
        {"role": "developer", "content": "be brief"},
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": "hi", "name": "Ann"},
        {"role": "assistant", "content": "hello"},
        {"role": "tool", "content": "42", "tool_call_id": "call_1"},
        {"role": "assistant", "content": None},
    ]
    assert parse_messages(messages, RULES).messages == (
        Message("system", (Part("be brief"),)),
        Message("system", (Part("be kind"),)),
        Message("user", (Part("hi"),), "Ann"),
        Message("assistant", (Part("hello"),)),
        Message("tool", (Part("42"),)),
        Message("assistant", ()),
    )


def test_recordings_are_numbered_over_all_messages():
    messages = [
        *of_user({"type": "text", "text": "first"}, heard("AAAA")),
        {"role": "assistant", "content": [{"type": "text", "text": "ok"}, {"type": "refusal", "refusal": "no"}]},
        *of_user({"type": "audio_url", "audio_url": {"url": "https://a.example/b.mp3"}}, heard("BBBB", format=None)),
        *of_user({"type": "audio_url", "audio_url": "data:audio/wav;base64,CCCC"}),
    ]
    found = parse_messages(messages, RULES)
    assert found == Conversation(
        (
            Message("user", (Part("first"), Part(clip=0))),
            Message("assistant", (Part("ok"), Part("no"))),
            Message("user", (Part(clip=1), Part(clip=2))),
            Message("user", (Part(clip=3),)),
        ),
        (
            Recording("messages[0].content[1].input_audio.data", data="AAAA"),
            Recording("messages[2].content[0].audio_url.url", url="https://a.example/b.mp3"),
            Recording("messages[2].content[1].input_audio.data", data="BBBB"),
            Recording("messages[3].content[0].audio_url.url", url="data:audio/wav;base64,CCCC"),
        ),
    )


def test_an_earlier_spoken_answer_is_what_it_said():
    spoken = {"role": "assistant", "audio": {"id": "audio_1"}}
    said = Message("assistant", (Part("I said this"),))
    for content in ({}, {"content": None}, {"content": ""}):
        assert parse_messages([spoken | content], RULES).messages == (said,)
    cut = parse_messages([spoken | {"content": "I said"}], RULES).messages
    assert cut == (Message("assistant", (Part("I said"),)),), "the client's own words count"


@pytest.mark.parametrize("audio", [{"id": "audio_2"}, {"id": 3}, {}])
def test_an_answer_that_is_not_kept_is_named(audio):
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "audio": audio, "content": "x"}]
    assert refusal(messages).param == "messages[1].audio.id"


@pytest.mark.parametrize(
    ("messages", "param", "code"),
    [
        (None, "messages", "missing_required_parameter"),
        ([], "messages", "invalid_value"),
        ("hi", "messages", "invalid_value"),
        ({"role": "user"}, "messages", "invalid_value"),
        ([1], "messages[0]", "invalid_value"),
        ([{"content": "x"}], "messages[0].role", "invalid_value"),
        ([{"role": "robot", "content": "x"}], "messages[0].role", "invalid_value"),
        ([{"role": ["user"], "content": "x"}], "messages[0].role", "invalid_value"),
        ([{"role": "user"}], "messages[0].content", "missing_required_parameter"),
        ([{"role": "user", "content": None}], "messages[0].content", "missing_required_parameter"),
        ([{"role": "user", "content": []}], "messages[0].content", "invalid_value"),
        ([{"role": "user", "content": 5}], "messages[0].content", "invalid_value"),
        ([{"role": "user", "content": "x", "name": 5}], "messages[0].name", "invalid_value"),
        ([{"role": "assistant", "audio": "audio_1"}], "messages[0].audio", "invalid_value"),
        ([{"role": "assistant", "tool_calls": [{}]}], "messages[0].tool_calls", "unsupported_parameter"),
        (of_user(5), "messages[0].content[0]", "invalid_value"),
        (of_user({}), "messages[0].content[0].type", "invalid_value"),
        (of_user({"type": "smell"}), "messages[0].content[0].type", "invalid_value"),
        (of_user({"type": ["text"]}), "messages[0].content[0].type", "invalid_value"),
        (of_user({"type": "text"}), "messages[0].content[0].text", "invalid_value"),
        (of_user({"type": "text", "text": 1}), "messages[0].content[0].text", "invalid_value"),
        (of_user({"type": "input_audio"}), "messages[0].content[0].input_audio.data", "invalid_value"),
        (
            of_user({"type": "input_audio", "input_audio": "AAAA"}),
            "messages[0].content[0].input_audio",
            "invalid_value",
        ),
        (of_user(heard("")), "messages[0].content[0].input_audio.data", "invalid_value"),
        (of_user(heard(5)), "messages[0].content[0].input_audio.data", "invalid_value"),
        (of_user(heard(format=5)), "messages[0].content[0].input_audio.format", "invalid_value"),
        (of_user({"type": "audio_url", "audio_url": {}}), "messages[0].content[0].audio_url.url", "invalid_value"),
        (
            of_user({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}),
            "messages[0].content[0].image_url",
            "unsupported_parameter",
        ),
        (of_user({"type": "video_url", "video_url": {}}), "messages[0].content[0].video_url", "unsupported_parameter"),
        (of_user({"type": "file", "file": {}}), "messages[0].content[0].file", "unsupported_parameter"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(messages, param, code):
    error = refusal(messages)
    assert (error.param, error.code) == (param, code)


def test_a_pipeline_that_does_not_hear_refuses_recordings():
    error = refusal(of_user(heard()), MessageRules(hears=False))
    assert (error.param, error.code) == ("messages[0].content[0].input_audio", "unsupported_parameter")


def test_there_are_bounds():
    assert refusal([{"role": "user", "content": "x"}] * 3, MessageRules(messages_max=2)).param == "messages"
    assert refusal([{"role": "user", "content": "xxx"}] * 2, MessageRules(chars_max=5)).param == "messages"
    many = of_user(*[heard()] * (RECORDINGS_MAX + 1))
    assert refusal(many).param == f"messages[0].content[{RECORDINGS_MAX}].input_audio"


def test_strings_among_the_parts_are_text():
    assert parse_messages(of_user("a", "b"), RULES).messages == (Message("user", (Part("a"), Part("b"))),)
