"""Abbreviations, titles, Roman numerals, symbols."""

import pytest

from omnirt.actors.text.words import expand_abbreviations, speak_symbols


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("Dr. Smith", "Doctor Smith"),
        ("Mrs Jones", "Missus Jones"),
        ("at 12 Main St. near St. Mark's", "at 12 Main Street near Saint Mark's"),
        ("e.g. this, i.e. that, etc.", "for example this, that is that, et cetera."),
        ("U.S. and U.K. laws", "U S and U K laws"),
        ("in the U.S.A.", "in the U S A."),
        ("J.R.R. Tolkien", "J R R Tolkien"),
        ("at 5 p.m. sharp", "at 5 p.m. sharp"),
        ("No. 5 and Fig. 2", "number 5 and figure 2"),
        ("No. That is no. I said", "No. That is no. I said"),
        ("#1", "number 1"),
        ("~50", "about 50"),
        ("Chapter IV", "Chapter four"),
        ("World War II", "World War two"),
        ("Henry VIII", "Henry the eighth"),
        ("I think", "I think"),
        ("Smith Inc. grew", "Smith Incorporated grew"),
        ("C# and C", "C sharp and C"),
    ],
)
def test_what_stands_for_a_word_becomes_it(written, spoken):
    assert expand_abbreviations(written) == spoken


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("R&D", "R and D"),
        ("x = y", "x equals y"),
        ("a/b", "a slash b"),
        ("\u03b1 \u2264 \u03a9", "alpha less than or equal to omega"),
        ("\U0001f600", "grinning face"),
        ("\u20ac", "euro"),
        ("#tag", "hashtag tag"),
        ('it\'s (fine), "really" - yes!', 'it\'s (fine), "really" - yes!'),
        ("\u4f60\u597d", "\u4f60\u597d"),
    ],
)
def test_every_sign_is_called_by_its_name(written, spoken):
    assert " ".join(speak_symbols(written).split()) == spoken
