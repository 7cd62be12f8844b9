"""Numbers as words."""

import pytest

from omnirt.actors.text.spoken_numbers import cardinal, digits, number, ordinal, plural, year


@pytest.mark.parametrize(
    ("n", "words"),
    [
        (0, "zero"),
        (7, "seven"),
        (13, "thirteen"),
        (40, "forty"),
        (99, "ninety-nine"),
        (100, "one hundred"),
        (305, "three hundred five"),
        (1000, "one thousand"),
        (1_000_001, "one million one"),
        (12_345, "twelve thousand three hundred forty-five"),
        (-8, "minus eight"),
        (10**33, "one decillion"),
    ],
)
def test_a_cardinal_names_every_group(n, words):
    assert cardinal(n) == words


def test_a_number_beyond_the_words_is_refused():
    with pytest.raises(ValueError, match="too large"):
        cardinal(10**36)


@pytest.mark.parametrize(
    ("n", "words"),
    [(1, "first"), (2, "second"), (12, "twelfth"), (20, "twentieth"), (21, "twenty-first"), (103, "one hundred third")],
)
def test_an_ordinal_changes_only_the_last_word(n, words):
    assert ordinal(n) == words


@pytest.mark.parametrize(
    ("n", "words"),
    [
        (1066, "one thousand sixty-six"),
        (1900, "nineteen hundred"),
        (1905, "nineteen oh five"),
        (1984, "nineteen eighty-four"),
        (2000, "two thousand"),
        (2005, "two thousand five"),
        (2024, "twenty twenty-four"),
    ],
)
def test_a_year_is_read_in_halves_where_people_do(n, words):
    assert year(n) == words


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("1,234.50", "one thousand two hundred thirty-four point five zero"),
        (".5", "point five"),
        ("007", "zero zero seven"),
        ("0", "zero"),
        ("3.0", "three point zero"),
        ("1234567890123456", "one two three four five six seven eight nine zero one two three four five six"),
    ],
)
def test_a_written_number_loses_no_digit(written, words):
    assert number(written) == words


def test_digits_are_read_one_by_one_and_anything_else_is_skipped():
    assert digits("9-1a1") == "nine one one"


@pytest.mark.parametrize(("words", "many"), [("ninety", "nineties"), ("six", "sixes"), ("ten", "tens")])
def test_plurals_follow_the_spelling(words, many):
    assert plural(words) == many
