"""The product of one row, with what is fused into it, against its twin."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

TOLERANCE = 1e-2
"""The interpreter cuts off where the device rounds."""


def error(got, want):
    return float((got.double() - want.double()).norm() / want.double().norm())


@pytest.fixture
def operands(triton_device):
    generator = torch.Generator().manual_seed(2)
    weight = (torch.randn(128, 2048, generator=generator) * 0.02).bfloat16().to(triton_device)
    x = torch.randn(1, 2048, generator=generator).bfloat16().to(triton_device)
    norm = (1 + 0.1 * torch.randn(2048, generator=generator)).bfloat16().to(triton_device)
    return weight, x, norm


def test_a_gated_product_of_a_normed_row_equals_its_twin(operands):
    from omnirt.kernels.row_product import multiply_row, reference

    weight, x, norm = operands
    y, normed = torch.zeros(1, 64, device=x.device).bfloat16(), torch.zeros_like(x)
    multiply_row(weight, x, y, norm=norm, gated=True, normed=normed)
    assert error(y, reference(weight, x, norm=norm, gated=True)) < 2 * TOLERANCE
    assert error(normed, torch.nn.functional.rms_norm(x.float(), (2048,), norm.float(), 1e-6)) < TOLERANCE


def test_a_product_is_added_to_what_is_there(operands):
    from omnirt.kernels.row_product import multiply_row, reference

    weight, x, _ = operands
    y = torch.randn(1, 128, generator=torch.Generator().manual_seed(3)).bfloat16().to(x.device)
    want = reference(weight, x, residual=y)
    multiply_row(weight, x, y, add=True)
    assert error(y, want) < TOLERANCE
