"""Money, units, fractions, ranges, telephone numbers, plain numbers."""

import pytest

from omnirt.actors.text.amounts import speak_amounts


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("$5.3 billion", "five point three billion dollars"),
        ("$1,234.56", "one thousand two hundred thirty-four dollars and fifty-six cents"),
        ("$1", "one dollar"),
        ("$0.99", "ninety-nine cents"),
        ("\u00a31.01", "one pound and one penny"),
        ("\u20ac3M", "three million euros"),
        ("$10-20", "ten to twenty dollars"),
        ("-$5", "minus five dollars"),
        ("US$7", "seven U S dollars"),
        ("5 USD", "five U S dollars"),
        ("JPY 500", "five hundred yen"),
        ("30\u00a2", "thirty cents"),
        ("$20/hr", "twenty dollars per hour"),
    ],
)
def test_money_is_read_with_its_currency_last(written, spoken):
    assert speak_amounts(written) == spoken


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("3-5 km", "three to five kilometers"),
        ("1 kg", "one kilogram"),
        ("10kg", "ten kilograms"),
        ("a 10-km run", "a ten kilometer run"),
        ("100 km/h", "one hundred kilometers per hour"),
        ("5 m\u00b2", "five square meters"),
        ("16GB at 3.5 GHz", "sixteen gigabytes at three point five gigahertz"),
        ("5 in a row", "five in a row"),
        ("5in", "five inches"),
        ("5'11\"", "five foot eleven"),
        ("-5\u00b0C", "minus five degrees Celsius"),
        ("72 \u00b0F", "seventy-two degrees Fahrenheit"),
        ("1\u00b0", "one degree"),
        ("40-60 C", "forty to sixty C"),
        ("99.9%", "ninety-nine point nine percent"),
        ("3\u20135%", "three to five percent"),
    ],
)
def test_units_follow_the_number_in_the_right_form(written, spoken):
    assert speak_amounts(written) == spoken


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("(555) 123-4567", "five five five, one two three, four five six seven"),
        ("+1 555 123 4567", "plus one, five five five, one two three, four five six seven"),
        ("555-1234", "five five five, one two three four"),
        ("123-45-6789", "one two three, four five, six seven eight nine"),
        ("1/2 and 3/4", "one half and three quarters"),
        ("2 1/2", "two and a half"),
        ("3 / 4", "three over four"),
        ("24/7", "twenty-four seven"),
        ("16:9", "sixteen to nine"),
        ("1990-1995", "nineteen ninety to nineteen ninety-five"),
        ("5 - 3", "five minus three"),
        ("2+2", "two plus two"),
        ("3 * 4", "three times four"),
        ("1st, 22nd, 1,000th", "first, twenty-second, one thousandth"),
        ("in 1984", "in nineteen eighty-four"),
        ("1,984", "one thousand nine hundred eighty-four"),
        ("H100, B2B, 3D", "H one hundred, B two B, three D"),
        ("-0.5", "minus zero point five"),
        ("5 billion", "five billion"),
    ],
)
def test_other_figures_are_read_by_what_they_are(written, spoken):
    assert speak_amounts(written) == spoken
