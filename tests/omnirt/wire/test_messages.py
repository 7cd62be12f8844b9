import msgspec
import pytest

from omnirt.errors import Failure
from omnirt.ids import Fence
from omnirt.wire.messages import (
    Chunk,
    Close,
    Credit,
    End,
    LoadFailed,
    Open,
    Opens,
    RequestFailed,
    decode_record,
    decode_to_head,
    decode_to_node,
    encode,
)

FENCE = Fence(3, 7)


@pytest.mark.parametrize("record", [Chunk(1, 2, FENCE, 0, b"header"), End(1, 2, FENCE, 4), Credit(1, 2, FENCE, 1)])
def test_records_come_back_as_what_they_were(record):
    assert decode_record(encode(record)) == record


def test_control_messages_come_back_as_what_they_were():
    opened = Open("tts", 2, FENCE, 5, 9, "req_1", {"speed": 1.5}, {0: "head"}, {1: "speech.0"})
    assert decode_to_node(encode(Opens((opened, opened)))) == Opens((opened, opened))
    assert decode_to_node(encode(Close(2, FENCE))) == Close(2, FENCE)
    failed = RequestFailed(2, FENCE, Failure("stage_failed", "why", "tts"))
    assert decode_to_head(encode(failed)) == failed


def test_a_message_of_the_other_direction_is_refused():
    with pytest.raises(msgspec.ValidationError):
        decode_to_node(encode(LoadFailed(Failure("stage_failed", "why"))))


@pytest.mark.parametrize("junk", [b"", b"\x00", b"\xc1", b"\x93\x01\x02\x03", b"\x80"])
def test_junk_is_refused(junk):
    with pytest.raises((msgspec.DecodeError, msgspec.ValidationError)):
        decode_record(junk)
