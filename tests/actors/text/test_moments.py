"""Dates and times."""

import pytest

from omnirt.actors.text.moments import speak_moments


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("2024-03-09", "March ninth, twenty twenty-four"),
        ("3/9/2024", "March ninth, twenty twenty-four"),
        ("13/02/99", "February thirteenth, nineteen ninety-nine"),
        ("March 9, 2024", "March ninth, twenty twenty-four"),
        ("Mar. 3-5", "March third to fifth"),
        ("Sept 1st", "September first"),
        ("9 March 2024", "the ninth of March, twenty twenty-four"),
        ("The 4th of July", "The fourth of July"),
        ("March 32", "March 32"),
        ("march 3 miles", "march 3 miles"),
        ("99/99/2024", "99/99/2024"),
        ("9:30PM", "nine thirty P M"),
        ("9.30pm", "nine thirty P M"),
        ("9.30", "9.30"),
        ("7:05 a.m.", "seven oh five A M."),
        ("at 5 p.m. Then", "at five P M. Then"),
        ("at 5 p.m. then", "at five P M then"),
        ("7:00", "seven o'clock"),
        ("21:00", "twenty-one hundred"),
        ("12:05:30", "twelve oh five and thirty seconds"),
        ("1:00:01", "one and one second"),
        ("25:10", "25 to 10"),
        ("10 am", "ten A M"),
        ("13 pm", "13 pm"),
        ("the 1990s", "the nineteen nineties"),
        ("the '80s", "the eighties"),
        ("the 60s", "the sixties"),
        ("2000s", "two thousands"),
        ("after 30s", "after 30s"),
    ],
)
def test_dates_and_times_are_said_as_people_do(written, spoken):
    assert speak_moments(written) == spoken
