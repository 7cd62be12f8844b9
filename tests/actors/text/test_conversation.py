import pytest

from omnirt.actors.text.conversation import Conversation
from omnirt.errors import InvalidRequest
from omnirt.wire.payload import Message, Part, Transcript


def talk(*messages):
    conversation = Conversation()
    conversation.add_messages(messages)
    return conversation


def user(*parts):
    return Message("user", tuple(Part(clip=part) if isinstance(part, int) else Part(part) for part in parts))


def hear(conversation, *stretches, clip=0):
    for number, text in enumerate(stretches):
        conversation.add_transcript(Transcript(text, clip=clip, last=number == len(stretches) - 1))


def test_a_written_conversation_is_complete_at_once():
    conversation = talk(Message("system", (Part("be brief"),)), user("hello", "world"), Message("user", (), name="Ann"))
    assert conversation.is_complete
    assert conversation.rendered() == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "hello\nworld"},
        {"role": "user", "content": "", "name": "Ann"},
    ]


def test_a_spoken_message_is_complete_when_all_of_it_was_heard():
    conversation = talk(user("Listen:", 0), user(1))
    hear(conversation, " What is", "the capital ", "")
    assert not conversation.is_complete
    hear(conversation, "of France?", clip=1)
    assert conversation.is_complete
    assert [message["content"] for message in conversation.rendered()] == ["Listen:\nWhat is the capital", "of France?"]


def test_what_was_heard_may_come_before_the_messages():
    conversation = Conversation()
    hear(conversation, "hello")
    assert not conversation.is_complete
    conversation.add_messages((user(0),))
    assert conversation.is_complete


def test_the_default_system_message_gives_way_to_the_conversations_own():
    assert talk(user("a")).rendered("brief")[0] == {"role": "system", "content": "brief"}
    own = talk(Message("system", (Part("own"),)), user("a"))
    assert [message["content"] for message in own.rendered("brief")] == ["own", "a"]


def test_a_recording_that_was_never_heard_to_its_end_is_refused():
    conversation = talk(user("hi"), user(0))
    conversation.add_transcript(Transcript("half a"))
    with pytest.raises(InvalidRequest, match=r"no speech was heard in messages\[1\]") as caught:
        conversation.end()
    assert caught.value.param == "messages"


def test_a_message_in_which_nothing_was_said_is_refused():
    conversation = talk(user(0))
    hear(conversation, "  ", "")
    assert conversation.is_complete
    with pytest.raises(InvalidRequest, match=r"no speech was heard in messages\[0\]"):
        conversation.rendered()
    quiet = talk(user("What do you hear?", 0))
    hear(quiet, "")
    assert quiet.rendered()[0]["content"] == "What do you hear?"


def test_what_was_said_without_messages_is_the_users():
    conversation = Conversation()
    hear(conversation, "second", clip=1)
    hear(conversation, "first", clip=0)
    conversation.end()
    assert [message["content"] for message in conversation.rendered()] == ["first", "second"]


def test_a_conversation_of_nothing_is_refused():
    conversation = Conversation()
    assert conversation.is_empty
    conversation.end()
    with pytest.raises(InvalidRequest, match="must not be empty"):
        conversation.rendered()
