from serve_round import SPREAD, round_of


def test_the_same_seed_gives_the_same_round():
    assert round_of(1, 10, 8, 48, 200) == round_of(1, 10, 8, 48, 200)
    assert round_of(1, 10, 8, 48, 200) != round_of(2, 10, 8, 48, 200)


def test_lengths_and_pauses_are_spread_within_their_bounds():
    questions = round_of(1, 200, 8, 48, 200).questions
    lengths = {question.tokens for question in questions}
    assert 48 * (1 - SPREAD) <= min(lengths) < 40
    assert 56 < max(lengths) <= 48 * (1 + SPREAD)
    assert all(0 <= question.think_ns <= 200_000_000 for question in questions)
