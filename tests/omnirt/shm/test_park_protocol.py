"""The park protocol, over every interleaving of a small model with store buffers.

The model is the code of `atomics.publish`, `atomics.park` and `RingLink.pump`, one shared access per step. Each side
has a store buffer that drains at any moment: in order ("tso", as x86 does) or in any order that respects release
("relaxed", as arm64 may). The kernel's doorbell takes effect at once and drains nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

RECORDS = 3


class Protocol(NamedTuple):
    """What can be left out, to see that the exploration notices."""

    publisher_fence: bool = True
    parker_fence: bool = True
    parker_rechecks: bool = True
    flag_taken_by_exchange: bool = True
    head_released: bool = True


class Store(NamedTuple):
    word: str
    value: int
    release: bool = False


class World(NamedTuple):
    data: int = 0
    head: int = 0
    waiting: int = 1  # armed from birth, as `RingPair.create` does
    bell: int = 0
    publisher: tuple[str, int] = ("data", 1)  # next step, record being published
    publisher_stores: tuple[Store, ...] = ()
    parker: str = "asleep"
    parker_stores: tuple[Store, ...] = ()
    tail: int = 0


class Torn(Exception):
    pass


def load(world: World, buffer: tuple[Store, ...], word: str) -> int:
    for store in reversed(buffer):
        if store.word == word:
            return store.value
    return getattr(world, word)


def drains(world: World, side: str, relaxed: bool) -> list[World]:
    """The worlds in which one store of this side's buffer has become visible."""
    buffer: tuple[Store, ...] = getattr(world, f"{side}_stores")
    result: list[World] = []
    for index, store in enumerate(buffer):
        first_of_word = all(earlier.word != store.word for earlier in buffer[:index])
        if index == 0 or (relaxed and first_of_word and not store.release):
            rest = buffer[:index] + buffer[index + 1 :]
            result.append(world._replace(**{store.word: store.value, f"{side}_stores": rest}))
    return result


def publisher_steps(world: World, protocol: Protocol) -> list[World]:
    step, record = world.publisher
    stores = world.publisher_stores

    def then(name: str, **changes: object) -> list[World]:
        following = (name, record + 1) if name == "data" else (name, record)
        return [world._replace(publisher=following, **changes)]

    if step == "data":
        if record > RECORDS:
            return []
        return then("head", publisher_stores=(*stores, Store("data", record)))
    if step == "head":
        after = "fence" if protocol.publisher_fence else "look"
        return then(after, publisher_stores=(*stores, Store("head", record, release=protocol.head_released)))
    if step == "fence":
        return [] if stores else then("look")
    if step == "look":
        return then("take" if load(world, stores, "waiting") else "data")
    if step == "take":
        if protocol.flag_taken_by_exchange:
            if stores:
                return []
            return then("ring" if world.waiting else "data", waiting=0)
        return then("ring", publisher_stores=(*stores, Store("waiting", 0)))
    assert step == "ring"
    return then("data", bell=world.bell + 1)


def parker_steps(world: World, protocol: Protocol) -> list[World]:
    stores = world.parker_stores

    def then(name: str, **changes: object) -> list[World]:
        return [world._replace(parker=name, **changes)]

    if world.parker == "asleep":
        return then("read", bell=0) if world.bell else []
    if world.parker == "read":
        head = load(world, stores, "head")
        if head > world.tail:
            if load(world, stores, "data") < head:
                raise Torn
            return then("read", tail=head)
        return then("announce")
    if world.parker == "announce":
        after = "fence" if protocol.parker_fence else "recheck"
        return then(after, parker_stores=(*stores, Store("waiting", 1)))
    if world.parker == "fence":
        return [] if stores else then("recheck")
    if world.parker == "recheck":
        moved = protocol.parker_rechecks and load(world, stores, "head") != world.tail
        return then("withdraw" if moved else "asleep")
    assert world.parker == "withdraw"
    return [] if stores else then("read", waiting=0)


def explore(protocol: Protocol, relaxed: bool) -> tuple[int, list[World]]:
    """Worlds visited, and the final ones (nothing can move any more)."""
    seen = {World()}
    frontier = [World()]
    final: list[World] = []
    while frontier:
        world = frontier.pop()
        following = publisher_steps(world, protocol) + parker_steps(world, protocol)
        following += drains(world, "publisher", relaxed) + drains(world, "parker", relaxed)
        if not following:
            final.append(world)
        for after in following:
            if after not in seen:
                seen.add(after)
                frontier.append(after)
    return len(seen), final


@pytest.mark.parametrize("relaxed", [False, True], ids=["tso", "relaxed"])
def test_in_no_interleaving_does_the_parker_sleep_on_an_unread_record(relaxed: bool) -> None:
    visited, final = explore(Protocol(), relaxed)
    assert visited > 100
    assert final
    assert all(world.tail == RECORDS and world.parker == "asleep" for world in final)


@pytest.mark.parametrize("left_out", ["publisher_fence", "parker_fence", "parker_rechecks", "flag_taken_by_exchange"])
def test_every_part_of_the_protocol_is_needed_already_on_x86(left_out: str) -> None:
    _, final = explore(Protocol()._replace(**{left_out: False}), relaxed=False)
    lost = [world for world in final if world.tail < RECORDS]
    assert lost, f"nothing notices that {left_out} is missing"


def test_without_release_a_relaxed_machine_shows_a_head_before_its_record() -> None:
    with pytest.raises(Torn):
        explore(Protocol(head_released=False), relaxed=True)
    explore(Protocol(head_released=False), relaxed=False)  # x86 keeps stores in order by itself
