from omnirt.pipeline.sizing import CONTROL_BYTES, RECORD_BYTES, RING_BYTES_MIN, has_arrays, links_of, slab_bytes
from omnirt.wire.payload import CodecFrames, HiddenStates, Pcm, Text
from omnirt.wire.plan import EdgePlan, LimitsPlan, NodePlan

NODES = (NodePlan("a.0", "a", 0, ("a",)), NodePlan("b.0", "b", 0, ("b",)))
GROUPS = {"a": "a", "b": "b"}
LIMITS = LimitsPlan(requests_max=10)


def only_link(*edges, slabbed=frozenset()):
    (link,) = links_of(NODES, edges, GROUPS, frozenset(slabbed), LIMITS)
    return link


def test_payloads_of_header_alone_need_no_slab():
    assert not has_arrays(Text)
    assert all(has_arrays(kind) for kind in (Pcm, CodecFrames, HiddenStates))


def test_a_slab_holds_every_chunk_that_credit_allows():
    link = only_link(EdgePlan(0, "a", "x", "b", "x", credit=3, chunk_bytes_max=10_000), slabbed={0})
    assert (link.a_to_b_slots, link.a_to_b_slot_bytes) == (30, 12_288)
    assert (link.b_to_a_slots, link.b_to_a_slot_bytes) == (0, 0)


def test_slots_of_one_direction_add_up_and_the_largest_chunk_sets_their_size():
    link = only_link(
        EdgePlan(0, "a", "x", "b", "x", credit=3, chunk_bytes_max=8192),
        EdgePlan(1, "a", "y", "b", "y", credit=1, chunk_bytes_max=65536),
        EdgePlan(2, "b", "z", "a", "z", credit=2, chunk_bytes_max=5000),
        slabbed={0, 1, 2},
    )
    assert (link.a_to_b_slots, link.a_to_b_slot_bytes) == (40, 65536)
    assert (link.b_to_a_slots, link.b_to_a_slot_bytes) == (20, 8192)


def test_small_chunks_stay_in_the_ring():
    link = only_link(EdgePlan(0, "a", "x", "b", "x", chunk_bytes_max=4096), slabbed={0})
    assert link.a_to_b_slots == 0


def test_a_ring_holds_all_records_of_its_direction_and_is_a_power_of_two():
    link = only_link(EdgePlan(0, "a", "x", "b", "x", credit=100), EdgePlan(1, "b", "y", "a", "y", credit=5))
    forth = 10 * (100 * (4096 + RECORD_BYTES) + CONTROL_BYTES + 5 * CONTROL_BYTES)
    assert forth <= link.ring_bytes < 4 * forth
    assert link.ring_bytes & (link.ring_bytes - 1) == 0


def test_a_ring_is_never_tiny():
    limits = LimitsPlan(requests_max=1)
    edge = EdgePlan(0, "a", "x", "b", "x", credit=1, chunk_bytes_max=8)
    (link,) = links_of(NODES, (edge,), GROUPS, frozenset(), limits)
    assert link.ring_bytes == RING_BYTES_MIN


def test_the_head_is_always_the_first_of_a_link():
    edge = EdgePlan(0, "a", "x", "client", "text")
    assert [(link.a, link.b) for link in links_of(NODES, (edge,), GROUPS, frozenset(), LIMITS)] == [("head", "a.0")]


def test_an_edge_asks_for_requests_times_credit_times_chunk():
    assert slab_bytes(EdgePlan(0, "a", "x", "b", "x", credit=2, chunk_bytes_max=4097), LIMITS) == 10 * 2 * 8192
