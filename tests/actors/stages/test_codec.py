"""Codec frames in, samples out, with a small random decoder."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from omnirt.actors.models.qwen3_tts import random_checkpoint
from omnirt.actors.stages.codec import Codec
from omnirt.errors import ConfigError
from omnirt.ids import RequestId
from omnirt.runtime.stage import Chunk, Context, Request
from omnirt.wire.payload import CodecFrames

CTX = Context("decoder", "cpu", 0, 1, lambda text: None)
STEPS_MAX = 200


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return random_checkpoint.write(tmp_path_factory.mktemp("custom"), "custom_voice")


def codec_of(folder, **options):
    made = Codec(msgspec.convert({"weights": str(folder), "rows": 4, **options}, Codec.Options))
    made.start(CTX)
    return made


@pytest.fixture(scope="module")
def codec(folder):
    return codec_of(folder)


def request(at=1):
    return Request(RequestId(at), f"r{at}", 1, {}, 0)


def frames(codec, count, seed):
    shape = codec._decoder.shape
    return np.random.default_rng(seed).integers(0, shape.codes, (count, shape.books)).astype(np.int32)


def heard(codec, chunks_of):
    """request -> samples; each step brings a chunk of every request that has one left."""
    out = {one.id: [] for one in chunks_of}
    left = {one: list(chunks) for one, chunks in chunks_of.items()}
    running = list(chunks_of)
    for _ in range(STEPS_MAX):
        for one in running:
            if left[one]:
                codec.admit(CTX, Chunk(one, "frames", left[one].pop(0), 0))
                if not left[one]:
                    codec.close(CTX, one)
        for emission in codec.step(CTX, running):
            if emission.payload is not None:
                out[emission.request.id].append(emission.payload.samples)
            if emission.end:
                running.remove(emission.request)
                codec.forget(CTX, emission.request)
        if not running:
            return {key: np.concatenate([np.zeros(0, np.int16), *parts]) for key, parts in out.items()}
    raise AssertionError("it never ended")


def cut(codes, *sizes):
    at, chunks = 0, []
    for size in sizes:
        chunks.append(CodecFrames(codes[at : at + size]))
        at += size
    return [*chunks, CodecFrames(codes[at:])]


def test_however_the_frames_are_cut_the_samples_are_those_of_one_piece(codec):
    codes = frames(codec, 21, 1)
    whole = heard(codec, {request(): [CodecFrames(codes)]})[1]
    assert len(whole) == 21 * codec._decoder.samples_per_frame
    pieces = heard(codec, {request(): cut(codes, 1, 2, 4, 8)})[1]
    assert np.abs(pieces.astype(int) - whole.astype(int)).max() <= 1


def test_requests_in_one_call_do_not_hear_each_other(codec):
    one, other = frames(codec, 12, 2), frames(codec, 9, 3)
    alone = heard(codec, {request(1): cut(one, 1, 3)})[1]
    both = heard(codec, {request(1): cut(one, 1, 3), request(2): cut(other, 5)})
    assert np.abs(both[1].astype(int) - alone.astype(int)).max() <= 1
    assert len(both[2]) == 9 * codec._decoder.samples_per_frame


def test_frames_that_lead_in_are_not_heard_but_shape_what_follows(codec):
    codes = frames(codec, 20, 4)
    whole = heard(codec, {request(): [CodecFrames(codes)]})[1]
    rest = heard(codec, {request(): [CodecFrames(codes[:14], unheard=12), CodecFrames(codes[14:])]})[1]
    expected = whole[12 * codec._decoder.samples_per_frame :]
    assert np.abs(rest.astype(int) - expected.astype(int)).max() <= 1
    cold = heard(codec, {request(): [CodecFrames(codes[12:])]})[1]
    assert np.abs(cold.astype(int) - expected.astype(int)).max() > 1


def test_what_many_requests_begin_with_is_decoded_once(codec, monkeypatch):
    lead, rest = frames(codec, 12, 8), frames(codec, 5, 9)
    chunks = [CodecFrames(np.concatenate([lead, rest[:2]]), unheard=12), CodecFrames(rest[2:])]
    first = heard(codec, {request(1): chunks})[1]
    decoded = []
    launch = codec._decoder.launch
    monkeypatch.setattr(
        codec._decoder, "launch", lambda pieces: decoded.append(sum(len(p.codes) for p in pieces)) or launch(pieces)
    )
    again = heard(codec, {request(2): chunks, request(3): chunks})
    assert sum(decoded) == 10
    for other in again.values():
        assert np.abs(other.astype(int) - first.astype(int)).max() <= 1


def test_no_more_beginnings_are_kept_than_the_option_says(folder):
    codec = codec_of(folder, lead_ins=2)
    for at in range(5):
        heard(codec, {request(at): [CodecFrames(frames(codec, 4, at), unheard=3)]})
    assert len(codec._lead_ins) == 2


def test_a_request_without_frames_ends_without_sound(codec):
    one = request()
    codec.close(CTX, one)
    (emission,) = codec.step(CTX, [one])
    assert emission.end
    assert emission.payload is None
    codec.forget(CTX, one)


def test_a_slot_is_free_again_for_the_next_request_which_hears_nothing_of_the_last(codec):
    codes = frames(codec, 5, 5)
    first = heard(codec, {request(1): [CodecFrames(codes)]})[1]
    for at in range(2, 9):
        one = request(at)
        codec.admit(CTX, Chunk(one, "frames", CodecFrames(frames(codec, 3, at)), 0))
        codec.step(CTX, [one])
        codec.forget(CTX, one)
    np.testing.assert_array_equal(heard(codec, {request(9): [CodecFrames(codes)]})[9], first)


def test_frames_of_more_requests_than_there_are_slots_wait_for_one(folder, codec):
    small = codec_of(folder, rows=2)
    many = {request(at): cut(frames(codec, 12, at), 1, 5) for at in range(1, 7)}
    together = heard(small, many)
    for at in range(1, 7):
        alone = heard(codec, {request(at): [CodecFrames(frames(codec, 12, at))]})[at]
        assert np.abs(together[at].astype(int) - alone.astype(int)).max() <= 1
    assert small._decoder.slots_free == 2


def test_a_slot_is_free_once_all_is_computed_though_the_request_is_still_there(codec):
    one = request()
    codec.admit(CTX, Chunk(one, "frames", CodecFrames(frames(codec, 3, 1)), 0))
    assert codec._decoder.slots_free == 4
    codec.close(CTX, one)
    while not any(emission.end for emission in codec.step(CTX, [one])):
        assert codec._decoder.slots_free == 3
    assert codec._decoder.slots_free == 4
    codec.forget(CTX, one)
    assert codec._decoder.slots_free == 4


def test_a_cancelled_request_does_not_disturb_the_others_of_its_call(codec):
    gone, stays = request(1), request(2)
    codes = frames(codec, 6, 6)
    alone = heard(codec, {request(3): [CodecFrames(codes)]})[3]
    codec.admit(CTX, Chunk(gone, "frames", CodecFrames(frames(codec, 6, 7)), 0))
    codec.admit(CTX, Chunk(stays, "frames", CodecFrames(codes), 0))
    codec.close(CTX, stays)
    got = [emission.payload for emission in codec.step(CTX, [gone, stays]) if emission.request is stays]
    codec.forget(CTX, gone)
    while not codec._of(stays).is_over:
        got += [emission.payload for emission in codec.step(CTX, [stays])]
    codec.forget(CTX, stays)
    samples = np.concatenate([payload.samples for payload in got if payload is not None])
    assert np.abs(samples.astype(int) - alone.astype(int)).max() <= 1


def test_options_that_cannot_be_are_refused_by_key(folder):
    with pytest.raises(ConfigError, match="rows"):
        codec_of(folder, rows=0)
    with pytest.raises(ConfigError, match="dtype"):
        codec_of(folder, dtype="float8")
