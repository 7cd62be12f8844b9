"""Histories in and out of a batch, and the sum of codes."""

import pytest

torch = pytest.importorskip("torch")

PLACES = ((0, 40, 12, 4), (100, 5020, 5000, 10))
"""Of two histories: where in the work memory, row step, numbers kept, numbers a frame."""


@pytest.fixture(scope="module")
def kernel(triton_device):
    from omnirt.kernels import decoder_state

    torch.manual_seed(0)
    return decoder_state


@pytest.fixture(params=["float32", "bfloat16"])
def kind(request, triton_device):
    if triton_device == "cpu" and request.param == "bfloat16":
        pytest.skip("the interpreter neither rounds nor multiplies bfloat16 as a device does")
    return request.param


def test_histories_come_back_moved_on_by_each_row_s_length(kernel, triton_device):
    from omnirt.kernels.window_attention import RowState

    lines, tail = [], 0
    for at, step, kept, frame in PLACES:
        pieces = range(0, kept, kernel.PIECE)
        lines += [(at + first, step, tail + first, min(kernel.PIECE, kept - first), frame) for first in pieces]
        tail += kept
    table = torch.tensor(lines, device=triton_device)
    tails = torch.randn(4, tail, device=triton_device)
    before, work = tails.clone(), torch.randn(30000, device=triton_device)
    slots, positions, lengths = (
        torch.tensor(values, dtype=torch.int32, device=triton_device) for values in ((2, 1, 3), (5, 0, 9, 1), (2, 1, 0))
    )
    rows = RowState(slots, positions, lengths)
    untouched = work.clone()
    kernel.load_history(kernel.Tails(tails, table), work, rows)
    at, step, kept, _ = PLACES[0]
    assert torch.equal(work[at : at + kept], before[2, :kept])
    assert not work[at + step : at + step + kept].any()  # a request at position 0 has no history
    assert torch.equal(work[at + 2 * step : at + 2 * step + kept], untouched[at + 2 * step : at + 2 * step + kept])
    kernel.save_history(kernel.Tails(tails, table), work, rows)
    tail = 0
    for at, step, kept, frame in PLACES:
        for row, (slot, length) in enumerate(((2, 2), (1, 1))):
            first = at + row * step + length * frame
            assert torch.equal(tails[slot, tail : tail + kept], work[first : first + kept])
        tail += kept
    assert torch.equal(tails[[0, 3]], before[[0, 3]])
    assert positions.tolist() == [5, 1, 11, 1]


def test_a_frame_is_the_sum_of_its_codes_lines(kernel, triton_device, kind):
    from omnirt.kernels.tap_layout import Extent, View

    dtype = getattr(torch, kind)
    tables = torch.randn(4, 9, 24).to(triton_device, dtype)
    codes = torch.randint(0, 9, (2, 3, 4), dtype=torch.int32, device=triton_device)
    out = torch.zeros(2, 5, 24, dtype=dtype, device=triton_device)
    kernel.embed_codes(codes, tables, View(out, 5 * 24, 2 * 24), Extent(2, 3, 1))
    want = kernel.reference_embed(codes, tables)
    tolerance = kernel.FLOAT32_TOLERANCE if kind == "float32" else kernel.TOLERANCE
    assert (out[:, 2:].float() - want).abs().max() <= tolerance * want.abs().max()
    assert not out[:, :2].any()
