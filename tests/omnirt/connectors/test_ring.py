from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

from omnirt.connectors.base import LinkBroken, Received
from omnirt.connectors.ring import PUMP_RECORDS_MAX, RingLink, RingPair, link_bytes
from omnirt.ids import Fence
from omnirt.shm import atomics
from omnirt.shm.segment import Segment, SegmentRefused, SharedMemoryFull
from omnirt.testing.connector_suite import ConnectorSuite
from omnirt.wire.codec import Packing
from omnirt.wire.messages import Attach, Chunk, End, Record
from omnirt.wire.payload import Latents
from omnirt.wire.plan import LinkPlan

FENCE = Fence(1, 1)
PLAN = LinkPlan("near", "far", 1 << 16, 1 << 20, 4, 1 << 16, 2)


def connect(plan: LinkPlan = PLAN) -> tuple[RingLink, RingLink]:
    pair = RingPair.create(plan)
    ends = pair.link(plan.a), pair.link(plan.b)
    pair.close()
    return ends


class TestRingLink(ConnectorSuite):
    def connect(self, plan: LinkPlan) -> tuple[RingLink, RingLink]:
        return connect(plan)


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def mappings() -> int:
    """Segments of ours that this process maps."""
    return Path("/proc/self/maps").read_text().count(f"omnirt-{os.getpid()}-")


def test_a_link_takes_what_it_says_and_leaves_no_descriptor_and_no_mapping() -> None:
    before, mapped = open_descriptors(), mappings()
    pair = RingPair.create(PLAN)
    _, fds = pair.side("near")
    assert os.fstat(fds[0]).st_size == link_bytes(PLAN) >= PLAN.segment_bytes()
    assert link_bytes(PLAN) < PLAN.segment_bytes() + (64 << 10)
    near, far = pair.link("near"), pair.link("far")
    pair.close()
    near.close()
    far.close()
    assert open_descriptors() == before + 2, "the mappings hold theirs"
    del near, far
    assert open_descriptors() == before
    assert mappings() == mapped


def test_the_creator_maps_nothing() -> None:
    before = mappings()
    pair = RingPair.create(PLAN)
    assert mappings() == before
    pair.close()


def test_a_link_that_does_not_fit_is_refused_with_the_space_it_needs() -> None:
    status = os.statvfs("/dev/shm")
    plan = LinkPlan("near", "far", 1 << 16, status.f_blocks * status.f_frsize, 2)
    with pytest.raises(SharedMemoryFull) as caught:
        RingPair.create(plan)
    assert caught.value.needed_bytes == link_bytes(plan)


def test_descriptors_of_anything_else_are_refused() -> None:
    message = Attach("far", 4096, 0, 0, 0, 0)
    short, foreign = Segment.create(4096), Segment.create(link_bytes(LinkPlan("a", "b", 4096)))
    with pytest.raises(SegmentRefused):
        RingLink.attach(message, [short.fd, os.eventfd(0), os.eventfd(0)])
    with pytest.raises(LinkBroken, match="not one of ours"):
        RingLink.attach(message, [foreign.fd, os.eventfd(0), os.eventfd(0)])


def poison(link: RingLink, head: bytes, body_bytes: int = 0, slot: int = -1) -> None:
    """Send bytes that no peer of ours would."""
    producer = link._producer
    at = atomics.reserve(producer.state, len(head), body_bytes, slot)
    producer.bytes[at : at + len(head)] = head
    if atomics.publish(producer.state):
        link._bell_out.ring()


@pytest.mark.parametrize(
    ("head", "body_bytes", "slot"),
    [
        (b"\xc1nonsense", 0, -1),
        (msgspec.msgpack.encode([9, 1]), 0, -1),
        (msgspec.msgpack.encode(Chunk(1, 1, FENCE, 1, b"")), 5000, 99),
        (msgspec.msgpack.encode(Chunk(1, 1, FENCE, 1, b"")), 1 << 30, 0),
    ],
)
def test_records_no_peer_can_have_sent_break_the_link(head: bytes, body_bytes: int, slot: int) -> None:
    near, far = connect()
    poison(near, head, body_bytes, slot)
    with pytest.raises(LinkBroken, match="near") as caught:
        far.pump(lambda *_: None)
    assert caught.value.peer == "near"


def test_a_slot_on_a_link_without_slots_breaks_it() -> None:
    near, far = connect(LinkPlan("near", "far", 1 << 14))
    poison(near, msgspec.msgpack.encode(Chunk(1, 1, FENCE, 1, b"")), 5000, 0)
    with pytest.raises(LinkBroken, match="without slots"):
        far.pump(lambda *_: None)


def test_memory_of_another_generation_breaks_the_link_and_does_not_ring_for_ever() -> None:
    near, far = connect()
    near._producer._private[5] += 1  # as a producer attached to something recycled would
    near.send(End(1, 1, FENCE, 0))
    with pytest.raises(LinkBroken, match="another generation"):
        far.pump(lambda *_: None)
    assert not select.select([far.fileno()], [], [], 0)[0]


def test_one_pump_is_bounded_and_rings_for_the_rest() -> None:
    near, far = connect(LinkPlan("near", "far", 1 << 20))
    near.send(End(1, 1, FENCE, 0))

    def echo(record: Record, _: Received | None) -> None:
        near.send(record)  # a producer that is always faster

    assert PUMP_RECORDS_MAX <= far.pump(echo) < 2 * PUMP_RECORDS_MAX
    assert select.select([far.fileno()], [], [], 0)[0]


def test_a_burst_rings_once() -> None:
    near, far = connect()
    for number in range(50):
        near.send(End(1, number, FENCE, 0))
    assert os.eventfd_read(far.fileno()) == 1


def test_a_packing_that_fails_to_write_sends_nothing_and_keeps_its_slot_free() -> None:
    near, far = connect()

    class Failing(Packing):
        def write(self, into: object, at: int = 0) -> None:
            raise RuntimeError("device")

    for nbytes in (100, 50_000):
        packing = Failing(Latents(np.zeros(nbytes, np.uint8)))
        for _ in range(10):
            with pytest.raises(RuntimeError, match="device"):
                near.send(Chunk(1, 1, FENCE, 0, packing.header), packing)
    assert far.pump(lambda *_: None) == 0
    assert near.occupancy().out_slots == near.occupancy().out_bytes == 0


def test_steady_traffic_takes_no_page_faults() -> None:
    near, far = connect()
    small, large = (Packing(Latents(np.zeros(nbytes, np.uint8))) for nbytes in (1000, 500_000))

    def release(_: Record, received: Received | None) -> None:
        assert received is not None
        received.release()

    def traffic(turns: int) -> None:
        for _ in range(turns):
            for packing in (small, large):
                near.send(Chunk(1, 1, FENCE, 0, packing.header), packing)
            far.pump(release)

    traffic(50)
    before = _minor_faults()
    traffic(2000)
    assert _minor_faults() - before < 40, "not one per record"


def _minor_faults() -> int:
    return int(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[7])


CHILD = """
import os, select, socket, sys
import msgspec, numpy as np
from omnirt.connectors.ring import RingLink
from omnirt.ids import Fence
from omnirt.wire.codec import Packing
from omnirt.wire.messages import Attach, Chunk, Credit, End
from omnirt.wire.payload import Latents
control = socket.socket(fileno={fd})
data, fds, _, _ = socket.recv_fds(control, 4096, 3, socket.MSG_CMSG_CLOEXEC)
link = RingLink.attach(msgspec.msgpack.decode(data, type=Attach), fds)
def wait():
    assert select.select([link.fileno(), control], [], [], 60)[0] == [link.fileno()]
{work}
"""

ECHO = """
def answer(record, received):
    if received is None:
        raise SystemExit(0)
    payload = received.unpack(Latents)
    assert (payload.latents == record.seq % 251).all()
    received.release()
    link.send(Credit(record.edge, record.request, record.fence, record.seq))
while True:
    wait()
    link.pump(answer)
"""


def start(work: str) -> tuple[RingLink, subprocess.Popen[bytes], socket.socket]:
    """A child that received its end over a socketpair, as a node does."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD.format(fd=theirs.fileno(), work=work)], pass_fds=(theirs.fileno(),)
    )
    theirs.close()
    pair = RingPair.create(PLAN)
    message, fds = pair.side("far")
    socket.send_fds(ours, [msgspec.msgpack.encode(message)], fds)
    link = pair.link("near")
    pair.close()
    return link, child, ours


@pytest.mark.kill
def test_two_processes_exchange_every_record_parked_in_between() -> None:
    link, child, control = start(ECHO)
    acknowledged: list[int] = []
    for number in range(1500):
        packing = Packing(Latents(np.full((number * 61) % 9000, number % 251, np.uint8)))
        link.send(Chunk(1, 1, FENCE, number, packing.header), packing)
        while number - len(acknowledged) >= 3:
            assert select.select([link.fileno()], [], [], 60)[0], f"asleep after {len(acknowledged)} answers"
            link.pump(lambda record, _: acknowledged.append(record.count))  # type: ignore[union-attr]
    link.send(End(1, 1, FENCE, 0))
    assert child.wait(60) == 0
    link.pump(lambda record, _: acknowledged.append(record.count))  # type: ignore[union-attr]
    assert acknowledged == list(range(1500))
    assert link.occupancy().out_slots == 0
    control.close()
    link.close()


@pytest.mark.kill
def test_what_a_killed_peer_published_is_read_and_what_it_had_begun_is_not() -> None:
    work = """
packing = Packing(Latents(np.full(50_000, 5, np.uint8)))
link.send(Chunk(1, 1, Fence(1, 1), 0, packing.header), packing)
class Killed(Packing):
    def write(self, into, at=0):
        into[at:at + 20_000] = bytes(20_000)
        os.kill(os.getpid(), 9)
packing = Killed(Latents(np.zeros(50_000, np.uint8)))
link.send(Chunk(1, 1, Fence(1, 1), 1, packing.header), packing)
"""
    link, child, control = start(work)
    assert child.wait(60) == -signal.SIGKILL
    seen: list[tuple[Record, Received | None]] = []
    assert link.pump(lambda *arrival: seen.append(arrival)) == 1
    ((record, received),) = seen
    assert isinstance(record, Chunk)
    assert received is not None
    assert (received.unpack(Latents).latents == 5).all()
    link.close()
    assert (received.unpack(Latents).latents == 5).all()
    received.release()
    control.close()


def test_a_reader_that_polls_before_it_parks_is_not_rung_for_meanwhile() -> None:
    near, far = connect()
    seen: list[int] = []

    def deliver(record: Record, _: Received | None) -> None:
        seen.append(record.request)

    near.send(End(1, 0, FENCE, 0))
    assert far.clear()
    for number in range(1, 4):
        near.send(End(1, number, FENCE, 0))
        assert not select.select([far.fileno()], [], [], 0)[0]
        assert far.drain(deliver) > 0
    near.send(End(1, 4, FENCE, 0))
    assert not far.park(), "one came in between"
    assert far.drain(deliver) == 1
    assert far.park()
    near.send(End(1, 5, FENCE, 0))
    assert select.select([far.fileno()], [], [], 0)[0]
    assert far.pump(deliver) == 1
    assert seen == list(range(6))
    far.close()
    assert not far.clear()
