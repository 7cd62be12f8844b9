"""What every connector must do. A connector's test file subclasses `ConnectorSuite` and says how to make two ends.

    class TestRingLink(ConnectorSuite):
        def connect(self, plan): ...

Both ends live in the test's process; whatever needs a second process is the connector's own test.
"""

from __future__ import annotations

import random
import select
import threading

import numpy as np
import pytest

from omnirt.connectors.base import Connector, LinkClosed, LinkFull, PayloadTooLarge, Received
from omnirt.ids import Fence
from omnirt.wire.codec import Packing
from omnirt.wire.messages import Chunk, Credit, End, Record
from omnirt.wire.payload import HiddenStates, Latents, Payload, Text
from omnirt.wire.plan import LinkPlan

SLOTS = 4
PLAN = LinkPlan("near", "far", 1 << 16, 1 << 20, SLOTS, 1 << 17, 2)
FENCE = Fence(5, 9)
WAIT_S = 30
Arrival = tuple[Record, Received | None]


def latents(nbytes: int, fill: int) -> Latents:
    return Latents(np.full(nbytes, fill % 256, np.uint8))


def send(link: Connector, payload: Payload, *, seq: int = 0, edge: int = 1, request: int = 7) -> None:
    packing = Packing(payload)
    link.send(Chunk(edge, request, FENCE, seq, packing.header), packing)


def drain(link: Connector) -> list[Arrival]:
    found: list[Arrival] = []
    link.pump(lambda record, received: found.append((record, received)))
    return found


def readable(link: Connector, timeout_s: float = 0) -> bool:
    return bool(select.select([link.fileno()], [], [], timeout_s)[0])


def payload_of(arrival: Arrival, kind: type[Payload] = Latents) -> Payload:
    record, received = arrival
    assert isinstance(record, Chunk)
    assert received is not None
    return received.unpack(kind)


def filled(arrival: Arrival) -> tuple[int, int]:
    """(fill, size) of a payload made by `latents`, seen to be whole."""
    payload = payload_of(arrival)
    assert isinstance(payload, Latents)
    array = payload.latents
    assert array.size == 0 or (array == array[0]).all(), "torn"
    return int(array[0]) if array.size else 0, array.size


class ConnectorSuite:
    def connect(self, plan: LinkPlan) -> tuple[Connector, Connector]:
        """The two ends, `plan.a` first."""
        raise NotImplementedError

    @pytest.fixture
    def ends(self) -> tuple[Connector, Connector]:
        return self.connect(PLAN)

    # ------------------------------------------------------------------------------------ order and content

    def test_records_of_every_kind_arrive_equal_and_in_order(self, ends: tuple[Connector, Connector]) -> None:
        near, far = ends
        sent: list[Record] = []
        for number in range(200):
            record = (
                Chunk(number, 1, Fence(number, number + 1), number, b"x" * number),
                End(number, 2, Fence(0, 1 << 40), number),
                Credit(number, 1 << 50, FENCE, 3),
            )[number % 3]
            near.send(record)
            sent.append(record)
        assert [record for record, _ in drain(far)] == sent
        assert drain(far) == []

    def test_the_two_directions_are_independent(self, ends: tuple[Connector, Connector]) -> None:
        near, far = ends
        for number in range(20):
            near.send(End(1, number, FENCE, 0))
            far.send(End(2, number, FENCE, 0))
        assert [record.edge for record, _ in drain(near)] == [2] * 20
        assert [record.edge for record, _ in drain(far)] == [1] * 20
        assert near.peer == "far"
        assert far.peer == "near"

    @pytest.mark.parametrize("nbytes", [0, 1, 63, 64, 4095, 4096, 4097, 65536, (1 << 20) - 1, 1 << 20])
    def test_a_payload_of_any_size_arrives_whole_and_read_only(
        self, ends: tuple[Connector, Connector], nbytes: int
    ) -> None:
        near, far = ends
        content = np.random.default_rng(nbytes).integers(0, 256, nbytes, np.uint8)
        send(near, Latents(content), seq=3)
        ((record, received),) = drain(far)
        assert isinstance(record, Chunk)
        assert record.seq == 3
        assert received is not None
        array = received.unpack(Latents).latents
        assert np.array_equal(array, content)
        assert not array.flags.writeable

    def test_several_arrays_keep_dtype_and_shape(self, ends: tuple[Connector, Connector]) -> None:
        near, far = ends
        for rows in (3, 3000):  # in the record, in a slot
            states = np.arange(rows * 5, dtype=np.float32).reshape(rows, 5)
            send(near, HiddenStates(states, np.arange(rows, dtype=np.int64)[::-1]))
            payload = payload_of(drain(far)[0], HiddenStates)
            assert isinstance(payload, HiddenStates)
            assert payload.states.dtype == np.float32
            assert np.array_equal(payload.states, states)
            assert payload.ids.tolist() == list(range(rows))[::-1]

    def test_a_payload_without_arrays_travels_in_the_header(self, ends: tuple[Connector, Connector]) -> None:
        near, far = ends
        send(near, Text("viele Grüße"))
        ((record, received),) = drain(far)
        assert isinstance(record, Chunk)
        assert received is not None
        assert received.nbytes == 0
        assert received.unpack(Text) == Text("viele Grüße")

    def test_random_traffic_arrives_whole_and_in_order(self, ends: tuple[Connector, Connector]) -> None:
        near, far = ends
        chance = random.Random(4)
        held: list[Received] = []
        expected: list[tuple[int, int]] = []
        for number in range(600):
            size = chance.choice([0, 7, 500, 4096, 5000, 70_000])
            while True:
                try:
                    send(near, latents(size, number))
                    break
                except LinkFull:
                    held.pop(chance.randrange(len(held))).release()
            expected.append((number % 256 if size else 0, size))
            if chance.random() < 0.5 or size > 4096:
                for arrival in drain(far):
                    assert filled(arrival) == expected.pop(0)
                    assert arrival[1] is not None
                    if arrival[1].nbytes > 4096:
                        held.append(arrival[1])
        for arrival in drain(far):
            assert filled(arrival) == expected.pop(0)
        assert expected == []

    def test_two_threads_see_no_loss_and_no_tear(self, ends: tuple[Connector, Connector]) -> None:
        near, far = ends
        count = 3000
        failures: list[BaseException] = []
        credit = threading.Semaphore(SLOTS)

        def produce() -> None:
            try:
                for number in range(count):
                    assert credit.acquire(timeout=WAIT_S)
                    send(near, latents((number * 37) % 9000, number), seq=number)
            except BaseException as error:  # noqa: BLE001 - shown by the main thread
                failures.append(error)

        def check(record: Record, received: Received | None) -> None:
            nonlocal expected
            assert isinstance(record, Chunk)
            assert record.seq == expected
            size = (expected * 37) % 9000
            assert filled((record, received)) == (expected % 256 if size else 0, size)
            assert received is not None
            received.release()
            expected += 1
            credit.release()

        expected = 0
        thread = threading.Thread(target=produce)
        thread.start()
        while expected < count and not failures:
            assert readable(far, WAIT_S), f"asleep with {expected} of {count} records read"
            far.pump(check)
        thread.join()
        assert failures == []

    # ------------------------------------------------------------------------------------ leases

    def test_a_small_payload_stays_what_it_was_under_later_traffic(self, ends: tuple[Connector, Connector]) -> None:
        near, far = ends
        send(near, latents(4096, 1))
        (first,) = drain(far)
        array = payload_of(first)
        for number in range(100):
            send(near, latents(4096, 2 + number))
            drain(far)
        assert filled(first) == (1, 4096)
        assert isinstance(array, Latents)
        assert (array.latents == 1).all()

    def test_a_large_payload_stays_what_it_was_until_it_is_released(self, ends: tuple[Connector, Connector]) -> None:
        near, far = ends
        send(near, latents(100_000, 1))
        (kept,) = drain(far)
        for number in range(50):
            send(near, latents(100_000, 2 + number))
            (arrival,) = drain(far)
            assert filled(arrival) == (2 + number, 100_000)
            assert arrival[1] is not None
            arrival[1].release()
        assert filled(kept) == (1, 100_000)

    def test_payloads_may_be_released_in_any_order_and_more_than_once(self, ends: tuple[Connector, Connector]) -> None:
        near, far = ends
        for turn in range(20):
            for number in range(SLOTS):
                send(near, latents(50_000, turn * SLOTS + number))
            arrivals = drain(far)
            random.Random(turn).shuffle(arrivals)
            for _, received in arrivals:
                assert received is not None
                received.release()
                received.release()
        assert near.occupancy().out_slots == far.occupancy().in_slots == 0

    # ------------------------------------------------------------------------------------ bounds

    def test_a_peer_that_holds_every_payload_makes_the_link_full(self, ends: tuple[Connector, Connector]) -> None:
        near, far = ends
        for number in range(SLOTS):
            send(near, latents(50_000, number))
        arrivals = drain(far)
        with pytest.raises(LinkFull, match="far") as caught:
            send(near, latents(50_000, 99))
        assert caught.value.peer == "far"
        assert drain(far) == [], "what was refused was not sent"
        send(near, latents(10, 7))  # small ones need no slot
        assert filled(drain(far)[0]) == (7, 10)
        assert arrivals[2][1] is not None
        arrivals[2][1].release()
        send(near, latents(50_000, 100))
        assert filled(drain(far)[0]) == (100, 50_000)

    def test_a_peer_that_does_not_read_makes_the_link_full(self, ends: tuple[Connector, Connector]) -> None:
        near, far = ends
        sent = 0
        refused: LinkFull | None = None
        while refused is None:
            try:
                send(near, latents(1000, sent), seq=sent)
                sent += 1
            except LinkFull as full:
                refused = full
        assert refused.peer == "far"
        assert sent * 1000 <= PLAN.ring_bytes
        assert [record.seq for record, _ in drain(far) if isinstance(record, Chunk)] == list(range(sent))
        send(near, latents(1000, 1))
        assert len(drain(far)) == 1

    def test_a_payload_larger_than_planned_is_refused_by_name(self, ends: tuple[Connector, Connector]) -> None:
        near, far = ends
        for link, peer, limit in ((near, "far", 1 << 20), (far, "near", 1 << 17)):
            with pytest.raises(PayloadTooLarge, match=f"edge 6 to {peer}.* {limit} bytes") as caught:
                send(link, latents(limit + 1, 0), edge=6)
            assert (caught.value.edge, caught.value.limit_bytes) == (6, limit)
            assert caught.value.nbytes > limit
        send(near, latents(1 << 20, 1))
        assert filled(drain(far)[0]) == (1, 1 << 20)

    def test_where_no_large_payload_was_planned_only_small_ones_pass(self) -> None:
        near, far = self.connect(LinkPlan("near", "far", 1 << 16))
        send(near, latents(4096, 1))
        with pytest.raises(PayloadTooLarge, match="4096"):
            send(near, latents(4097, 1))
        assert filled(drain(far)[0]) == (1, 4096)

    def test_a_header_larger_than_the_link_can_ever_carry_is_not_called_full(
        self, ends: tuple[Connector, Connector]
    ) -> None:
        near, _ = ends
        with pytest.raises(PayloadTooLarge, match="edge 4"):
            send(near, Text("x" * PLAN.ring_bytes), edge=4)

    def test_occupancy_rises_with_what_is_unread_and_returns_to_zero(self, ends: tuple[Connector, Connector]) -> None:
        near, far = ends
        send(near, latents(100, 0))
        send(near, latents(50_000, 0))
        full = near.occupancy()
        assert 100 < full.out_bytes < full.out_bytes_max
        assert (full.out_slots, full.out_slots_max) == (1, SLOTS)
        assert far.occupancy().in_bytes == full.out_bytes
        arrivals = drain(far)
        assert near.occupancy().out_bytes == 0
        assert far.occupancy().in_slots == 1
        for _, received in arrivals:
            assert received is not None
            received.release()
        assert near.occupancy().out_slots == far.occupancy().in_slots == 0

    # ------------------------------------------------------------------------------------ waking

    def test_the_descriptor_is_readable_exactly_while_something_is_unread(
        self, ends: tuple[Connector, Connector]
    ) -> None:
        near, far = ends
        assert not readable(far)
        for _ in range(3):
            for number in range(5):
                near.send(Credit(1, number, FENCE, 1))
                assert readable(far, WAIT_S)
            assert len(drain(far)) == 5
            assert not readable(far), "asleep again"
        assert not readable(near), "the sender is not woken"

    def test_pumping_a_silent_link_is_harmless(self, ends: tuple[Connector, Connector]) -> None:
        near, far = ends
        assert [drain(far) for _ in range(3)] == [[], [], []]
        near.send(End(1, 1, FENCE, 0))
        assert readable(far, WAIT_S)
        assert len(drain(far)) == 1

    def test_a_delivery_that_raises_loses_only_its_own_record(self, ends: tuple[Connector, Connector]) -> None:
        near, far = ends
        for number in range(10):
            near.send(End(1, number, FENCE, 0))
        seen: list[int] = []

        def deliver(record: Record, _: Received | None) -> None:
            seen.append(record.request)
            if record.request == 4:
                raise RuntimeError("stage")

        with pytest.raises(RuntimeError, match="stage"):
            far.pump(deliver)
        assert readable(far, WAIT_S), "the rest is still announced"
        far.pump(deliver)
        assert seen == list(range(10))

    def test_a_delivery_may_answer_on_the_same_link(self, ends: tuple[Connector, Connector]) -> None:
        near, far = ends
        for number in range(30):
            near.send(End(1, number, FENCE, 0))
        far.pump(lambda record, _: far.send(Credit(record.edge, record.request, FENCE, 1)))
        assert [record.request for record, _ in drain(near)] == list(range(30))

    # ------------------------------------------------------------------------------------ endings

    def test_a_closed_link_refuses_to_send_and_drops_what_is_unread(self, ends: tuple[Connector, Connector]) -> None:
        near, far = ends
        near.send(End(1, 1, FENCE, 0))
        far.close()
        far.close()
        assert drain(far) == []
        with pytest.raises(LinkClosed, match="near"):
            far.send(End(1, 1, FENCE, 0))

    def test_a_delivery_may_close_its_link(self, ends: tuple[Connector, Connector]) -> None:
        near, far = ends
        for number in range(5):
            near.send(End(1, number, FENCE, 0))
        seen: list[int] = []

        def deliver(record: Record, _: Received | None) -> None:
            seen.append(record.request)
            if record.request == 2:
                far.close()

        far.pump(deliver)
        assert seen == [0, 1, 2]

    def test_what_a_peer_sent_before_it_died_can_still_be_read(self, ends: tuple[Connector, Connector]) -> None:
        near, far = ends
        send(near, latents(10, 1))
        send(near, latents(50_000, 2))
        near.close()
        assert [filled(arrival) for arrival in drain(far)] == [(1, 10), (2, 50_000)]
        far.send(End(1, 1, FENCE, 0))  # nobody reads it, and that is no error here: the supervisor tells

    def test_what_was_received_outlives_its_link(self, ends: tuple[Connector, Connector]) -> None:
        near, far = ends
        send(near, latents(10, 1))
        send(near, latents(50_000, 2))
        arrivals = drain(far)
        far.close()
        near.close()
        assert [filled(arrival) for arrival in arrivals] == [(1, 10), (2, 50_000)]
        for _, received in arrivals:
            assert received is not None
            received.release()

    def test_releasing_into_a_replaced_link_does_not_touch_the_new_one(self, ends: tuple[Connector, Connector]) -> None:
        near, far = ends
        for number in range(SLOTS):
            send(near, latents(50_000, number))
        old = drain(far)
        far.close()
        near.close()
        near, far = self.connect(PLAN)
        for number in range(SLOTS):
            send(near, latents(50_000, 10 + number))
        for _, received in old:
            assert received is not None
            received.release()
        with pytest.raises(LinkFull):
            send(near, latents(50_000, 99))
        assert [filled(arrival)[0] for arrival in drain(far)] == [10, 11, 12, 13]
        assert [filled(arrival)[0] for arrival in old] == [0, 1, 2, 3]
