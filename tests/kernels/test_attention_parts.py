"""The room for the parts of rows: as large as planned, and small."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from omnirt.kernels.attention_parts import LONGEST, LONGEST_ALONE, AttentionRoom, room_bytes  # noqa: E402
from omnirt.kernels.frame_layout import PAGE  # noqa: E402


@pytest.mark.parametrize("rows", [1, 8, 64])
def test_the_room_is_as_large_as_planned(rows):
    room = AttentionRoom.make(rows, 8, "cpu")
    assert sum(tensor.nbytes for tensor in room) == room_bytes(rows, 8)
    assert not room.counts.any()


def test_the_room_of_64_rows_of_any_length_is_small():
    assert room_bytes(64, 8) < 9 << 20


def test_parts_are_of_whole_pages():
    assert LONGEST % PAGE == LONGEST_ALONE % PAGE == 0
