from __future__ import annotations

import os

import pytest

from omnirt.ids import Fence
from omnirt.shm.fences import FencePage
from omnirt.shm.segment import SegmentRefused


def test_raising_an_epoch_makes_what_carries_the_old_one_stale_in_every_process() -> None:
    head = FencePage.create(8)
    node = FencePage.attach(os.dup(head.fd), 8)
    fence = Fence(3, node.epoch(3))
    assert not node.is_stale(fence)
    assert head.raise_epoch(3) == fence.epoch + 1
    assert node.is_stale(fence)
    assert head.is_stale(fence)
    assert not node.is_stale(Fence(3, fence.epoch + 1))
    head.close()
    node.close()


def test_slots_are_independent_and_epochs_only_rise() -> None:
    page = FencePage.create(600)
    for slot in (0, 1, 599):
        assert [page.raise_epoch(slot) for _ in range(3)] == [1, 2, 3]
    assert page.epoch(2) == page.epoch(598) == 0
    page.close()


def test_a_check_after_close_still_reads_the_page() -> None:
    page = FencePage.create(2)
    page.raise_epoch(1)
    page.close()
    assert page.is_stale(Fence(1, 0))


def test_a_slot_outside_the_page_is_an_error() -> None:
    page = FencePage.create(2)
    with pytest.raises(IndexError):
        page.epoch(2)
    with pytest.raises(IndexError):
        page.raise_epoch(2)
    page.close()


def test_a_page_of_another_size_is_refused() -> None:
    page = FencePage.create(2)
    with pytest.raises(SegmentRefused):
        FencePage.attach(page.fd, 1000)
    page.close()
