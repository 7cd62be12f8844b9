import numpy as np

from omnirt.wire.payload import Chat, Message, Part, Pcm, Text, TokenLogprob


def test_joined_parts_are_one_payload_in_order():
    assert Text.joined([Text("a"), Text("b")]) == Text("ab")
    joined = Pcm.joined([Pcm(np.array([1, 2], np.int16), 24000), Pcm(np.array([3], np.int16), 24000)])
    assert joined.samples.tolist() == [1, 2, 3]
    assert joined.rate == 24000


def test_one_part_is_itself():
    part = Text("a")
    assert Text.joined([part]) is part


def test_only_arrays_count_as_bytes():
    assert Pcm(np.zeros(10, np.int16), 24000).nbytes() == 20
    assert Text("hello").nbytes() == 0


def test_a_conversation_travels_as_one_array():
    said = (Message("system", (Part("be brief"),)), Message("user", (Part(clip=0), Part("what is that?")), "ann"))
    chat = Chat.of(said)
    assert chat.messages() == said
    assert chat.nbytes() == chat.packed.size


def test_joined_tuples_are_in_order():
    one, two = TokenLogprob("a", b"a", -0.5), TokenLogprob("b", b"b", -1.5)
    assert Text.joined([Text("a", (one,)), Text("b", (two,))]) == Text("ab", (one, two))
