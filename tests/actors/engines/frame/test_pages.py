"""The pool of pages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch")

from omnirt.actors.engines.frame.pages import PagePool, Room, pages_for


@given(st.lists(st.integers(-5, 6), max_size=60))
def test_no_page_has_two_owners_and_none_is_lost(wishes):
    pool, owned = PagePool(20), []
    for wish in wishes:
        if 0 < wish <= pool.free:
            owned.append(pool.take(wish))
        elif wish < 0 and owned:
            pool.give(owned.pop(wish % len(owned)))
        taken = [page for pages in owned for page in pages]
        assert len(set(taken)) == len(taken) == pool.total - pool.free
        assert all(0 < page < 20 for page in taken)


def test_low_pages_go_first_and_warm_ones_again():
    pool = PagePool(9)
    first = pool.take(3)
    assert first == [1, 2, 3]
    pool.give(first)
    assert pool.take(4) == [1, 2, 3, 4]


def test_a_page_holds_64_positions():
    assert [pages_for(n) for n in (1, 64, 65, 640)] == [1, 1, 2, 10]


def test_room_is_counted_down_by_rows_and_by_pages():
    room = Room(rows=3, pages=4)
    assert not room.take(5 * 64)
    assert room.take(65), "two pages"
    assert not room.take(129)
    assert room.take(128)
    assert not room.take(1), "a row is free, but no page"
    assert not Room(rows=0, pages=9).take(1)
