"""The first half of the voice: rows, clauses, parameters."""

import numpy as np
import pytest

from omnirt.actors.models.hibari.frames import BLOCK_FRAMES, FRAMES_PER_S, AcousticFrames
from omnirt.actors.stages.acoustic import PHONEMES_MAX, Acoustic, portions
from omnirt.errors import InvalidRequest
from omnirt.ids import RequestId
from omnirt.runtime.stage import Chunk, Context, NoOptions, Request
from omnirt.wire.payload import Text

CTX = Context("acoustic", "cpu", 0, 1, lambda text: None)
STORY = "It rained all day long, and we stayed at home. Nobody minded. The soup was hot."


@pytest.fixture(scope="module")
def acoustic():
    stage = Acoustic(NoOptions())
    stage.start(CTX)
    return stage


def request(id=1, **params):
    return Request(RequestId(id), f"r{id}", 1, params, 0)


def admit(acoustic, request, *pieces, close=True):
    for seq, piece in enumerate(pieces):
        acoustic.admit(CTX, Chunk(request, "text", Text(piece), seq))
    if close:
        acoustic.close(CTX, request)
    return request


def run(acoustic, *rows):
    """Step until every row has ended: the payloads of each, and the order in which rows spoke."""
    spoken, order, alive = {row.id: [] for row in rows}, [], list(rows)
    for _ in range(500):
        for emission in acoustic.step(CTX, alive):
            if emission.payload is not None:
                spoken[emission.request.id].append(emission.payload)
                order += [emission.request.id] if order[-1:] != [emission.request.id] else []
            if emission.end:
                alive.remove(emission.request)
        if not alive:
            return spoken, order
    raise AssertionError("never ended")


def frames(payloads):
    return sum(len(payload.f0) for payload in payloads)


def clauses(payloads):
    return sum(int(payload.last.sum()) for payload in payloads)


def same(one, other):
    names = AcousticFrames.__struct_fields__
    return len(one) == len(other) and all(
        np.array_equal(getattr(a, name), getattr(b, name)) for a, b in zip(one, other, strict=True) for name in names
    )


def test_each_clause_is_marked_and_cut_into_bounded_blocks(acoustic):
    spoken, _ = run(acoustic, admit(acoustic, request(), STORY))
    assert clauses(spoken[1]) == 4
    assert max(len(payload.f0) for payload in spoken[1]) == BLOCK_FRAMES
    leads = np.concatenate([payload.lead for payload in spoken[1]])
    assert leads[leads >= 0].tolist() == [0, 3840, 9120, 9120]


def test_text_in_pieces_gives_the_frames_of_the_whole_text(acoustic):
    whole, _ = run(acoustic, admit(acoustic, request(), STORY))
    pieces, _ = run(
        acoustic, admit(acoustic, request(), *STORY.split(" ")[:1], *(f" {w}" for w in STORY.split(" ")[1:]))
    )
    assert same(whole[1], pieces[1])


def test_speech_begins_before_the_text_is_complete(acoustic):
    mine = admit(acoustic, request(), "It rained all day. Nobody minded", close=False)
    emissions = acoustic.step(CTX, [mine])
    assert frames([emission.payload for emission in emissions]) > 50
    assert not any(emission.end for emission in emissions)
    assert acoustic.step(CTX, [mine]) == []
    acoustic.close(CTX, mine)
    assert acoustic.step(CTX, [mine])[-1].end


def test_rows_take_turns_clause_by_clause_and_a_late_one_is_first(acoustic):
    long = admit(acoustic, request(1), STORY)
    acoustic.step(CTX, [long])
    short = admit(acoustic, request(2), "Hello.")
    _, order = run(acoustic, long, short)
    assert order == [2, 1]


def test_a_clause_of_many_figures_takes_several_steps(acoustic):
    figures = admit(acoustic, request(1), "987,654,321.123 " * 10)
    steps = [acoustic.step(CTX, [figures]) for _ in range(3)]
    assert all(0 < frames([emission.payload for emission in step]) < 40 * FRAMES_PER_S for step in steps)
    assert not steps[1][-1].end


def test_a_row_that_waits_its_turn_asks_to_be_called_again(acoustic):
    rows = [admit(acoustic, request(number), "Hello there.") for number in (1, 2)]
    waiting = [emission for emission in acoustic.step(CTX, rows) if emission.payload is None]
    assert [emission.request.id for emission in waiting] == [2]


def test_company_in_a_batch_changes_nothing(acoustic):
    alone, _ = run(acoustic, admit(acoustic, request(1), STORY))
    together, _ = run(
        acoustic,
        admit(acoustic, request(2), "Quite another text, of $5."),
        admit(acoustic, request(1), STORY),
        admit(acoustic, request(3, speed=2.0), STORY),
    )
    assert same(alone[1], together[1])


@pytest.mark.parametrize("text", ["a", "I", "5", "Hi", "x!", "\U0001f600"])
def test_one_character_or_word_is_heard(acoustic, text):
    spoken, _ = run(acoustic, admit(acoustic, request(), text))
    assert 20 < frames(spoken[1]) < 2 * FRAMES_PER_S
    assert max(payload.lr.max() for payload in spoken[1]) > 0


@pytest.mark.parametrize("text", ["...", "?", " ", "\u2014", ""])
def test_a_text_of_marks_alone_is_a_short_silence(acoustic, text):
    spoken, _ = run(acoustic, admit(acoustic, request(), text))
    assert frames(spoken[1]) == 16
    assert max(payload.lr.max() for payload in spoken[1]) < -20


def test_a_script_that_cannot_be_read_is_an_error_and_not_a_silent_answer(acoustic):
    with pytest.raises(InvalidRequest, match="reads English") as caught:
        run(acoustic, admit(acoustic, request(), "\u4f60\u597d\u3002"))
    assert caught.value.param == "input"


def test_an_unreadable_row_leaves_its_companions_as_they_were(acoustic):
    bad, good = admit(acoustic, request(1), "\u4f60\u597d"), admit(acoustic, request(2), "Hello.")
    acoustic.step(CTX, [bad])
    with pytest.raises(InvalidRequest):
        acoustic.step(CTX, [bad, good])
    spoken, _ = run(acoustic, good)
    alone, _ = run(acoustic, admit(acoustic, request(2), "Hello."))
    assert same(spoken[2], alone[2])


def test_figures_are_spoken_and_with_normalize_off_still_read(acoustic):
    on, _ = run(acoustic, admit(acoustic, request(), "It costs $45.50 today."))
    words, _ = run(acoustic, admit(acoustic, request(), "It costs forty-five dollars and fifty cents today."))
    off, _ = run(acoustic, admit(acoustic, request(normalize=False), "It costs $45.50 today."))
    assert same(on[1], words[1])
    assert frames(off[1]) > 100


def test_code_is_announced_and_with_normalize_off_reaches_the_voice(acoustic):
    text = "Try this:\n```\nprint(one)\n```\nThat is all."
    on, _ = run(acoustic, admit(acoustic, request(), *text))
    words, _ = run(acoustic, admit(acoustic, request(), "Try this:\nCode.\nThat is all."))
    off, _ = run(acoustic, admit(acoustic, request(normalize=False), *text))
    assert same(on[1], words[1])
    assert frames(off[1]) > frames(on[1])


@pytest.mark.parametrize("speed", [0.25, 0.24999, 0, -1, 4.01, "fast", None, True, float("nan")])
def test_a_speed_outside_the_range_is_refused_by_name(acoustic, speed):
    if speed == 0.25:
        admit(acoustic, request(speed=speed), "Hi.")
        return
    with pytest.raises(InvalidRequest) as caught:
        admit(acoustic, request(speed=speed), "Hi.")
    assert caught.value.param == "speed"


def test_an_unknown_voice_is_refused_by_name(acoustic):
    with pytest.raises(InvalidRequest, match="choose heart") as caught:
        admit(acoustic, request(voice="nobody"), "Hi.")
    assert caught.value.param == "voice"


@pytest.mark.parametrize("speed", [0.25, 0.5, 0.9, 1.1, 2.0, 4.0])
def test_at_any_speed_a_clause_takes_its_time_divided_by_it(acoustic, speed):
    normal, changed = (
        run(acoustic, admit(acoustic, request(speed=value), "Nobody minded."))[0][1] for value in (1.0, speed)
    )
    shorten = changed[0].shorten[0]
    assert frames(changed) / shorten == pytest.approx(frames(normal) / speed)
    assert 0.45 <= shorten <= 4.0
    assert normal[0].shorten[0] == 1.0


def test_five_thousand_characters_of_numbered_sentences_are_all_spoken(acoustic):
    text = " ".join(f"Sentence number {n} is here." for n in range(1, 178))
    assert len(text) > 4900
    reads = []
    read, acoustic._read = acoustic._read, lambda text: reads.append(text) or "a."
    try:
        run(acoustic, admit(acoustic, request(), text))
    finally:
        acoustic._read = read
    assert len(reads) == text.count("Sentence")
    assert reads[99] == "Sentence number one hundred is here."


def test_too_many_phonemes_are_cut_at_the_strongest_mark_in_reach():
    assert portions("a" * 150 + ", " + "b" * 200 + ".") == ["a" * 150 + ",", "b" * 200 + "."]
    assert [len(part) for part in portions("a" * 700)] == [PHONEMES_MAX, PHONEMES_MAX, 100]
    assert portions("") == []


def test_the_stage_says_what_the_gateway_needs(acoustic):
    facts = acoustic.facts()
    assert facts["voices"][0]["id"] == facts["default_voice"] == "heart"
    assert facts["sample_rate"] == 24_000
    assert "speed" in facts["parameters"]


def test_a_forgotten_request_keeps_nothing(acoustic):
    mine = admit(acoustic, request(), STORY)
    acoustic.forget(CTX, mine)
    assert mine.state is None


@pytest.mark.parametrize("value", ["no", 0, 1.5])
def test_normalize_is_true_or_false(acoustic, value):
    with pytest.raises(InvalidRequest) as refused:
        admit(acoustic, request(normalize=value), "Hi.")
    assert refused.value.param == "normalize"
