import numpy as np

from omnirt.wire.payload import Pcm, Text


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
