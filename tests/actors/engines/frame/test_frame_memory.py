"""The plan for a device's memory."""

from dataclasses import fields

import msgspec
import pytest

torch = pytest.importorskip("torch")

from omnirt.actors.engines.frame.memory import SHARE, FrameWants, planned, state_bytes  # noqa: E402
from omnirt.errors import ConfigError  # noqa: E402
from omnirt.kernels.frame_layout import DecoderShape, FrameRows, FrameShape  # noqa: E402

LARGE = FrameShape(
    DecoderShape(2048, 6144, 28, 16, 8, 128, 1e-6, 1e6),
    DecoderShape(1024, 3072, 5, 16, 8, 128, 1e-6, 1e6),
    3072,
    2048,
    16,
    2150,
)
SMALL = FrameShape(
    DecoderShape(32, 48, 2, 4, 2, 16, 1e-6, 1e4), DecoderShape(24, 40, 2, 4, 1, 8, 1e-6, 1e4), 40, 30, 4, 33
)
WANTS = FrameWants(rows=64, positions=1024, lines=512, number_bytes=2, weights_bytes=7 << 30, other_bytes=1 << 30)


@pytest.mark.parametrize(("number_bytes", "kind"), [(2, torch.bfloat16), (4, torch.float32)])
def test_the_plan_is_what_the_rows_take(number_bytes, kind):
    wants = FrameWants(rows=5, positions=200, lines=7, number_bytes=number_bytes, weights_bytes=0)
    plan = planned(SMALL, wants, 1 << 30)
    rows = FrameRows.make(SMALL, wants.rows, plan.pages, plan.row_pages, wants.lines, "cpu", kind)
    tensors = [value for field in fields(rows) if isinstance(value := getattr(rows, field.name), torch.Tensor)]
    tensors += [*vars(rows.first).values(), *vars(rows.inner).values()]
    assert sum(tensor.nbytes for tensor in tensors) == plan.total_bytes
    assert plan.pages == 1 + 5 * 4


def test_a_large_model_with_64_rows_fits_into_what_is_asked():
    plan = planned(LARGE, WANTS, 139 << 30)
    assert plan.pages == 1 + 64 * 16
    assert plan.total_bytes == pytest.approx(15.2 * 2**30, rel=0.02)


def test_short_memory_means_fewer_pages_and_is_never_exceeded():
    for free_gib in (9.6, 10, 12, 14, 20):
        plan = planned(LARGE, WANTS, int(free_gib * 2**30))
        assert 1 + 16 <= plan.pages <= 1 + 64 * 16
        assert plan.total_bytes <= SHARE * free_gib * 2**30
    bounded = planned(LARGE, msgspec.structs.replace(WANTS, bytes_max=10 << 30), 139 << 30)
    assert 9.9 * 2**30 < bounded.total_bytes <= 10 << 30


def test_what_does_not_fit_is_told_with_numbers_and_a_way_out():
    with pytest.raises(ConfigError) as failure:
        planned(LARGE, WANTS, 8 << 30)
    message = str(failure.value)
    assert "needs 8.2" in message
    assert "weights 7.00" in message
    assert "7.20 of 8.00 GiB free" in message
    assert "fewer rows (now 64)" in message
    assert state_bytes(LARGE, WANTS) < 1 << 28
