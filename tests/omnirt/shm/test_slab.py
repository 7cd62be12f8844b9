from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from omnirt.shm.slab import Lease, SlabConsumer, SlabProducer, control_bytes

SLOT_BYTES = 128


def make(slots: int) -> tuple[SlabProducer, SlabConsumer]:
    memory = np.zeros(128 + control_bytes(slots) + slots * SLOT_BYTES, np.uint8)
    memory = memory[-memory.ctypes.data % 64 :]
    control = memory[: control_bytes(slots)]
    data = memory[control_bytes(slots) :][: slots * SLOT_BYTES]
    return SlabProducer(control, data, slots), SlabConsumer(control, data, slots)


def fill(producer: SlabProducer, slot: int, value: int) -> None:
    start = slot * producer.slot_bytes
    producer.bytes[start : start + producer.slot_bytes] = bytes([value]) * producer.slot_bytes


class SlabAgainstSets(RuleBasedStateMachine):
    """A slot has one owner at a time, and the one last returned is the next one used."""

    slots = 5

    def __init__(self) -> None:
        super().__init__()
        self.producer, self.consumer = make(self.slots)
        self.free = list(range(self.slots))[::-1]
        self.leases: dict[int, Lease] = {}
        self.number = 0

    @rule()
    def send(self) -> None:
        slot = self.producer.take()
        if not self.free:
            assert slot == -1
            return
        assert slot == self.free.pop()
        assert slot not in self.leases
        self.number += 1
        fill(self.producer, slot, self.number % 256)
        lease = self.consumer.lease(slot, 64 + self.number % 64)
        assert lease.view.nbytes == 64 + self.number % 64
        self.leases[slot] = lease

    @rule()
    def give_up(self) -> None:
        slot = self.producer.take()
        if slot >= 0:
            self.producer.untake(slot)

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def release_any(self, data: st.DataObject) -> None:
        slot = data.draw(st.sampled_from(sorted(self.leases)))
        lease = self.leases.pop(slot)
        assert len(set(lease.view.tolist())) == 1, "nobody wrote into a leased slot"
        lease.release()
        lease.release()
        self.free.append(slot)

    @invariant()
    def counts_agree(self) -> None:
        assert self.producer.used_slots() == len(self.leases) == self.consumer.leased_slots


SlabAgainstSets.TestCase.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
TestSlabAgainstSets = SlabAgainstSets.TestCase


def test_a_lease_is_read_only() -> None:
    producer, consumer = make(2)
    lease = consumer.lease(producer.take(), 10)
    with pytest.raises(TypeError, match="read-only"):
        lease.view[0] = 1
    assert not np.frombuffer(lease.view, np.uint8).flags.writeable


def test_releasing_after_the_link_is_gone_tells_nobody() -> None:
    producer, consumer = make(2)
    slot = producer.take()
    fill(producer, slot, 8)
    lease = consumer.lease(slot, 10)
    consumer.close()
    lease.release()
    assert lease.view.tolist() == [8] * 10
    assert producer.used_slots() == 1


@pytest.mark.parametrize(("slot", "nbytes"), [(-1, 1), (2, 1), (0, SLOT_BYTES + 1), (0, -1)])
def test_a_slot_that_does_not_exist_is_refused(slot: int, nbytes: int) -> None:
    _, consumer = make(2)
    with pytest.raises(IndexError):
        consumer.lease(slot, nbytes)


def test_many_laps_of_the_return_list_keep_every_slot() -> None:
    producer, consumer = make(3)
    for _ in range(100):
        taken = [producer.take() for _ in range(3)]
        assert sorted(taken) == [0, 1, 2]
        for slot in taken:
            consumer.lease(slot, 1).release()
