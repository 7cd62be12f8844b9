"""Memory is known before loading: it is what is then allocated."""

from itertools import pairwise

import pytest

from omnirt.actors.engines.codec import memory
from omnirt.actors.engines.codec.memory import CodecBytes, codec_bytes, has_kernels, ring, sizes_for, snapshot_bytes
from omnirt.actors.engines.codec.places import count, places
from omnirt.actors.engines.codec.rounds import Size
from omnirt.kernels.codec_layout import CodecShape, histories, tail_size

FULL = CodecShape(16, 2048, 512, 1024, 512, 1024, 8, 16, 64, 72, (2, 2), 1536, (8, 5, 4, 3), 1e-5, 1e4)


def test_the_full_size_takes_what_was_measured():
    parts = codec_bytes(FULL, 64)
    assert 1.5e9 < parts.total < 1.8e9
    assert parts.weights < 0.26e9
    assert str(parts).startswith("weights 0.25, rows 0.22, work 1.")


def test_a_slot_more_costs_what_a_copy_of_one_does():
    for dtype in ("bfloat16", "float32"):
        more = codec_bytes(FULL, 11, dtype).slots - codec_bytes(FULL, 10, dtype).slots
        assert more == snapshot_bytes(FULL, dtype)


def test_plain_state_is_as_large_as_planned(codec):
    torch = pytest.importorskip("torch")
    from omnirt.actors.engines.codec.plain import State

    state = State(codec.shape, 5, "cpu", torch.float32)
    assert sum(t.nbytes for t in state.tensors.values()) == codec_bytes(codec.shape, 5, "float32").slots


def test_no_two_places_overlap():
    for size in (Size(1, 1), Size(3, 4)):
        found = places(FULL, size, memory.FUSED_CHANNELS)
        spans = sorted((place.at, place.at + size.rows * place.row) for place in found.values())
        assert all(end <= start for (_, end), (start, _) in pairwise(spans))
        assert spans[-1][1] == count(found, size.rows)


def test_histories_keep_what_a_frame_needs_of_the_past():
    assert FULL.samples == 1920
    assert tail_size(FULL) == sum(h.kept * h.channels for h in histories(FULL)) == 135232
    assert ring(FULL) >= FULL.window + max(size.frames for size in memory.GRAPH_SIZES) - 1


def test_few_slots_need_no_large_calls():
    assert sizes_for(1) == [Size(1, 1), Size(1, 4), Size(1, 16), Size(1, 8)]
    assert max(size.rows for size in sizes_for(40)) == 40
    assert codec_bytes(FULL, 4).work < codec_bytes(FULL, 64).work / 4


def test_odd_shapes_have_no_kernels():
    assert has_kernels(FULL)
    for name, value in (("width", 40), ("channels", 1568), ("head", 48)):
        fields = {field: getattr(FULL, field) for field in FULL.__dataclass_fields__}
        assert not has_kernels(CodecShape(**{**fields, name: value}))


def test_the_parts_add_up():
    assert CodecBytes(1, 2, 3).total == 6
