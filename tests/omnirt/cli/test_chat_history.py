import base64
import json

import pytest

from omnirt.cli.chat_history import Conversation, Recording, format_of


@pytest.mark.parametrize(
    ("name", "first", "expected"),
    [
        ("a", b"RIFF\0\0\0\0WAVE", "wav"),
        ("a", b"ID3\4", "mp3"),
        ("a", b"\xff\xfb\x90", "mp3"),
        ("a", b"\xff\xf1\x50", "aac"),
        ("a", b"fLaC", "flac"),
        ("a", b"OggS", "ogg"),
        ("a", b"\0\0\0\x20ftypM4A ", "m4a"),
        ("a", b"\x1aE\xdf\xa3", "webm"),
        ("a.wav", b"fLaC", "flac"),
        ("a.AMR", b"#!AMR", "amr"),
        ("a", b"text", ""),
    ],
)
def test_the_kind_of_a_recording_is_known_by_its_bytes_then_by_its_name(name, first, expected):
    assert format_of(name, first) == expected


def test_every_turn_is_kept_in_order_after_the_system_message():
    conversation = Conversation("be brief")
    conversation.ask("one")
    conversation.answered("1")
    conversation.ask("two")
    roles = [(message["role"], message["content"]) for message in conversation.messages()]
    assert roles == [("system", "be brief"), ("user", "one"), ("assistant", "1"), ("user", "two")]


def test_a_question_without_an_answer_is_forgotten():
    conversation = Conversation()
    conversation.ask("one", Recording("a.wav", b"RIFF", "wav"))
    conversation.answered("")
    assert conversation.messages() == []
    conversation.ask("one")
    conversation.answered("1")
    assert conversation.as_text() == "user: one\n\nassistant: 1\n"


def test_a_recording_stays_the_question():
    conversation = Conversation()
    conversation.ask("about this:", Recording("a.wav", b"RIFF", "wav"))
    conversation.answered("yes")
    conversation.ask("", Recording("b.mp3", b"ID3", "mp3"))
    sounds = [message["content"] for message in conversation.messages() if message["role"] == "user"]
    data = base64.b64encode(b"RIFF").decode()
    assert sounds[0] == [
        {"type": "text", "text": "about this:"},
        {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}},
    ]
    assert [part["type"] for part in sounds[1]] == ["input_audio"]


def test_a_conversation_is_saved_for_reading_and_for_sending_again():
    conversation = Conversation("s")
    conversation.ask("look", Recording("a.wav", b"RIFF", "wav"))
    conversation.answered("ah")
    assert conversation.as_text() == "system: s\n\nuser: [a.wav] look\n\nassistant: ah\n"
    assert json.loads(conversation.as_json()) == {"messages": conversation.messages()}


def test_reset_leaves_the_system_message():
    conversation = Conversation("s")
    conversation.ask("one")
    conversation.answered("1")
    conversation.reset()
    assert [message["role"] for message in conversation.messages()] == ["system"]
