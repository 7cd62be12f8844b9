import numpy as np
import pytest

from omnirt.actors.engines.sampling import History, Row, Sampling, choose, uniform
from omnirt.errors import StageFailed

VOCAB = 500


def logits(seed, rows=1, spread=2.0):
    return (np.random.default_rng(seed).standard_normal((rows, VOCAB)) * spread).astype(np.float32)


def row(index=0, history=None, barred=(), **options):
    return Row(Sampling(**options), index, history, barred)


def draws(one, count, **options):
    """How often each token is chosen in `count` draws from one row of logits."""
    rows = [row(index, **options) for index in range(count)]
    chosen = choose(np.repeat(one, count, axis=0), rows)
    return np.bincount([found.token_id for found in chosen], minlength=VOCAB)


def shares(one, *, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0):
    """What the draws should come to, the slow way."""
    scaled = one[0].astype(np.float64) / temperature
    weights = np.exp(scaled - scaled.max())
    weights[weights < min_p] = 0
    if top_k:
        weights[weights < np.sort(weights)[-top_k]] = 0
    weights /= weights.sum()
    order = np.argsort(-weights, kind="stable")
    kept = order[: int((np.cumsum(weights[order]) < top_p).sum()) + 1]
    final = np.zeros(VOCAB)
    final[kept] = weights[kept]
    return final / final.sum()


def test_temperature_zero_takes_the_likeliest():
    table = logits(1, rows=4)
    assert [one.token_id for one in choose(table, [row()] * 4)] == table.argmax(axis=1).tolist()
    assert [one.token_id for one in choose(table, [row(temperature=1e-7)] * 4)] == table.argmax(axis=1).tolist()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 0.6},
        {"top_k": 12},
        {"top_p": 0.8},
        {"top_p": 0.05},
        {"min_p": 0.1},
        {"min_p": 1.0},
        {"temperature": 1.5, "top_k": 60, "top_p": 0.7},
        {"temperature": 0.8, "min_p": 0.02, "top_p": 0.9, "top_k": 100},
    ],
)
def test_tokens_come_as_often_as_their_share_says_and_others_never(options):
    one, count = logits(2), 4000
    expected = shares(one, **options)
    got = draws(one, count, seed=9, **{"temperature": 1.0, **options})
    assert not got[expected == 0].any()
    spread = np.sqrt(count * expected * (1 - expected))
    assert np.all(np.abs(got - count * expected) <= 5 * spread + 1)


def test_the_nucleus_of_equals_is_the_first_ones():
    one = np.zeros((1, VOCAB), np.float32)
    got = draws(one, 2000, temperature=1.0, top_p=0.1)
    assert set(np.flatnonzero(got)) == set(range(50))


def test_a_draw_depends_on_seed_and_index_alone():
    table = logits(3, rows=6)
    rows = [row(i, seed=i // 2, temperature=1.0, top_p=0.95) for i in range(6)]
    together = choose(table, rows)
    assert choose(table[::-1], rows[::-1]) == together[::-1]
    assert [choose(table[i : i + 1], [rows[i]])[0] for i in range(6)] == together


def test_uniform_numbers_are_spread_evenly_and_take_any_integer():
    found = np.array([uniform(seed, index) for seed in (-3, 0, (1 << 70) + 5) for index in range(3000)])
    counts, _ = np.histogram(found, 10, (0.0, 1.0))
    assert found.min() >= 0.0
    assert found.max() < 1.0
    assert np.all(np.abs(counts - 900) < 150)
    assert len(set(found.tolist())) == len(found)


def test_penalties_are_those_of_the_field():
    one = logits(4)
    history = History(VOCAB, [5, 6])
    for token in (6, 8, 8, 8):
        history.note(token)
    wish = Sampling(repetition_penalty=1.5, presence_penalty=0.25, frequency_penalty=0.5)
    got = one[0].copy()
    history.penalise(got, wish)
    expected = one[0].copy()
    for token in (5, 6, 8):
        expected[token] *= 1 / 1.5 if expected[token] > 0 else 1.5
    expected[6] -= 0.25 + 0.5
    expected[8] -= 0.25 + 3 * 0.5
    np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_a_penalty_turns_a_greedy_choice_away_from_what_was_said():
    one = logits(5)
    first, second = np.argsort(-one[0])[:2].tolist()
    history = History(VOCAB, [])
    history.note(first)
    assert choose(one, [row(history=history, presence_penalty=50.0)])[0].token_id == second


def test_barred_tokens_are_not_chosen():
    one = logits(6)
    best = np.argsort(-one[0])[:3].tolist()
    assert choose(one, [row(barred=best[:2])])[0].token_id == best[2]
    assert not draws(one, 500, temperature=1.0, barred=best)[best].any()


def test_logprobs_are_of_the_models_own_distribution():
    one = logits(7)
    history = History(VOCAB, [3])
    found = choose(one, [row(history=history, temperature=0.5, repetition_penalty=2.0, logprobs=4, seed=2)])[0]
    exact = one[0].astype(np.float64)
    exact -= np.log(np.exp(exact).sum())
    assert found.logprob == pytest.approx(exact[found.token_id], abs=1e-5)
    order = np.argsort(-exact)[:4]
    assert [token for token, _ in found.top] == order.tolist()
    assert [value for _, value in found.top] == pytest.approx(exact[order].tolist(), abs=1e-5)
    assert choose(one, [row(logprobs=0)])[0].top == ()
    assert choose(one, [row()])[0].logprob is None


def test_logits_stay_as_they_are():
    table = logits(8, rows=2)
    before = table.copy()
    choose(table, [row(temperature=0.7, top_p=0.9, top_k=5, logprobs=3), row(barred=[1])])
    assert np.array_equal(table, before)


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_logits_that_are_no_numbers_are_an_error(broken):
    table = logits(9, rows=2)
    table[1, 17] = broken
    with pytest.raises(StageFailed, match="finite"):
        choose(table, [row(), row(temperature=1.0)])
