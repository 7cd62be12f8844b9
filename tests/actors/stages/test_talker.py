"""Text in, codec frames out, with a small random checkpoint: what a request gets, and that nothing else matters."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from omnirt.actors.models.qwen3_tts import random_checkpoint
from omnirt.actors.models.qwen3_tts.voice import SpeakerVoice
from omnirt.actors.stages.talker import LEAD_IN_FRAMES, OVERTAKEN_S, Talker
from omnirt.clock import NS
from omnirt.errors import ConfigError, InvalidRequest
from omnirt.ids import RequestId
from omnirt.runtime.stage import Chunk, Context, Request
from omnirt.wire.payload import Text

CTX = Context("talker", "cpu", 0, 1, lambda text: None)
STEPS_MAX = 400


def talker_of(folder, **options):
    made = Talker(msgspec.convert({"weights": str(folder), "rows": 4, "frames_max": 200, **options}, Talker.Options))
    made.start(CTX)
    return made


@pytest.fixture(scope="module")
def custom_folder(tmp_path_factory):
    return random_checkpoint.write(tmp_path_factory.mktemp("custom"), "custom_voice")


@pytest.fixture(scope="module")
def custom(custom_folder):
    return talker_of(custom_folder)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return talker_of(random_checkpoint.write(tmp_path_factory.mktemp("base"), "base"))


def request(id=1, seed=7, **params):
    return Request(RequestId(id), f"r{id}", seed, {"max_new_tokens": 20, "ignore_eos": True, **params}, 0)


def give(talker, request, text, port="text", close=True):
    payload = Text(text) if port == "text" else text
    talker.admit(CTX, Chunk(request, port, payload, 0))
    if close:
        talker.close(CTX, request)


def spoken(talker, *requests):
    """Chunks of each, until all are over."""
    chunks = {one.id: [] for one in requests}
    running = list(requests)
    for _ in range(STEPS_MAX):
        if not running:
            break
        for emission in talker.step(CTX, running):
            if emission.payload is not None:
                chunks[emission.request.id].append(emission.payload)
            if emission.end:
                running.remove(emission.request)
    assert not running
    for one in requests:
        talker.forget(CTX, one)
    return [chunks[one.id] for one in requests]


def codes_of(chunks):
    return np.concatenate([chunk.codes[chunk.unheard :] for chunk in chunks])


def test_who_began_at_different_times_sends_frames_together_before_long(custom, monkeypatch):
    monkeypatch.setattr("omnirt.actors.stages.talker.monotonic_ns", lambda: 0)
    first, second = (request(id=number, voice="vivian", max_new_tokens=120) for number in (1, 2))
    give(custom, first, "hello there")
    left = {first.id: [], second.id: []}
    for step in range(100):
        if step == 7:
            give(custom, second, "and again")
        for emission in custom.step(CTX, [first, second] if step >= 7 else [first]):
            if emission.payload is not None:
                left[emission.request.id].append(step)
    for one in (first, second):
        custom.forget(CTX, one)
    assert left[first.id] == [0, 2, 6, 14, 30, 46, 62, 78, 94]
    assert left[second.id] == [7, 9, 13, 21, 30, 46, 62, 78, 94]  # the fifth is shorter, for company


def test_a_text_becomes_frames_the_first_of_them_alone(custom):
    one = request(voice="vivian", language="English")
    give(custom, one, "hello there")
    (chunks,) = spoken(custom, one)
    assert len(chunks[0].codes) == 1
    assert codes_of(chunks).shape == (20, custom._speaker.config.books)
    assert one.report["output_tokens"] == 20
    assert one.report["finish_reason"] == "length"


def test_what_is_said_does_not_depend_on_who_else_speaks(custom):
    alone = []
    for at, text in ((1, "hello there"), (2, "a longer text than the other one"), (3, "hm")):
        one = request(at, seed=at)
        give(custom, one, text)
        alone += [codes_of(chunks) for chunks in spoken(custom, one)]
    together = [request(at, seed=at) for at in (1, 2, 3)]
    for one, text in zip(together, ("hello there", "a longer text than the other one", "hm"), strict=True):
        give(custom, one, text)
    for left, right in zip(alone, spoken(custom, *together), strict=True):
        np.testing.assert_array_equal(left, codes_of(right))


@pytest.mark.parametrize(
    "pieces", [["hello there, all of you"], ["hello", " there", ", all of", " you"], list("hello there, all of you")]
)
def test_text_in_pieces_is_spoken_as_text_at_once(custom, pieces):
    whole, cut = request(1, non_streaming_mode=False), request(2, non_streaming_mode=False)
    give(custom, whole, "hello there, all of you")
    expected = codes_of(spoken(custom, whole)[0])
    for piece in pieces:
        give(custom, cut, piece, close=False)
        custom.step(CTX, [cut])  # what comes of it is held by the row and comes with the rest
    custom.close(CTX, cut)
    assert len(expected) == 20
    (chunks,) = spoken(custom, cut)
    got = codes_of(chunks)
    np.testing.assert_array_equal(got, expected[20 - len(got) :])


def test_speech_begins_before_the_text_has_ended(custom):
    one = request(1, non_streaming_mode=False)
    give(custom, one, "the first words of a text", close=False)
    first = [emission for _ in range(3) for emission in custom.step(CTX, [one])]
    assert any(emission.payload is not None for emission in first)
    custom.close(CTX, one)
    spoken(custom, one)


def test_more_text_than_frames_may_come_in_pieces(custom):
    one = request(non_streaming_mode=False, max_new_tokens=5)
    give(custom, one, "hello ", close=False)
    custom.step(CTX, [one])
    for _ in range(20):
        give(custom, one, "hello ", close=False)
    custom.close(CTX, one)
    spoken(custom, one)
    assert (one.report["output_tokens"], one.report["finish_reason"]) == (5, "length")


def test_without_streaming_nothing_is_said_before_the_text_has_ended(custom):
    one = request(1)
    give(custom, one, "the first words of a text", close=False)
    assert custom.step(CTX, [one]) == []
    custom.close(CTX, one)
    assert len(codes_of(spoken(custom, one)[0])) == 20


def test_a_row_that_nobody_reads_stands_still_and_goes_on_where_it_was(custom):
    one, other = request(1, seed=1), request(2, seed=2)
    give(custom, one, "hello there")
    expected = codes_of(spoken(custom, one)[0])
    one = request(1, seed=1)
    give(custom, one, "hello there")
    give(custom, other, "somebody else")
    got = [emission.payload for emission in custom.step(CTX, [one]) if emission.payload is not None]
    for _ in range(5):
        custom.step(CTX, [other])
    got += spoken(custom, one)[0]
    np.testing.assert_array_equal(codes_of(got), expected)
    custom.forget(CTX, other)


def test_cancelled_requests_give_their_rows_back(custom):
    for at in range(12):
        one = request(at)
        give(custom, one, "hello")
        custom.step(CTX, [one])
        custom.forget(CTX, one)
    assert custom._speaker.engine.rows_free == 4


def test_the_figures_say_what_the_engine_did_and_holds(custom):
    before = custom.figures()
    one = request(1)
    give(custom, one, "hello there")
    custom.step(CTX, [one])
    during = custom.figures()
    assert during["rows_used"] == 1
    assert 0 < during["pages_used"] <= during["pages_max"]
    spoken(custom, one)
    after = custom.figures()
    assert after["frames"] == before["frames"] + 20
    assert (after["rows_used"], after["pages_used"]) == (0, 0)


def test_a_request_waits_for_a_row_and_then_speaks(custom):
    many = [request(at, seed=at) for at in range(6)]
    for one in many:
        give(custom, one, "hello there")
    for one, chunks in zip(many, spoken_in_turn(custom, many), strict=True):
        assert len(codes_of(chunks)) == 20, one.id


def test_who_waited_long_for_room_is_not_overtaken_any_more(custom_folder):
    talker = talker_of(custom_folder, frames_max=200, prompt_max=32, cache_gib=0.00016)  # pages for one of full length
    engine = talker._speaker.engine
    first, large, small = request(1, max_new_tokens=60), request(2, max_new_tokens=200), request(3, max_new_tokens=20)
    for one in (first, large, small):
        give(talker, one, "hello there")
        one.state.since_ns -= int(OVERTAKEN_S * NS)
    talker.step(CTX, [small, first, large])
    assert first.state.sequence is not None
    assert small.state.sequence is None, "there is room for it, but the large one waits longer"
    assert engine.fits(20, 20)
    spoken_in_turn(talker, [first, large, small])
    assert [one.report["output_tokens"] for one in (first, large, small)] == [60, 200, 20]


def test_who_waits_for_room_is_overtaken_for_a_while(custom_folder):
    talker = talker_of(custom_folder, frames_max=200, prompt_max=32, cache_gib=0.00016)
    first, large, small = request(1, max_new_tokens=60), request(2, max_new_tokens=200), request(3, max_new_tokens=20)
    for one in (first, large, small):
        give(talker, one, "hello there")
    talker.step(CTX, [first, large, small])
    assert [one.state.sequence is not None for one in (first, large, small)] == [True, False, True]
    spoken_in_turn(talker, [first, large, small])
    assert [one.report["output_tokens"] for one in (first, large, small)] == [60, 200, 20]


def give_often(talker, request, text, times):
    for _ in range(times):
        give(talker, request, text, close=False)


def test_too_much_text_of_one_that_waits_for_room_is_refused_when_it_comes(custom_folder):
    talker = talker_of(custom_folder, rows=1, frames_max=200, prompt_max=40)
    first, second = request(1), request(2, non_streaming_mode=False, max_new_tokens=200)
    give(talker, first, "hello there")
    talker.step(CTX, [first])
    give(talker, second, "hello ", close=False)
    talker.step(CTX, [first, second])
    with pytest.raises(InvalidRequest, match="say it in parts"):
        give_often(talker, second, "hello ", 60)
    assert second.state.prompt is not None


@pytest.mark.parametrize(
    ("text", "instructions", "param"), [("hi", "low " * 40, "instructions"), ("hi " * 40, "", "input")]
)
def test_a_prompt_that_is_too_long_names_what_makes_it_so(custom_folder, text, instructions, param):
    talker = talker_of(custom_folder, prompt_max=40)
    with pytest.raises(InvalidRequest, match="at most") as error:
        give(talker, request(instructions=instructions), text)
    assert error.value.param == param


def test_who_waits_for_room_sleeps_until_there_is_some(custom, monkeypatch):
    woken = []
    monkeypatch.setattr(CTX, "wake", lambda request: woken.append(request.id))
    held = [request(at, seed=at) for at in range(1, 5)]
    for one in held:
        give(custom, one, "hello there")
    custom.step(CTX, held)
    late = request(9, seed=9)
    give(custom, late, "hello there")
    assert custom.step(CTX, [late]) == []
    assert woken == []
    custom.forget(CTX, held[0])
    assert woken == [9]
    assert len(codes_of(spoken_in_turn(custom, [*held[1:], late])[3])) == 20


def test_who_finds_no_room_in_the_step_that_makes_some_is_woken(custom, monkeypatch):
    woken = []
    monkeypatch.setattr(CTX, "wake", lambda request: woken.append(request.id))
    held, late = [request(at, seed=at) for at in range(1, 5)], request(9, seed=9)
    for one in held:
        give(custom, one, "hello there")
    while not held[0].state.sequence or held[0].state.sequence.frames < 19:
        custom.step(CTX, held)
    give(custom, late, "hello there")
    assert any(emission.end for emission in custom.step(CTX, [*held, late]))
    assert late.state.sequence is None
    assert woken == [9]
    for one in [*held, late]:
        custom.forget(CTX, one)


def spoken_in_turn(talker, requests):
    """As `spoken`, and what is over is forgotten at once, as the runtime does it."""
    chunks, running = {one.id: [] for one in requests}, list(requests)
    for _ in range(STEPS_MAX):
        for emission in talker.step(CTX, running) if running else []:
            if emission.payload is not None:
                chunks[emission.request.id].append(emission.payload)
            if emission.end:
                running.remove(emission.request)
                talker.forget(CTX, emission.request)
    assert not running
    return [chunks[one.id] for one in requests]


@pytest.mark.parametrize(
    ("params", "param"),
    [
        ({"voice": "nobody"}, "voice"),
        ({"language": "Klingon"}, "language"),
        ({"temperature": -1}, "temperature"),
        ({"top_k": "many"}, "top_k"),
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"top_p": 0.0}, "top_p"),
        ({"subtalker_top_p": 0.0}, "subtalker_top_p"),
    ],
)
def test_what_is_wrong_is_said_by_name_before_anything_is_spoken(custom, params, param):
    with pytest.raises(InvalidRequest) as error:
        give(custom, request(**params), "hello")
    assert error.value.param == param


def test_a_text_of_more_tokens_than_frames_is_refused(custom):
    with pytest.raises(InvalidRequest) as error:
        give(custom, request(), "x y " * 400)
    assert error.value.param == "input"


def test_a_recorded_voice_leads_the_decoder_in(base):
    config = base._speaker.config
    codes = np.random.default_rng(1).integers(0, config.codes, (LEAD_IN_FRAMES + 9, config.books)).astype(np.int32)
    voice = SpeakerVoice(np.ones(config.backbone.width, np.float32), codes)
    one = request(1, reference=True, ref_text="what was said")
    give(base, one, "hello", close=False)
    assert base.step(CTX, [one]) == []
    give(base, one, voice, port="voice")
    (chunks,) = spoken(base, one)
    assert chunks[0].unheard == LEAD_IN_FRAMES
    np.testing.assert_array_equal(chunks[0].codes[:LEAD_IN_FRAMES], codes[-LEAD_IN_FRAMES:])
    assert all(chunk.unheard == 0 for chunk in chunks[1:])
    assert len(codes_of(chunks)) == 20


def test_a_base_checkpoint_without_a_voice_says_what_it_wants(base):
    with pytest.raises(InvalidRequest, match="recording"):
        give(base, request(), "hello")


def test_the_facts_name_voices_languages_and_parameters(custom, base):
    said = custom.facts()
    assert "vivian" in {voice["id"] for voice in said["voices"]}
    assert "English" in said["languages"]
    assert "ref_audio" not in said["parameters"]
    assert base.facts()["cloning"]
    assert "ref_audio" in base.facts()["parameters"]


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"rows": 0}, "rows"),
        ({"cache_gib": 0}, "cache_gib"),
        ({"chunk_frames": []}, "chunk_frames"),
        ({"weights_bits": 4}, "weights_bits"),
        ({"dtype": "float8"}, "dtype"),
    ],
)
def test_options_that_cannot_be_are_refused_by_key(options, key, tmp_path):
    folder = random_checkpoint.write(tmp_path / "checkpoint", "custom_voice")
    with pytest.raises(ConfigError, match=key):
        talker_of(folder, **options)
