"""The sampler's codes are those of the plain step, whatever the parameters; inactive rows keep what they have."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

ROWS, VOCAB, STOP = 4, 96, 90


@pytest.fixture
def normal(triton_device):
    generator = torch.Generator().manual_seed(5)
    return lambda *size: torch.randn(*size, generator=generator).bfloat16().float().to(triton_device)


@pytest.fixture
def number(triton_device):
    return lambda *values, kind=torch.int32: torch.tensor(values, dtype=kind, device=triton_device)


def draw_of(number, heat, top_k, top_p):
    from omnirt.kernels.frame_predictor import Draw

    seeds = number(1, 7919, 3 << 40, -5, kind=torch.int64)
    parts = (number(*[value] * ROWS, kind=kind) for value, kind in ((heat, torch.float32), (top_k, torch.int32)))
    return Draw(*parts, number(*[top_p] * ROWS, kind=torch.float32), seeds, number(0, 1, 2, 300))


@pytest.mark.parametrize(
    ("heat", "top_k", "top_p"), [(0.0, 50, 1.0), (0.9, 5, 1.0), (0.9, 50, 0.8), (1.3, 0, 0.95), (0.7, 0, 1.0)]
)
def test_codes_equal_those_of_the_plain_step(normal, number, heat, top_k, top_p):
    from omnirt.kernels.frame_layout import Sampling
    from omnirt.kernels.frame_reference_draw import draw as draw_reference
    from omnirt.kernels.row_sampler import sample_rows

    logits, draw = normal(ROWS, VOCAB) * 2, draw_of(number, heat, top_k, top_p)
    codes = torch.zeros(ROWS, 3, dtype=torch.int32, device=logits.device)
    sample_rows(logits, codes, 2, draw)
    want = draw_reference(logits, 2, draw.step, Sampling(*draw[:4]))
    assert codes[:, 2].tolist() == want.tolist()
    assert not codes[:, :2].any()


def first_of(number, normal, active=(1, 1, 1, 1)):
    from omnirt.kernels.row_sampler import First

    suppressed = torch.zeros(VOCAB, device=normal(1).device)
    suppressed[80:] = -1e30
    suppressed[STOP] = 0
    return First(
        seen=(normal(ROWS, VOCAB) > 0.5).to(torch.uint8),
        penalty=number(1.05, 1.5, 1.0, 2.0, kind=torch.float32),
        suppressed=suppressed,
        least=number(0, 2, 3, 0),
        active=number(*active),
        stopped=number(0, 0, 0, 1),
    )


def test_the_first_code_honours_penalty_suppression_and_the_least_length(normal, number):
    from omnirt.kernels.frame_reference_draw import BARRED, penalized
    from omnirt.kernels.row_sampler import sample_rows

    logits, draw, first = normal(ROWS, VOCAB) * 2, draw_of(number, 0.0, 0, 1.0), first_of(number, normal)
    logits[:, STOP] = 30
    want = penalized(logits, first.seen, first.penalty) + first.suppressed
    want[:, STOP] = torch.where(draw.step < first.least, BARRED, want[:, STOP])
    want, seen = want.argmax(-1).tolist(), first.seen.clone()
    codes = torch.zeros(ROWS, 3, dtype=torch.int32, device=logits.device)
    sample_rows(logits, codes, 0, draw, first=first, stop_code=STOP)
    assert codes[:, 0].tolist() == want
    assert first.stopped.tolist() == [1, 0, 0, 1]
    seen[torch.arange(ROWS), want] = 1
    assert torch.equal(first.seen, seen)


def test_a_row_that_is_not_active_is_neither_seen_nor_stopped(normal, number):
    from omnirt.kernels.row_sampler import sample_rows

    logits, draw = normal(ROWS, VOCAB), draw_of(number, 0.0, 0, 1.0)
    first = first_of(number, normal, active=(0, 0, 0, 0))
    logits[:, STOP] = 30
    seen = first.seen.clone()
    codes = torch.zeros(ROWS, 1, dtype=torch.int32, device=logits.device)
    sample_rows(logits, codes, 0, draw, first=first, stop_code=STOP)
    assert torch.equal(first.seen, seen)
    assert first.stopped.tolist() == [0, 0, 0, 1]
