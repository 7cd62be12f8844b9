"""The tables hold together."""

import re

from omnirt.actors.text.units import CODES, MONEY, SCALE_LETTERS, UNITS, WORDS_OF_SCALE


def test_every_unit_and_currency_has_a_singular_and_a_plural_of_plain_words():
    names = [*UNITS.values(), *((money.one, money.many) for money in [*MONEY.values(), *CODES.values()])]
    assert all(re.fullmatch(r"[A-Za-z ]+", word) for pair in names for word in pair)


def test_prefixes_make_the_units_one_expects():
    assert UNITS["km"] == ("kilometer", "kilometers")
    assert UNITS["\u00b5s"] == ("microsecond", "microseconds")
    assert UNITS["GHz"] == ("gigahertz", "gigahertz")


def test_scale_letters_stand_for_words_that_are_known():
    assert set(SCALE_LETTERS.values()) <= set(WORDS_OF_SCALE.split("|"))
