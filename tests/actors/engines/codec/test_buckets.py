"""The kernels as one decoder, interpreted, with slots and memory full of rubbish at the start."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from omnirt.actors.engines.codec import memory  # noqa: E402
from omnirt.actors.engines.codec.form import PlainForm, Row  # noqa: E402
from omnirt.actors.engines.codec.rounds import Size  # noqa: E402
from omnirt.kernels.codec_layout import CodecShape  # noqa: E402

SHAPE = CodecShape(3, 32, 64, 64, 64, 64, 1, 1, 32, 5, (2,), 512, (2, 2), 1e-5, 1e4)
TOLERANCE = 5e-6
SLOTS = 4
CALLS = (
    (0, ((1, 1),)),
    (1, ((1, 2), (0, 4))),
    (2, ((0, 1), (2, 3), (1, 2))),
    (0, ((2, 1),)),
    (2, ((1, 2), (2, 1))),
)
"""Size of a call, and for its rows slot and frames."""


@pytest.fixture(scope="module")
def form(interpreted, random_weights):
    from omnirt.actors.engines.codec import bucket, tiles
    from omnirt.actors.engines.codec.buckets import KernelForm
    from omnirt.kernels.tap_layout import Tile

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "GRAPH_SIZES", (Size(1, 1), Size(2, 4), Size(4, 4)))
        patch.setattr(bucket, "LIVE_LEAST", 16)
        # An interpreted program costs the same whatever its size.
        patch.setattr(tiles, "EXACT", Tile(64, 256, 64, 4, 2))
        patch.setattr(tiles, "EXACT_UNIT", Tile(64, 0, 64, 4, 2))
        yield KernelForm(SHAPE, random_weights(SHAPE), SLOTS, "cpu", torch.float32)


@pytest.fixture
def codes():
    return np.random.default_rng(2).integers(0, SHAPE.codes, (3, 7, SHAPE.books)).astype(np.int32)


def test_mixed_lengths_in_any_calls_are_the_waveform_of_all_at_once(form, random_weights, codes):
    plain = PlainForm(SHAPE, random_weights(SHAPE), SLOTS, "cpu", torch.float32)
    whole = plain.run(0, [Row(i, codes[i]) for i in range(3)], heard=True).rows()
    state = form._slots
    for tensor in (state.tails, *state.cache, form._memory.work):
        tensor.fill_(float("nan"))
    assert [bucket.live for bucket in form.buckets] == [False, False, True]
    at, got = [0] * 3, [[], [], []]
    for index, lengths in CALLS:
        rows = [Row(slot, codes[slot, at[slot] : at[slot] + n]) for slot, n in lengths]
        for row, samples in zip(rows, form.run(index, rows, heard=True).rows(), strict=True):
            assert len(samples) == len(row.codes) * SHAPE.samples
            got[row.slot].append(samples)
            at[row.slot] += len(row.codes)
    for row in range(3):
        samples = np.concatenate(got[row])
        assert np.abs(samples - whole[row][: len(samples)]).max() < TOLERANCE


def test_a_copied_slot_and_a_cleared_one_are_exact(form, codes):
    form.clear(0)
    first = form.run(1, [Row(0, codes[0, :3])], heard=True).rows()[0].copy()
    snapshot = form.snapshot(0, 3)
    want = form.run(0, [Row(0, codes[0, 3:4])], heard=True).rows()[0].copy()
    form.restore(3, snapshot)
    np.testing.assert_array_equal(form.run(0, [Row(3, codes[0, 3:4])], heard=True).rows()[0], want)
    form.clear(3)
    np.testing.assert_array_equal(form.run(1, [Row(3, codes[0, :3])], heard=True).rows()[0], first)
