"""Slots of the fence page: free, held, and held until every node has let go."""

from __future__ import annotations

import pytest

from omnirt.actors.places import Places
from omnirt.ids import Fence


def test_slots_are_used_in_turn_so_that_each_rests_longest() -> None:
    places = Places(2)
    first = places.take()
    places.give_back(first)
    assert places.take() != first
    assert places.take() == first


def test_a_slot_is_free_again_when_the_last_node_has_confirmed() -> None:
    places = Places(1)
    fence = Fence(places.take(), 5)
    places.close(fence, ["a", "b"])
    places.give_back(fence.slot)
    assert (places.free, places.closing) == (0, 1)
    assert places.confirmed("a", fence)
    assert places.free == 0
    assert places.confirmed("b", fence)
    assert (places.free, places.closing) == (1, 0)


def test_a_slot_that_is_started_again_stays_with_its_request() -> None:
    places = Places(1)
    fence = Fence(places.take(), 5)
    places.close(fence, ["a"])
    assert places.is_closing(fence.slot)
    places.confirmed("a", fence)
    assert not places.is_closing(fence.slot)
    assert places.free == 0
    places.give_back(fence.slot)
    assert places.free == 1


def test_nothing_is_waited_for_when_no_node_holds_it() -> None:
    places = Places(1)
    fence = Fence(places.take(), 5)
    places.close(fence, [])
    places.give_back(fence.slot)
    assert places.free == 1


@pytest.mark.parametrize(("node", "epoch"), [("a", 4), ("b", 5)])
def test_a_confirmation_that_nobody_waits_for_changes_nothing(node: str, epoch: int) -> None:
    places = Places(1)
    fence = Fence(places.take(), 5)
    places.close(fence, ["a"])
    assert not places.confirmed(node, Fence(fence.slot, epoch))
    assert places.is_closing(fence.slot)


def test_a_node_confirms_once() -> None:
    places = Places(1)
    fence = Fence(places.take(), 5)
    places.close(fence, ["a", "b"])
    assert places.confirmed("a", fence)
    assert not places.confirmed("a", fence)


def test_what_a_dead_node_has_not_confirmed_is_known() -> None:
    places = Places(3)
    fences = [Fence(places.take(), 1) for _ in range(3)]
    places.close(fences[0], ["a"])
    places.close(fences[1], ["a", "b"])
    places.close(fences[2], ["b"])
    assert places.awaited_of("a") == fences[:2]
