from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import deque

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from omnirt.shm import atomics
from omnirt.shm.atomics import CONTROL_BYTES
from omnirt.shm.ring import BATCH, Consumer, Producer, StaleRecord, body_at
from omnirt.shm.segment import Segment

GENERATION = 0x1234_5678_9ABC_DEF1


def make(capacity: int, segment: Segment | None = None, generation: int = GENERATION) -> tuple[Producer, Consumer]:
    memory = segment.array if segment else np.zeros(4096 + capacity, np.uint8)
    start = -memory.ctypes.data % 64
    control = memory[start : start + CONTROL_BYTES]
    data = memory[start + CONTROL_BYTES : start + CONTROL_BYTES + capacity]
    return Producer(control, data, generation), Consumer(control, data, generation)


def push(producer: Producer, head: bytes, body: bytes = b"") -> bool:
    at = producer.reserve(len(head), len(body))
    if at < 0:
        return False
    producer.bytes[at : at + len(head)] = head
    start = body_at(at, len(head))
    producer.bytes[start : start + len(body)] = body
    producer.publish()
    return True


def read(consumer: Consumer) -> list[tuple[bytes, bytes]]:
    count = consumer.scan()
    found: list[tuple[bytes, bytes]] = []
    for at, size, body, nbytes, slot, tail in consumer.described(count) if count else ():
        assert slot == -1
        found.append((bytes(consumer.bytes[at : at + size]), bytes(consumer.bytes[body : body + nbytes])))
        consumer.advance(tail)
    return found


class RingAgainstDeque(RuleBasedStateMachine):
    """Any sequence of operations on a small ring gives what a queue gives."""

    capacity = 1024

    def __init__(self) -> None:
        super().__init__()
        self.producer, self.consumer = make(self.capacity)
        self.model: deque[tuple[bytes, bytes]] = deque()
        self.number = 0

    @rule(head=st.integers(0, 400), body=st.integers(0, 300))
    def push(self, head: int, body: int) -> None:
        self.number += 1
        record = bytes([self.number % 251]) * head, bytes([self.number % 241]) * body
        if push(self.producer, *record):
            self.model.append(record)
        else:
            need = 32 + head + 64 + body + 64
            assert self.producer.used_bytes() + 2 * need > self.capacity, "refused although there was room"

    @rule(head=st.integers(0, 200))
    def reserve_and_give_up(self, head: int) -> None:
        at = self.producer.reserve(head)
        if at >= 0:
            self.producer.bytes[at : at + head] = b"\xff" * head

    @rule()
    def read_all(self) -> None:
        while found := read(self.consumer):
            for record in found:
                assert record == self.model.popleft()
        assert not self.model

    @rule()
    def look_without_taking(self) -> None:
        assert self.consumer.scan() == len(self.model)
        assert self.consumer.scan() == len(self.model)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def take_some(self, data: st.DataObject) -> None:
        count = self.consumer.scan()
        some = data.draw(st.integers(1, count))
        for _ in range(some):
            self.model.popleft()
        self.consumer.advance(list(self.consumer.described(count))[some - 1][-1])

    @rule(size=st.sampled_from([8, 24, 64]), count=st.integers(0, 20))
    def push_many(self, size: int, count: int) -> None:
        rows = (np.arange(self.number, self.number + count) % 256).astype(np.uint8)[:, None].repeat(size, 1)
        self.number += count
        done = self.producer.push_many(rows)
        self.model.extend((row.tobytes(), b"") for row in rows[:done])

    @rule(size=st.sampled_from([8, 24, 64]), count=st.integers(1, 40))
    def pop_many(self, size: int, count: int) -> None:
        into = np.zeros((count, size), np.uint8)
        done = self.consumer.pop_many(into)
        for row in into[:done]:
            assert (row.tobytes(), b"") == self.model.popleft()
        if done < count and self.model:
            head, body = self.model[0]
            assert len(head) != size or body

    @invariant()
    def used_is_bounded(self) -> None:
        assert 0 <= self.producer.used_bytes() <= self.capacity
        assert self.producer.used_bytes() >= 64 * len(self.model)


RingAgainstDeque.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestRingAgainstDeque = RingAgainstDeque.TestCase


@settings(max_examples=60, deadline=None)
@given(sizes=st.lists(st.integers(0, 300), min_size=1, max_size=60), capacity=st.sampled_from([1024, 1088, 4096 - 64]))
def test_any_sizes_through_any_capacity_arrive_in_order_and_whole(sizes: list[int], capacity: int) -> None:
    producer, consumer = make(capacity)
    for number, size in enumerate(sizes):
        record = number.to_bytes(4, "little") + bytes([number]) * size
        assert producer.push(record) is not None
        assert consumer.pop() == record
    assert consumer.pop() is None


def test_the_largest_record_fits_an_empty_ring_at_every_position() -> None:
    producer, consumer = make(1024)
    largest = producer.record_bytes_max()
    for _ in range(64):
        assert producer.push(bytes(largest)) is not None
        assert consumer.pop() == bytes(largest)
        assert producer.push(b"x") is not None  # move the place where the next one starts
        consumer.pop()


def test_a_full_ring_refuses_and_accepts_again_after_a_read() -> None:
    producer, consumer = make(1024)
    pushed = 0
    while producer.push(b"x" * 30) is not None:
        pushed += 1
    assert pushed == 1024 // 64
    assert consumer.pop() == b"x" * 30
    assert producer.push(b"y" * 30) is not None
    assert producer.push(b"z") is None


def test_a_scan_describes_at_most_one_batch() -> None:
    producer, consumer = make(64 * (BATCH + 10))
    for number in range(BATCH + 10):
        producer.push(bytes([number]))
    assert consumer.scan() == BATCH
    assert [len(read(consumer)) for _ in range(3)] == [BATCH, 10, 0]


def test_a_parked_consumer_is_rung_for_once_per_burst() -> None:
    producer, consumer = make(1024)
    assert producer.push(b"a") is False, "nobody is parked"
    assert not consumer.park(), "a record came in between"
    consumer.pop()
    assert consumer.park()
    assert producer.push(b"b") is True
    assert producer.push(b"c") is False, "already rung"
    assert read(consumer) == [(b"b", b""), (b"c", b"")]
    assert consumer.park()
    rows = np.zeros((3, 8), np.uint8)
    assert producer.push_many(rows) == 3
    assert producer.must_ring()
    assert not producer.must_ring()


def test_a_record_of_another_generation_is_refused() -> None:
    memory = Segment.create(3 * 4096)
    producer, _ = make(2048, memory, generation=2)
    _, consumer = make(2048, memory, generation=1)
    producer.push(b"from the future")
    with pytest.raises(StaleRecord):
        consumer.scan()
    with pytest.raises(StaleRecord):
        consumer.pop()
    with pytest.raises(StaleRecord):
        consumer.pop_many(np.zeros((1, 8), np.uint8))
    memory.close()


def test_records_before_a_stale_one_are_still_delivered() -> None:
    producer, consumer = make(1024)
    producer.push(b"good")
    producer.push(b"bad")
    producer.bytes[64] ^= 1  # its tag
    assert read(consumer) == [(b"good", b"")]
    with pytest.raises(StaleRecord):
        consumer.scan()


@pytest.mark.parametrize(("offset", "value"), [(8, 1 << 40), (16, -5), (16, 1 << 40), (8, 1)])
def test_lengths_that_lead_outside_the_ring_are_refused(offset: int, value: int) -> None:
    producer, consumer = make(1024)
    push(producer, b"head", b"body")
    producer.bytes[offset : offset + 8] = value.to_bytes(8, "little", signed=True)
    with pytest.raises(StaleRecord):
        consumer.scan()


def test_an_impossible_head_is_refused() -> None:
    producer, consumer = make(1024)
    push(producer, b"x")
    atomics.store_release(consumer._control.ctypes.data + atomics.HEAD, 1 << 40)
    with pytest.raises(StaleRecord):
        consumer.scan()


CHILD = """
import os, sys
import numpy as np
from omnirt.shm.atomics import CONTROL_BYTES
from omnirt.shm.ring import Producer
from omnirt.shm.segment import Segment
memory = Segment.attach({fd}, {nbytes}).array
producer = Producer(memory[:CONTROL_BYTES], memory[CONTROL_BYTES:CONTROL_BYTES + {capacity}], {generation})
{work}
"""


def child(segment: Segment, capacity: int, work: str) -> subprocess.Popen[bytes]:
    code = CHILD.format(fd=segment.fd, nbytes=segment.nbytes, capacity=capacity, generation=GENERATION, work=work)
    return subprocess.Popen([sys.executable, "-c", code], pass_fds=(segment.fd,), stdin=subprocess.PIPE)


@pytest.mark.kill
def test_a_producer_killed_between_reserve_and_publish_leaves_nothing_behind() -> None:
    capacity = 4096
    segment = Segment.create(2 * 4096)
    _, consumer = make(capacity, segment)
    work = """
producer.push(b"whole")
at = producer.reserve(100)
producer.bytes[at:at + 50] = b"h" * 50
os.kill(os.getpid(), 9)
"""
    process = child(segment, capacity, work)
    assert process.wait(60) == -signal.SIGKILL
    process.communicate()
    assert read(consumer) == [(b"whole", b"")]
    assert read(consumer) == []
    assert consumer.park(), "the words are as if the second record had never been begun"
    segment.close()


@pytest.mark.kill
def test_between_two_processes_nothing_is_lost_reordered_or_torn() -> None:
    capacity, records = 8192, 20_000
    segment = Segment.create(3 * 4096)
    _, consumer = make(capacity, segment)
    work = f"""
for number in range({records}):
    size = number * 7919 % 600
    head, body = number.to_bytes(8, "little"), bytes([number % 256]) * size
    while (at := producer.reserve(8, size)) < 0:
        os.sched_yield()
    producer.bytes[at:at + 8] = head
    start = (at + 8 + 63) // 64 * 64
    producer.bytes[start:start + size] = body
    producer.publish()
sys.stdin.read()
"""
    process = child(segment, capacity, work)
    number = 0
    while number < records:
        found = read(consumer)
        if not found:
            assert process.poll() is None, "the producer has died"
            os.sched_yield()
        for head, body in found:
            assert int.from_bytes(head, "little") == number
            assert body == bytes([number % 256]) * (number * 7919 % 600)
            number += 1
    process.communicate(timeout=60)
    segment.close()
