"""Timestamps and text of a window."""

from omnirt.actors.models.whisper.stretches import read

END, FIRST = 1000, 1100
"""Tokens below END are text; FIRST stands for 0.00 s."""


def at(seconds):
    return FIRST + round(seconds / 0.02)


def reading(*tokens, length_s=10.0):
    return read(tokens, END, FIRST, length_s)


def stretches(*tokens, length_s=10.0):
    return [(round(s.start_s, 2), round(s.stop_s, 2), s.tokens) for s in reading(*tokens, length_s=length_s).stretches]


def test_each_text_between_two_times_is_a_stretch():
    assert stretches(at(0), 1, 2, at(1.2), at(1.8), 3, at(2.6)) == [(0.0, 1.2, (1, 2)), (1.8, 2.6, (3,))]


def test_a_window_that_ends_with_one_time_is_read_up_to_it():
    whole = reading(at(0), 1, at(2.6))
    assert (round(whole.stop_s, 2), whole.is_broken_off) == (2.6, False)


def test_a_window_that_ends_with_two_times_was_broken_off_there():
    whole = reading(at(0), 1, at(2.6), at(2.6))
    assert (round(whole.stop_s, 2), whole.is_broken_off) == (2.6, True)


def test_text_without_its_last_time_goes_on_to_the_end():
    assert stretches(at(1), 1, 2) == [(1.0, 10.0, (1, 2))]
    assert reading(at(1), 1, 2).stop_s == 10.0


def test_text_without_any_time_fills_the_window():
    assert stretches(1, 2) == [(0.0, 10.0, (1, 2))]


def test_no_time_lies_behind_the_sound_and_no_text_begins_there():
    whole = reading(at(0), 1, at(12), at(12), 2, at(14))
    assert [(s.start_s, s.stop_s, s.tokens) for s in whole.stretches] == [(0.0, 10.0, (1,))]
    assert whole.stop_s == 10.0
    assert whole.is_beyond


def test_nothing_is_nothing():
    whole = reading()
    assert (whole.stretches, whole.is_broken_off, whole.is_beyond) == ([], False, False)
    assert not reading(at(0)).is_broken_off


def test_other_marks_are_no_text():
    assert stretches(at(0), END, 1, END + 7, at(1)) == [(0.0, 1.0, (1,))]
