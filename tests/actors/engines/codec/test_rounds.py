"""Pieces of any lengths become calls: every frame once, those of a piece in order, no call over its size."""

import random

import pytest

from omnirt.actors.engines.codec.rounds import Size, Sizes

SIZES = (Size(1, 1), Size(1, 4), Size(1, 16), Size(8, 1), Size(8, 4), Size(16, 8), Size(64, 4))
GPU = Sizes(SIZES, 0.5, 0.0133)


def shape_of(sizes, lengths):
    """(rows, frames) of the size of each call, and what it takes."""
    return [
        (*sizes.sizes[size], [(piece, last - first) for piece, first, last in takes])
        for size, takes in sizes.rounds(lengths)
    ]


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("sizes", [GPU, Sizes([Size(3, 5), Size(1, 32)], 1e-3, 1.0)])
def test_every_frame_is_decoded_once_and_in_order(sizes, seed):
    rng = random.Random(seed)
    lengths = [rng.choice([0, 1, 2, 4, 8, 33]) for _ in range(rng.randint(0, 80))]
    at = [0] * len(lengths)
    for index, takes in sizes.rounds(lengths):
        size = sizes.sizes[index]
        assert 0 < len(takes) <= size.rows
        for piece, first, last in takes:
            assert first == at[piece] < last <= first + size.frames
            at[piece] = last
    assert at == lengths


def test_one_frame_of_one_request_takes_the_smallest_call():
    assert shape_of(GPU, [1]) == [(1, 1, [(0, 1)])]


def test_few_frames_of_many_rows_share_a_call():
    assert [call[:2] for call in shape_of(GPU, [4] * 60)] == [(64, 4)]
    assert [call[:2] for call in shape_of(GPU, [1, 2, 3, 4, 4, 2])] == [(8, 4)]


def test_a_long_piece_does_not_make_many_short_ones_long():
    calls = shape_of(GPU, [1] * 30 + [16])
    assert (1, 16, [(30, 16)]) in calls
    assert sum(len(takes) for _, _, takes in calls) == 31


def test_where_calls_cost_nothing_lengths_are_never_mixed():
    for _, _, takes in shape_of(Sizes([Size(1, 32), Size(8, 8)], 1e-3, 1.0), [5, 3, 5, 40, 3, 8]):
        assert len({count for _, count in takes}) == 1


def test_nothing_to_do_is_no_call():
    assert GPU.rounds([]) == []
    assert GPU.rounds([0, 0]) == []
