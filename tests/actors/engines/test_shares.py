from __future__ import annotations

from omnirt.actors.engines.shares import shares


def shared(most: int, *lengths: int) -> list[int]:
    left = dict(enumerate(lengths))
    found = shares(list(left), left.__getitem__, most)
    return [found.get(at, 0) for at in left]


def test_all_of_it_when_it_fits():
    assert shared(100, 10, 20, 30) == [10, 20, 30]


def test_the_oldest_has_half_and_the_shortest_come_next():
    assert shared(100, 500, 90, 10) == [50, 40, 10]


def test_what_the_others_leave_goes_to_the_oldest():
    assert shared(100, 500, 10) == [90, 10]


def test_nobody_gets_more_than_is_left_of_it_and_nothing_is_given_to_nobody():
    assert shared(7, 1, 1, 1) == [1, 1, 1]
    assert shares([], len, 10) == {}


def test_one_position_goes_to_the_oldest():
    assert shared(1, 5, 1) == [1, 0]
