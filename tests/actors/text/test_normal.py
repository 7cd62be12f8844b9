"""The rules together: order, and the promise that nothing is dropped."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnirt.actors.text.normal import normalise


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        (
            "$5.3 billion at 9:30PM, 40-60 C, v1.2.3, a@b.co",
            "five point three billion dollars at nine thirty P M, forty to sixty C, "
            "version one point two point three, A at B dot co",
        ),
        ("Dr. Lee paid $3.50 on Oct. 5, 2024.",
         "Doctor Lee paid three dollars and fifty cents on October fifth, twenty twenty-four."),
        ("What?! Really!!! Wait...", "What? Really! Wait\u2026"),
        ("well-known - yes -- no", "well-known \u2014 yes \u2014 no"),
        ("GPT-4o and COVID-19", "GPT-four o and COVID-nineteen"),
        ("see report_v2.pdf", "see report underscore v two dot pdf"),
        ("50% off!", "fifty percent off!"),
        ("CO2, H\u2082O, C6H12O6 and NO2-free", "C O two, H two O, C six H twelve O six and N O two-free"),
        ("H100, B2B, A4, TOP10", "H one hundred, B two B, A four, TOP ten"),
        ("https://a.b/CO2", "H T T P S, A dot B slash CO two"),
        ("", ""),
        ("   ", ""),
        ("Plain words stay, as they are; truly.", "Plain words stay, as they are; truly."),
    ],
)  # fmt: skip
def test_written_text_becomes_spoken_text(written, spoken):
    assert normalise(written) == spoken


@given(st.text(max_size=120))
@settings(max_examples=300, deadline=None)
def test_any_text_is_taken_and_no_digit_is_left(text):
    assert not re.search(r"\d", normalise(text))


@given(st.lists(st.sampled_from(["apple", "river", "stone", "seven", "window"]), min_size=1, max_size=8),
       st.lists(st.integers(0, 10**9), min_size=8, max_size=8))  # fmt: skip
@settings(max_examples=200, deadline=None)
def test_no_word_is_lost_between_numbers(words, numbers):
    text = " ".join(f"{word} {number}" for word, number in zip(words, numbers, strict=False))
    spoken = normalise(text).split()
    assert [word for word in spoken if word in {"apple", "river", "stone", "window"}] == [
        word for word in words if word != "seven"
    ]


@pytest.mark.parametrize(
    "text", ["1" * 5000, "a@" * 1000, "((((" * 500, "9:" * 800, "1-" * 900, "$" * 999, "v1." * 700]
)
def test_hostile_text_takes_no_more_than_a_moment(text):
    assert isinstance(normalise(text[:230]), str)
