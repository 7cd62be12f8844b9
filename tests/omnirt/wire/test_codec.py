import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnirt.wire.codec import ALIGN, Packing, unpack
from omnirt.wire.payload import CodecFrames, HiddenStates, Payload, Pcm, Text

DTYPES = st.sampled_from(["u1", "<i2", "<i4", "<f4", "<f8", "<i8", "?"])
SHAPES = st.lists(st.integers(0, 5), min_size=0, max_size=3).map(tuple)


def sent(payload):
    """Header and body as they would lie in a record or slot."""
    packing = Packing(payload)
    body = np.zeros(packing.nbytes, np.uint8)
    packing.write(body)
    return packing.header, body


def array(dtype, shape, seed):
    return np.random.default_rng(seed).integers(0, 2, shape).astype(dtype)


@given(DTYPES, SHAPES, DTYPES, SHAPES)
def test_a_payload_comes_back_equal(dtype, shape, other_dtype, other_shape):
    payload = HiddenStates(array(dtype, shape, 1), array(other_dtype, other_shape, 2))
    got = unpack(HiddenStates, *sent(payload))
    for mine, theirs in ((payload.states, got.states), (payload.ids, got.ids)):
        assert mine.dtype == theirs.dtype
        np.testing.assert_array_equal(mine, theirs)


def test_text_is_all_header():
    header, body = sent(Text("häkeln"))
    assert body.nbytes == 0
    assert unpack(Text, header, body) == Text("häkeln")


def test_arrays_start_on_their_alignment():
    packing = Packing(HiddenStates(np.zeros((3, 1), np.uint8), np.zeros(1, np.int64)))
    assert packing.nbytes == 2 * ALIGN


def test_received_arrays_are_views_that_cannot_be_written():
    header, body = sent(CodecFrames(np.ones((2, 4), np.int32)))
    got = unpack(CodecFrames, header, body)
    assert np.shares_memory(got.codes, body)
    with pytest.raises(ValueError, match="read-only"):
        got.codes[0, 0] = 5


def test_an_array_that_is_not_contiguous_is_copied_in_order():
    samples = np.arange(10, dtype=np.int16)[::2]
    np.testing.assert_array_equal(unpack(Pcm, *sent(Pcm(samples, 16000))).samples, samples)


def test_an_array_outside_the_body_is_refused():
    header, body = sent(Pcm(np.zeros(100, np.int16), 16000))
    with pytest.raises((ValueError, msgspec.ValidationError)):
        unpack(Pcm, header, body[:64])


def test_a_header_of_another_payload_is_refused():
    header, body = sent(Text("hello"))
    with pytest.raises(msgspec.ValidationError):
        unpack(Pcm, header, body)


def test_objects_do_not_travel():
    class Odd(Payload, frozen=True):
        value: np.ndarray

    with pytest.raises(TypeError, match="arrays of objects"):
        Packing(Odd(np.array([object()])))
    with pytest.raises(TypeError, match="cannot send a object"):
        Packing(Odd(object()))
