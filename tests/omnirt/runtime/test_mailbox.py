"""Mailboxes: control before data, bounds, and the two ways to be full."""

from __future__ import annotations

import pytest

from omnirt.runtime.mailbox import Mailbox, MailboxFull


def test_control_is_read_before_data_that_came_earlier() -> None:
    box = Mailbox(data_max=4)
    box.put_data("d1")
    box.put_control("c1")
    box.put_data("d2")
    box.put_control("c2")
    assert [box.get() for _ in range(len(box))] == ["c1", "c2", "d1", "d2"]


def test_each_lane_keeps_its_order() -> None:
    box = Mailbox(data_max=100)
    for number in range(50):
        box.put_data(number)
    assert [box.get() for _ in range(50)] == list(range(50))


def test_a_full_data_lane_refuses_loudly_and_keeps_what_it_has() -> None:
    box = Mailbox(data_max=2)
    box.put_data(1)
    box.put_data(2)
    with pytest.raises(MailboxFull) as error:
        box.put_data(3)
    assert error.value.code == "mailbox_full"
    assert [box.get(), box.get()] == [1, 2]


def test_a_full_control_lane_refuses_loudly() -> None:
    box = Mailbox(data_max=0, control_max=1)
    box.put_control("a")
    with pytest.raises(MailboxFull):
        box.put_control("b")


def test_an_empty_mailbox_has_nothing_to_give() -> None:
    with pytest.raises(IndexError):
        Mailbox(data_max=1).get()


def test_a_mailbox_without_a_data_lane_takes_control_only() -> None:
    box = Mailbox(data_max=0)
    box.put_control("c")
    with pytest.raises(MailboxFull):
        box.put_data("d")
    assert box.get() == "c"


def test_newest_wins_gives_the_oldest_back_and_counts_it() -> None:
    box = Mailbox(data_max=2, when_full="drop_oldest")
    assert [box.put_data(number) for number in (1, 2, 3, 4)] == [None, None, 1, 2]
    assert box.dropped == 2
    assert [box.get(), box.get()] == [3, 4]
