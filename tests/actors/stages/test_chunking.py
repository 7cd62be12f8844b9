"""The schedule against a player that starts at the first packet, with generators of all speeds."""

from __future__ import annotations

import pytest

from omnirt.actors.stages.chunking import SIZES, Chunks
from omnirt.clock import NS

FRAME_S = 0.08


def played(period_s: float, frames: int, decode_s: float, sizes: tuple[int, ...] = SIZES) -> tuple[list[int], float]:
    """The chunks that leave, and the longest the player waits for one (after the first)."""
    chunks, waiting, now, given, sent = Chunks(sizes, FRAME_S), 0, 0.0, 0.0, []
    start, worst = None, 0.0
    for index in range(frames):
        now += period_s
        waiting += 1
        chunks.made(int(now * NS))
        if chunks.is_due(waiting, int(now * NS)) or index == frames - 1:
            chunks.left(waiting, int(now * NS))
            arrival = now + decode_s
            start = arrival if start is None else start
            worst = max(worst, arrival - start - given)
            given += waiting * FRAME_S
            sent.append(waiting)
            waiting = 0
    return sent, worst


def test_a_fast_generator_gives_growing_chunks():
    sent, _ = played(0.005, 40, 0.005)
    assert sent[:6] == [1, 2, 4, 8, 16, 9]


@pytest.mark.parametrize("period_s", [0.002, 0.005, 0.02, 0.04, 0.06, 0.07])
def test_a_player_never_runs_dry_while_frames_come_faster_than_they_are_heard(period_s: float):
    _, worst = played(period_s, 200, 0.01)
    assert worst <= 1e-9


def test_a_generator_as_slow_as_the_player_sends_each_frame_at_once():
    sent, _ = played(0.079, 60, 0.0)
    assert set(sent[2:]) == {1}


def test_nothing_leaves_when_nothing_waits():
    assert not Chunks(SIZES, FRAME_S).is_due(0, 10 * NS)


def test_the_first_chunk_waits_for_its_frames():
    chunks = Chunks((2, 4), FRAME_S)
    assert not chunks.is_due(1, 5 * NS)
    assert chunks.is_due(2, 5 * NS)


def test_half_a_chunk_may_go_along_with_others_but_never_before_the_first():
    chunks = Chunks((1, 2, 4), FRAME_S)
    assert not chunks.may_join(1)
    for size in (1, 2):
        chunks.left(size, 0)
    assert chunks.is_grown
    assert [chunks.may_join(waiting) for waiting in range(5)] == [False, False, True, True, True]


def test_nobody_goes_along_where_frames_come_hardly_faster_than_they_are_heard():
    chunks = Chunks((1, 4), FRAME_S)
    chunks.left(1, 0)
    for index in range(3):
        chunks.made(int(index * FRAME_S / 3 * NS))
    assert not chunks.may_join(3)
