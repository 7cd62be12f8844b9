import random
import subprocess
import sys

import pytest

from omnirt.actors.engines.language import LanguageEngine, Sampling
from omnirt.errors import ConfigError, InvalidRequest, Overloaded

EOS = 7


def ids(seed, count):
    return random.Random(f"prompt/{seed}").choices(range(10, 200), k=count)


def run(engine, sequence, *, steps_max=1000):
    """Alone to its end: (tokens, logprobs)."""
    produced = []
    for _ in range(steps_max):
        if sequence.state == "over":
            break
        produced += engine.step([sequence])
    assert sequence.state == "over"
    return [one.token_id for one in produced], [one.logprob for one in produced]


def answer(engine, prompt, sampling):
    return run(engine, engine.add(prompt, sampling))


def sampling(seed, **options):
    chance = random.Random(f"sampling/{seed}")
    kinds = [
        {},
        {"temperature": 0.9, "seed": seed},
        {"temperature": 1.2, "top_p": 0.9, "top_k": 20, "seed": seed},
        {"temperature": 0.7, "min_p": 0.05, "repetition_penalty": 1.3, "seed": seed},
        {"frequency_penalty": 0.5, "presence_penalty": 0.3},
    ]
    return Sampling(**{"max_tokens": chance.randrange(1, 40), "logprobs": 0, **chance.choice(kinds), **options})


# ---------------------------------------------------------------- what a sequence gets does not depend on the others


@pytest.mark.parametrize("seed", range(3))
def test_joins_and_leaves_at_random_give_every_sequence_what_it_gets_alone(load, seed):
    alone = load(cache_blocks=0)
    wishes = [(ids(i % 5, 1 + 37 * i % 190), sampling(100 * seed + i)) for i in range(14)]
    expected = [answer(alone, *wish) for wish in wishes]
    engine, chance = load(cache_blocks=20), random.Random(seed)
    waiting, live, got = list(range(len(wishes))), {}, {i: [] for i in range(len(wishes))}
    removed = set()
    while waiting or live:
        if waiting and engine.rows_free and chance.random() < 0.5:
            number = waiting.pop(0)
            live[engine.add(*wishes[number])] = number
        for sequence in [s for s in live if chance.random() < 0.01]:
            removed.add(live.pop(sequence))
            engine.remove(sequence)
        for one in engine.step([s for s in live if chance.random() < 0.8]):  # the others hold no credit
            got[live[one.sequence]].append((one.token_id, one.logprob))
            if one.finish_reason:
                del live[one.sequence]
    assert engine.rows_free == engine.rows_max
    for number, (tokens, logprobs) in enumerate(expected):
        whole = list(zip(tokens, logprobs, strict=True))
        assert got[number] == (whole[: len(got[number])] if number in removed else whole), number
    assert len(removed) < len(wishes)


def test_rows_that_are_not_asked_for_do_not_move(load):
    engine = load()
    one, other = engine.add(ids(1, 5), Sampling(max_tokens=9)), engine.add(ids(2, 5), Sampling(max_tokens=9))
    for _ in range(4):
        assert {p.sequence for p in engine.step([one])} == {one}
    assert (one.completion_tokens, other.completion_tokens) == (4, 0)


def test_a_seed_gives_the_same_answer_again_and_another_seed_another_one(load):
    engine = load()
    prompt, wish = ids(3, 20), {"temperature": 1.0, "max_tokens": 30, "ignore_eos": True}
    first = answer(engine, prompt, Sampling(seed=5, **wish))
    assert answer(engine, prompt, Sampling(seed=5, **wish)) == first
    assert answer(engine, prompt, Sampling(seed=6, **wish)) != first


# ---------------------------------------------------------------- prefill


def test_a_prompt_within_the_budget_gives_its_first_token_within_two_steps(load):
    engine = load()
    running = [engine.add(ids(i, 3), Sampling(ignore_eos=True)) for i in range(2)]
    long = engine.add(ids(8, 390), Sampling(ignore_eos=True))
    for _ in range(3):
        engine.step([*running, long])
    short = engine.add(ids(9, 48), Sampling(ignore_eos=True))
    for _ in range(2):
        engine.step([*running, long, short])
    assert short.completion_tokens >= 1
    assert long.completion_tokens == 0


def test_a_long_prompt_holds_no_running_row_up_and_gets_on_itself(load):
    engine = load()
    row = engine.add(ids(1, 4), Sampling(ignore_eos=True))
    engine.step([row])
    long = engine.add(ids(2, 385), Sampling(ignore_eos=True))
    steps = 0
    while not long.completion_tokens:
        produced = engine.step([row, long])
        assert [p.sequence for p in produced if p.sequence is row] == [row]
        steps += 1
    assert steps == -(-385 // 48)
    assert row.completion_tokens == steps + 1


def test_the_oldest_prompt_gets_half_of_each_step_whoever_comes_later(load):
    engine = load(cache_blocks=0)
    long = engine.add(ids(2, 240), Sampling(ignore_eos=True))
    steps = 0
    while not long.completion_tokens:
        short = engine.add(ids(100 + steps, 48), Sampling(max_tokens=1))
        engine.step([long, short])
        engine.remove(short)
        steps += 1
    assert steps == 240 // 24


def test_answers_do_not_depend_on_how_prompts_are_cut(load):
    prompt, wish = ids(4, 150), Sampling(temperature=0.8, seed=1, max_tokens=20, logprobs=0)
    answers = [answer(load(prefill_tokens=budget), prompt, wish) for budget in (1, 17, 64, 300)]
    assert answers[1:] == answers[:-1]


def test_answers_do_not_depend_on_the_number_of_threads(checkpoint):
    prompt, wish = ids(4, 150), Sampling(temperature=0.8, seed=1, max_tokens=20, logprobs=0)
    answers = [answer(LanguageEngine.load(checkpoint, threads=threads), prompt, wish) for threads in (1, 2, 3)]
    assert answers[1:] == answers[:-1]


# ---------------------------------------------------------------- the prompt cache


def test_an_answer_is_the_same_with_and_without_a_cached_prompt(load):
    engine, bare = load(), load(cache_blocks=0)
    prompt, wish = ids(5, 100), Sampling(temperature=0.8, seed=3, max_tokens=25, logprobs=2)
    for expected in (0, 96, 96):
        sequence = engine.add(prompt, wish)
        assert run(engine, sequence) == answer(bare, prompt, wish)
        assert sequence.cached_tokens == expected


def test_the_last_token_of_a_prompt_is_always_computed(load):
    engine = load()
    for expected in (0, 80):
        sequence = engine.add(ids(5, 96), Sampling(max_tokens=1))
        run(engine, sequence)
        assert sequence.cached_tokens == expected


def test_the_next_turn_finds_the_answer_of_the_one_before(load):
    engine, bare = load(), load(cache_blocks=0)
    first = engine.add(ids(6, 40), Sampling(max_tokens=40, ignore_eos=True))
    run(engine, first)
    second = engine.add([*first.tokens, *ids(7, 10)], Sampling(max_tokens=20, logprobs=0))
    assert run(engine, second) == answer(bare, [*first.tokens, *ids(7, 10)], Sampling(max_tokens=20, logprobs=0))
    assert second.cached_tokens == 64  # of 79 tokens that were computed


def test_prompts_that_differ_early_share_nothing_later(load):
    engine = load()
    tail = ids(8, 60)
    run(engine, engine.add([*ids(1, 16), *tail], Sampling(max_tokens=1)))
    other = engine.add([*ids(2, 16), *tail], Sampling(max_tokens=1))
    run(engine, other)
    assert other.cached_tokens == 0


# ---------------------------------------------------------------- how answers end


def stopper(engine):
    """A prompt, and the third token of its answer, which is not among the first two."""
    for seed in range(50):
        prompt = ids(seed, 12)
        tokens, _ = answer(engine, prompt, Sampling(max_tokens=6, ignore_eos=True))
        if tokens[2] not in tokens[:2]:
            return prompt, tokens
    raise AssertionError("no such prompt")


def test_stop_ids_end_an_answer_and_count(load):
    engine = load()
    prompt, tokens = stopper(engine)
    sequence = engine.add(prompt, Sampling(max_tokens=6, ignore_eos=True, stop_ids=(tokens[2],)))
    got, _ = run(engine, sequence)
    assert got == tokens[:3]
    assert (sequence.finish_reason, sequence.completion_tokens) == ("stop", 3)


def test_the_models_own_end_ends_an_answer_unless_ignored(load):
    engine = load()
    prompt, tokens = stopper(engine)
    engine.eos_ids = (tokens[2],)
    assert answer(engine, prompt, Sampling(max_tokens=6))[0] == tokens[:3]
    assert answer(engine, prompt, Sampling(max_tokens=6, ignore_eos=True))[0] == tokens


def test_no_stop_id_is_chosen_before_min_tokens(load):
    engine = load()
    prompt, tokens = stopper(engine)
    wish = Sampling(max_tokens=6, min_tokens=4, ignore_eos=True, stop_ids=(tokens[2],))
    got, _ = answer(engine, prompt, wish)
    assert tokens[2] not in got[:4]
    assert len(got) >= 4


def test_max_tokens_and_the_context_end_an_answer_by_length(load):
    engine = load()
    short = engine.add(ids(1, 5), Sampling(max_tokens=3, ignore_eos=True))
    run(engine, short)
    assert (short.finish_reason, short.completion_tokens) == ("length", 3)
    full = engine.add(ids(1, 395), Sampling(max_tokens=50, ignore_eos=True))
    run(engine, full)
    assert (full.finish_reason, full.completion_tokens, len(full.tokens)) == ("length", 5, engine.context)


def test_a_removed_sequence_gives_its_slot_back_once_and_moves_no_more(load):
    engine = load(rows_max=1)
    sequence = engine.add(ids(1, 5), Sampling())
    engine.step([sequence])
    engine.remove(sequence)
    engine.remove(sequence)
    assert (sequence.state, sequence.finish_reason, engine.rows_free) == ("over", "", 1)
    assert engine.step([sequence]) == []


# ---------------------------------------------------------------- what is refused


def test_what_cannot_be_answered_is_refused_with_the_field_to_blame(load):
    engine = load()
    for prompt in ([], ids(1, 400), [3, 200], [-1]):
        with pytest.raises(InvalidRequest) as refused:
            engine.add(prompt, Sampling())
        assert refused.value.param == "prompt"
    with pytest.raises(InvalidRequest) as refused:
        engine.add([1], Sampling(stop_ids=(200,)))
    assert refused.value.param == "stop_token_ids"
    assert engine.rows_free == engine.rows_max


def test_no_more_sequences_than_rows_are_taken(load):
    engine = load(rows_max=2)
    first = engine.add([1], Sampling(max_tokens=1))
    engine.add([1], Sampling())
    with pytest.raises(Overloaded):
        engine.add([1], Sampling())
    run(engine, first)
    engine.add([1], Sampling())


def test_options_that_make_no_sense_are_refused(checkpoint):
    for options in ({"dtype": "float23"}, {"rows_max": 0}, {"context_max": 401}, {"prefill_tokens": 0}):
        with pytest.raises(ConfigError, match=next(iter(options)).split("_")[0]):
            LanguageEngine.load(checkpoint, **options)


# ---------------------------------------------------------------- when a step fails


@pytest.mark.parametrize("after", [False, True])
def test_a_step_that_raises_has_moved_nothing(load, monkeypatch, after):
    engine, bare = load(), load(cache_blocks=0)
    wishes = [(ids(i, 30 + 20 * i), Sampling(temperature=0.9, seed=i, max_tokens=12)) for i in range(3)]
    expected = [answer(bare, *wish)[0] for wish in wishes]
    sequences = [engine.add(*wish) for wish in wishes]
    whole, calls = engine._decoder.run, []

    def fails_often(pieces, logits):
        calls.append(1)
        if after:
            whole(pieces, logits)
        if len(calls) % 3 == 0:
            raise RuntimeError("planted")
        whole(pieces, logits)

    monkeypatch.setattr(engine._decoder, "run", fails_often)
    while any(sequence.state != "over" for sequence in sequences):
        try:
            engine.step(sequences)
        except RuntimeError:
            continue
    assert [s.tokens[s.prompt_tokens :] for s in sequences] == expected


def test_a_cpu_with_the_kernel_needs_no_torch(checkpoint):
    code = f"""
import sys
from pathlib import Path
from omnirt.actors.engines.language import LanguageEngine
LanguageEngine.load(Path({str(checkpoint)!r}))
print([name for name in ("torch", "transformers", "safetensors") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.strip() == "[]"
