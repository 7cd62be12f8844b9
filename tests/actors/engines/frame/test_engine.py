"""The frame engine over the plain step: who gets which frames, when, and whose rows and pages they are."""

import random

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from omnirt.actors.engines.frame.engine import FrameFigures, FrameSampling  # noqa: E402
from omnirt.errors import InvalidRequest, Overloaded  # noqa: E402

FORCED = FrameSampling(frames_max=9, ignore_stop=True, seed=4)


@pytest.fixture(scope="module")
def alone(request):
    """alone(make, sampling, prompt, text) -> frames and reason of a sequence that has an engine to itself."""
    known = {}

    def run(made, finish, key, sampling, prompt, text):
        if key not in known:
            engine, _ = made(buckets=(4,), ahead=0)
            known[key] = finish(engine, [engine.add(prompt, sampling, text)])[0]
        return known[key]

    return run


def test_a_sequence_makes_its_frames_and_gives_everything_back(made, inputs, finish):
    engine, step = made()
    sequence = engine.add(*with_sampling(inputs(1, 5, 3), FORCED))
    assert (engine.rows_free, engine.pages_free) == (3, 7)
    frames, reason = finish(engine, [sequence])[0]
    assert len(frames) == sequence.frames == 9
    assert reason == sequence.finish_reason == "length"
    assert (engine.rows_free, engine.pages_free) == (4, 8)
    assert step.calls[0] == ("prefill", [(0, 0, 4)])
    assert engine.figures == FrameFigures(frames=9, launches=9, prefilled=4, rows_used=0, pages_used=0)


def test_the_stop_code_ends_a_sequence_and_is_not_a_frame(made, inputs, finish):
    engine, step = made(ahead=2)
    free = FrameSampling(frames_max=16, temperature=1.5, top_k=0, frames_min=3)
    got = {}
    for forced in (False, True):
        samplings = [with_(free, seed=seed, ignore_stop=forced) for seed in range(4)]
        got[forced] = finish(engine, [engine.add(*with_sampling(inputs(1, 5, 3), one)) for one in samplings])
    assert {reason for _, reason in got[False]} == {"stop", "length"}
    for (frames, _), (long, reason) in zip(got[False], got[True], strict=True):
        assert reason == "length"
        assert len(long) == 16
        assert 3 <= len(frames) <= 16
        assert long[: len(frames)] == frames
        assert all(frame[0] != step.shape.stop_code for frame in frames + long)


def test_a_prompt_of_one_row_needs_no_prefill(made, inputs, finish):
    engine, step = made()
    finish(engine, [engine.add(*with_sampling(inputs(1, 1, 1), FORCED))])
    assert {call[0] for call in step.calls} == {"run"}


def test_prefill_gives_the_oldest_half_and_the_shortest_the_rest(made, inputs):
    engine, step = made(prefill_max=16)
    for seed, positions in enumerate((60, 40, 4)):
        engine.add(*with_sampling(inputs(seed, positions, 2), FORCED))
    engine.step(list(engine._joined))
    assert step.calls[0] == ("prefill", [(0, 0, 8), (1, 0, 5), (2, 0, 3)])
    assert step.calls[1] == ("run", 4, [0, 0, 1, 0])  # the short one speaks at once
    engine.step(list(engine._joined))
    assert step.calls[2] == ("prefill", [(0, 8, 8), (1, 5, 8)])


def test_the_bucket_covers_the_highest_row_that_takes_part(made, inputs):
    engine, step = made(ahead=0)
    a, b, c = (engine.add(*with_sampling(inputs(seed, 1, 2), FORCED)) for seed in range(3))
    for given, call in (
        ([a, b, c], ("run", 4, [1, 1, 1, 0])),
        ([b], ("run", 2, [0, 1])),
        ([a], ("run", 1, [1])),
        ([c, a], ("run", 4, [1, 0, 1, 0])),
    ):
        engine.step(given)
        assert step.calls[-1] == call


def test_the_host_reads_behind_but_a_first_frame_before_it_launches_more(made, inputs):
    engine, step = made(ahead=2)
    a = engine.add(*with_sampling(inputs(1, 1, 2), with_(FORCED, frames_max=20)))
    assert [counts(engine, [a]) for _ in range(6)] == [{}, {a: 1}, {}, {}, {a: 1}, {a: 1}]
    b = engine.add(*with_sampling(inputs(2, 1, 2), FORCED))
    assert counts(engine, [a, b]) == {a: 1}
    before = len(step.calls)
    assert counts(engine, [a, b]) == {a: 2, b: 1}  # what came before the first frame comes with it
    assert len(step.calls) == before
    assert counts(engine, [a, b]) == {}


def test_one_that_joins_many_does_not_make_them_wait(made, inputs):
    engine, _ = made(ahead=2, rows=16, buckets=(16,))
    many = [engine.add(*with_sampling(inputs(seed, 1, 2), FORCED)) for seed in range(9)]
    assert counts(engine, many) == {}
    assert counts(engine, many) == dict.fromkeys(many, 1)  # a first frame of all of them
    late = engine.add(*with_sampling(inputs(20, 1, 2), FORCED))
    both = [*many, late]
    assert [counts(engine, both) for _ in range(2)] == [{}, {}]
    assert counts(engine, both) == dict.fromkeys(both, 1)


def test_what_is_outstanding_is_collected_when_nothing_can_be_launched(made, inputs):
    engine, _ = made(ahead=2)
    a = engine.add(*with_sampling(inputs(1, 1, 2), with_(FORCED, frames_max=3)))
    assert [counts(engine, [a]) for _ in range(5)] == [{}, {a: 1}, {}, {}, {a: 2}]
    assert a.finish_reason == "length"


def test_a_sequence_that_is_not_given_stands_still_and_loses_nothing(made, inputs, finish):
    engine, _ = made(ahead=2)
    a, b = (engine.add(*with_sampling(inputs(seed, 20, 3), with_(FORCED, frames_max=12))) for seed in (1, 2))
    together = {a: [], b: []}
    for _ in range(5):
        for produced in engine.step([a, b]):
            together[produced.sequence] += produced.codes.tolist()
    launched = a.launched
    for _ in range(20):
        for produced in engine.step([b]):
            assert produced.sequence is b
            together[b] += produced.codes.tolist()
    assert a.launched == launched < 12
    assert b.finish_reason == "length"
    frames, reason = finish(engine, [a])[0]
    again, _ = made(buckets=(4,))
    wanted = finish(again, [again.add(*with_sampling(inputs(1, 20, 3), with_(FORCED, frames_max=12)))])[0]
    assert (together[a] + frames, reason) == wanted


def test_the_last_frames_of_one_that_is_not_given_are_kept_for_it(made, inputs):
    engine, _ = made(ahead=2)
    a, b = (engine.add(*with_sampling(inputs(seed, 1, 3), with_(FORCED, frames_max=3))) for seed in (1, 2))
    for _ in range(4):
        engine.step([a, b])
    assert [counts(engine, [b]) for _ in range(2)] == [{b: 2}, {}]
    assert engine.rows_free == 4
    [produced] = engine.step([a])
    assert (produced.codes.shape, produced.finish_reason) == ((2, 4), "length")
    assert engine.step([a]) == []


def test_frames_of_a_removed_row_never_reach_its_next_owner(made, inputs, finish, alone):
    engine, _ = made(ahead=2)
    prompt, text = inputs(1, 1, 3)
    a = engine.add(prompt, FORCED, text)
    engine.step([a])
    engine.step([a])
    engine.step([a])  # two frames are on their way
    engine.remove(a)
    engine.remove(a)
    b = engine.add(*with_sampling(inputs(2, 1, 3), FORCED))
    assert b.row == a.row
    assert set(b.pages) == set(a.pages)
    got = finish(engine, [b])[0]
    assert got == alone(made, finish, "b", FORCED, *inputs(2, 1, 3))
    assert a.frames == 1
    assert a.finish_reason == ""


def test_a_removed_row_writes_into_nobodys_pages(made, inputs, finish, alone):
    engine, _ = made(ahead=0)
    low, high = (engine.add(*with_sampling(inputs(seed, 9, 3), FORCED)) for seed in (1, 3))
    engine.step([low, high])
    engine.remove(low)
    taken = engine.add(*with_sampling(inputs(4, 9, 3), FORCED))  # row 0 again, and its pages
    engine.remove(taken)
    other = engine.add(*with_sampling(inputs(2, 70, 3), FORCED))
    engine.remove(high)
    third = engine.add(*with_sampling(inputs(5, 60, 3), FORCED))
    got = finish(engine, [other, third])
    assert got[0] == alone(made, finish, "other", FORCED, *inputs(2, 70, 3))
    assert got[1] == alone(made, finish, "third", FORCED, *inputs(5, 60, 3))


@pytest.mark.parametrize("ahead", [0, 2])
@pytest.mark.parametrize("seed", range(4))
def test_codes_do_not_depend_on_who_else_is_there(made, inputs, finish, alone, soak, seed, ahead):
    """Joins, leaves, pauses, refusals at random; each sequence has the frames it has alone."""
    for world in range(seed * 100, seed * 100 + (10 if soak else 2)):
        chance = random.Random(world)
        engine, _ = made(ahead=ahead, pages=1 + chance.randint(2, 8))
        running, waiting = {}, [chance.randrange(8) for _ in range(10)]
        for _ in range(2000):
            if waiting and chance.random() < 0.5:
                prompt, sampling, text = request(inputs, waiting[-1])
                if engine.fits(len(prompt), sampling.frames_max):
                    running[engine.add(prompt, sampling, text)] = (waiting.pop(), [])
                else:
                    with pytest.raises(Overloaded):
                        engine.add(prompt, sampling, text)
            for produced in engine.step([s for s in running if chance.random() < 0.8]):
                name, frames = running[produced.sequence]
                frames += produced.codes.tolist()
                if produced.finish_reason:
                    prompt, sampling, text = request(inputs, name)
                    wanted = alone(made, finish, name, sampling, prompt, text)
                    assert (frames, produced.finish_reason) == wanted, f"world {world}"
                    del running[produced.sequence]
            if running and chance.random() < 0.03:
                gone = chance.choice(list(running))
                engine.remove(gone)
                waiting.append(running.pop(gone)[0])
            if not running and not waiting:
                break
        assert not running
        assert (engine.rows_free, engine.pages_free) == (4, engine._pages.total)


def request(inputs, name):
    chance = random.Random(name)
    prompt, text = inputs(name, chance.choice((1, 3, 20, 64, 80)), chance.randint(1, 6))
    sampling = FrameSampling(
        seed=name,
        frames_max=chance.randint(1, 24),
        temperature=chance.choice((0.0, 0.9, 1.4)),
        top_k=chance.choice((0, 10)),
        top_p=chance.choice((1.0, 0.8)),
        inner_temperature=chance.choice((0.0, 0.9)),
        repetition_penalty=chance.choice((1.0, 1.3)),
        ignore_stop=chance.random() < 0.3,
    )
    return prompt, sampling, text


@pytest.mark.parametrize("ahead", [0, 2])
def test_text_that_comes_early_enough_is_text_that_was_there(made, inputs, finish, ahead):
    prompt, text = inputs(7, 12, 8)
    engine, _ = made(ahead=ahead)
    wanted = finish(engine, [engine.add(prompt, with_(FORCED, frames_max=12), text)])[0]
    sequence = engine.add(prompt, with_(FORCED, frames_max=12), text[:2], text_open=True)
    frames = take(engine, sequence, 1)
    engine.extend(sequence, text[2:3], last=False)
    frames += take(engine, sequence, 1)
    engine.extend(sequence, text[3:], last=True)
    rest, reason = finish(engine, [sequence])[0]
    assert (frames + rest, reason) == wanted


@pytest.mark.parametrize("ahead", [0, 2])
def test_a_sequence_without_text_waits_for_more(made, inputs, finish, ahead):
    prompt, text = inputs(7, 12, 8)
    engine, step = made(ahead=ahead)
    wanted = finish(engine, [engine.add(prompt, with_(FORCED, frames_max=12), text)])[0]
    sequence = engine.add(prompt, with_(FORCED, frames_max=12), text[:0], text_open=True)
    mate = engine.add(*with_sampling(inputs(8, 3, 2), with_(FORCED, frames_max=60)))
    assert not sequence.waits_for_text  # there is a prompt to prefill
    frames = []
    for upto in range(len(text)):
        frames += take(engine, sequence, 6, mate)
        assert len(frames) == upto
        assert sequence.waits_for_text
        engine.extend(sequence, text[upto : upto + 1], last=upto == len(text) - 1)
        assert not sequence.waits_for_text
    rest, reason = finish(engine, [sequence])[0]
    assert (frames + rest, reason) == wanted
    calls = len(step.calls)
    engine.extend(sequence, text, last=True)  # over: nobody listens
    assert len(step.calls) == calls


def test_text_that_no_frame_can_come_to_is_let_go_of(made, inputs, finish):
    prompt, text = inputs(7, 12, 8)
    engine, _ = made()
    wanted = finish(engine, [engine.add(prompt, with_(FORCED, frames_max=4), text)])[0]
    sequence = engine.add(prompt, with_(FORCED, frames_max=4), text[:2], text_open=True)
    for at in range(2, len(text)):
        engine.extend(sequence, text[at : at + 1], last=False)
    engine.extend(sequence, text[:0], last=True)
    assert finish(engine, [sequence])[0] == wanted


def test_text_is_refused_when_a_row_cannot_hold_it(made, inputs):
    engine, _ = made(lines=12, row_pages=2)
    prompt, text = inputs(1, 2, 30)
    with pytest.raises(InvalidRequest, match="30 lines, a row holds 12"):
        engine.add(prompt, with_(FORCED, frames_max=30), text)
    with pytest.raises(InvalidRequest, match="30 lines"):
        engine.fits(len(prompt), 30, len(text))
    sequence = engine.add(prompt, with_(FORCED, frames_max=30), text[:12], text_open=True)
    with pytest.raises(InvalidRequest, match="13 lines"):
        engine.extend(sequence, text[12:13], last=True)
    assert sequence.text_open
    engine.add(prompt, with_(FORCED, frames_max=12), text)  # no frame comes to the thirteenth
    assert (engine.rows_free, engine.pages_free) == (2, 6)


def test_what_can_never_be_is_refused_and_what_cannot_be_now_is_told_apart(made, inputs):
    engine, _ = made(rows=4, row_pages=2, pages=4)
    text = inputs(1, 1, 1)[1]
    for positions, frames, param in ((120, 9, "frames_max"), (128, 1, "input"), (0, 1, "input")):
        with pytest.raises(InvalidRequest) as failure:
            engine.add(inputs(1, positions, 1)[0], with_(FORCED, frames_max=frames), text)
        assert failure.value.param == param
        with pytest.raises(InvalidRequest):
            engine.fits(positions, frames)
    assert engine.fits(119, 9)
    first = engine.add(inputs(1, 119, 1)[0], FORCED, text)
    assert engine.pages_free == 1
    assert engine.fits(55, 9)
    assert not engine.fits(56, 9)
    with pytest.raises(Overloaded, match="pages"):
        engine.add(inputs(1, 56, 1)[0], FORCED, text)
    engine.remove(first)
    for _ in range(3):
        engine.add(inputs(1, 2, 1)[0], FORCED, text)
    with pytest.raises(Overloaded, match="pages"):
        engine.add(inputs(1, 2, 1)[0], FORCED, text)
    with pytest.raises(InvalidRequest, match="no line"):
        engine.add(inputs(1, 2, 1)[0], FORCED, text[:0])
    with pytest.raises(InvalidRequest, match="top_p"):
        engine.add(inputs(1, 2, 1)[0], with_(FORCED, top_p=0.0), text)


def test_all_rows_taken_is_overload(made, inputs):
    engine, _ = made()
    for _ in range(4):
        engine.add(*with_sampling(inputs(1, 2, 1), FORCED))
    assert not engine.fits(2, 9)
    with pytest.raises(Overloaded, match="rows"):
        engine.add(*with_sampling(inputs(1, 2, 1), FORCED))


@pytest.mark.parametrize("where", ["prefill", "run"])
def test_a_step_that_raises_can_be_made_again(made, inputs, finish, where):
    engine, step = made(ahead=1)
    wanted = finish(engine, [engine.add(*with_sampling(inputs(seed, 30, 3), FORCED)) for seed in (1, 2)])
    sequences = [engine.add(*with_sampling(inputs(seed, 30, 3), FORCED)) for seed in (1, 2)]
    got = {s: [] for s in sequences}
    for turn in range(60):
        step.fail = where if turn % 3 == 1 else ""
        left = [s for s in sequences if not s.finish_reason or s.last_unsaid]
        try:
            for produced in engine.step(left):
                got[produced.sequence] += produced.codes.tolist()
        except RuntimeError:
            assert step.fail
    assert [(got[s], s.finish_reason) for s in sequences] == wanted


def test_only_what_changed_is_sent(made, inputs, monkeypatch):
    from omnirt.actors.engines.frame.settings import RowSettings

    sent, send = [], RowSettings.send
    monkeypatch.setattr(RowSettings, "send", lambda self: (sent.extend(self._changed), send(self)))
    engine, step = made(ahead=0)
    a = engine.add(*with_sampling(inputs(1, 1, 3), with_(FORCED, frames_max=60)))
    engine.step([a])
    sent.clear()
    for _ in range(5):
        engine.step([a])
    assert not sent
    b = engine.add(*with_sampling(inputs(2, 1, 3), with_(FORCED, frames_max=60)))
    engine.step([a, b])
    assert {"active", "lines", "tables"} < set(sent)
    assert len(sent) <= 13
    sent.clear()
    engine.step([a])
    assert sent == ["active"]
    assert step.state.active.tolist() == [1, 0, 0, 0, 0]
    engine.remove(b)
    c = engine.add(*with_sampling(inputs(3, 1, 3), with_(FORCED, frames_max=60)))
    sent.clear()
    engine.step([a, c])
    assert sorted(sent) == ["active", "tables"], "it draws as the one before it in its row"


def test_a_row_begins_as_its_new_owner_says_whatever_the_ones_before_it_left(made, inputs, finish):
    engine, _ = made(ahead=1)
    wanted = finish(engine, [engine.add(*with_sampling(inputs(1, 20, 3), FORCED))])
    for _ in range(3):  # some that go on, some that are gone before anything was computed for them
        left = [engine.add(*with_sampling(inputs(seed, 9, 5), FORCED)) for seed in (5, 6)]
        engine.step(left[:1])
        engine.step(left[:1])
        never = engine.add(*with_sampling(inputs(7, 30, 5), FORCED))
        for sequence in (*left, never):
            engine.remove(sequence)
    row = engine.add(*with_sampling(inputs(1, 20, 3), FORCED))
    assert finish(engine, [row]) == wanted
    assert engine.rows_free == engine.rows_max


def test_those_that_join_together_speak_as_each_would_alone(made, inputs, finish):
    alone = []
    for seed in (1, 2, 3):
        engine, _ = made(ahead=0)
        alone += finish(engine, [engine.add(*with_sampling(inputs(seed, 10 * seed, seed), FORCED))])
    engine, step = made(ahead=0)
    together = [engine.add(*with_sampling(inputs(seed, 10 * seed, seed), FORCED)) for seed in (1, 2, 3)]
    assert not step.state.positions.any(), "nothing is written before the step"
    assert finish(engine, together) == alone


def counts(engine, sequences):
    return {produced.sequence: len(produced.codes) for produced in engine.step(sequences)}


def take(engine, sequence, steps, *mates):
    """Its frames of so many steps."""
    produced = [one for _ in range(steps) for one in engine.step([sequence, *mates]) if one.sequence is sequence]
    return np.concatenate([one.codes for one in produced]).tolist() if produced else []


def with_(sampling, **changes):
    import msgspec

    return msgspec.structs.replace(sampling, **changes)


def with_sampling(prompt_and_text, sampling):
    return prompt_and_text[0], sampling, prompt_and_text[1]
