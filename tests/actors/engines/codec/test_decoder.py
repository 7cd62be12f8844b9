"""What a stage sees of the decoder: slots, pieces of any mix of lengths, unheard frames, copies of a slot."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from omnirt.actors.engines.codec.decoder import Piece, StreamingDecoder  # noqa: E402
from omnirt.actors.engines.codec.memory import POSITIONS_MAX  # noqa: E402
from omnirt.errors import ConfigError, InvalidRequest, Overloaded  # noqa: E402

TOLERANCE = 1e-5


@pytest.fixture
def decoder(codec):
    return StreamingDecoder(codec, 3)


def codes_of(codec, frames, seed=0):
    size = (frames, codec.shape.books)
    return np.random.default_rng(seed).integers(0, codec.shape.codes, size).astype(np.int32)


def whole(decoder, codes):
    slot = decoder.open()
    samples = decoder.launch([Piece(slot, codes)]).samples()[0]
    decoder.close(slot)
    return samples


def test_a_mix_of_lengths_is_decoded_as_each_alone(codec, decoder):
    of = [codes_of(codec, 30, seed) for seed in range(3)]
    want = [whole(decoder, codes) for codes in of]
    slots, at, got = [decoder.open() for _ in range(3)], [0] * 3, [[], [], []]
    for lengths in ((1, 4, 0), (9, 9, 2), (0, 17, 28), (20, 0, 0)):
        pieces = [Piece(slots[i], of[i][at[i] : at[i] + n]) for i, n in enumerate(lengths)]
        call = decoder.launch(pieces)
        assert call.ready()
        for i, samples in enumerate(call.samples()):
            assert samples.dtype == np.float32
            assert len(samples) == lengths[i] * decoder.samples_per_frame
            got[i].append(samples)
            at[i] += lengths[i]
    for i in range(3):
        assert np.abs(np.concatenate(got[i]) - want[i]).max() < TOLERANCE


def test_a_piece_longer_than_a_call_goes_on_in_the_next(codec, decoder):
    codes = codes_of(codec, 2 * decoder.frames_max + 5)
    slot = decoder.open()
    parts = [decoder.launch([Piece(slot, codes[i : i + 7])]).samples()[0] for i in range(0, len(codes), 7)]
    assert np.abs(np.concatenate(parts) - whole(decoder, codes)).max() < TOLERANCE


def test_a_slot_is_new_for_the_next_request(codec, decoder):
    codes = codes_of(codec, 12)
    first = whole(decoder, codes)
    for _ in range(4):
        np.testing.assert_array_equal(whole(decoder, codes), first)


@pytest.mark.parametrize("unheard", [0, 1, 20, 33, 40])
def test_unheard_frames_lead_in_and_have_no_samples(codec, decoder, unheard):
    codes, other = codes_of(codec, 40), codes_of(codec, 40, 1)
    want = whole(decoder, codes)[unheard * decoder.samples_per_frame :]
    pieces = [Piece(decoder.open(), codes, unheard), Piece(decoder.open(), other)]
    got, beside = decoder.launch(pieces).samples()
    assert got.shape == want.shape
    assert not got.size or np.abs(got - want).max() < TOLERANCE
    assert len(beside) == 40 * decoder.samples_per_frame


def test_a_copied_slot_goes_on_as_the_first_would_have(codec, decoder):
    codes = codes_of(codec, 30)
    first, second = decoder.open(), decoder.open()
    decoder.launch([Piece(first, codes[:20], unheard=20)])
    snapshot = decoder.snapshot(first)
    decoder.launch([Piece(second, codes_of(codec, 9, 5))])
    want = decoder.launch([Piece(first, codes[20:])]).samples()[0]
    decoder.restore(second, snapshot)
    np.testing.assert_array_equal(decoder.launch([Piece(second, codes[20:])]).samples()[0], want)


def test_slots_are_lowest_first_and_run_out(decoder):
    assert [decoder.open() for _ in range(3)] == [0, 1, 2]
    with pytest.raises(Overloaded, match="all 3 rows"):
        decoder.open()
    decoder.close(2)
    decoder.close(0)
    assert decoder.open() == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda codes: codes[:, :-1], "frames of 4 codes"),
        (lambda codes: codes + 100, "from 0 to 23"),
        (lambda codes: codes - 100, "from 0 to 23"),
    ],
)
def test_codes_that_cannot_be_are_refused_before_anything_begins(codec, decoder, change, said):
    slot, good = decoder.open(), codes_of(codec, 3)
    with pytest.raises(InvalidRequest, match=said):
        decoder.launch([Piece(slot, change(good))])
    np.testing.assert_array_equal(decoder.launch([Piece(slot, good)]).samples()[0], whole(decoder, good))


def test_a_request_has_an_end(codec, decoder):
    slot = decoder.open()
    decoder._positions[slot] = POSITIONS_MAX - 1
    with pytest.raises(InvalidRequest, match=f"up to {POSITIONS_MAX} frames"):
        decoder.launch([Piece(slot, codes_of(codec, 2))])


def test_an_unknown_dtype_is_refused(codec):
    with pytest.raises(ConfigError, match=r"no dtype 'float23' .did you mean 'float32'"):
        StreamingDecoder(codec, 1, dtype="float23")
