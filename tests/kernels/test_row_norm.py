"""Norms and gates of rows against their twins."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")


ROUNDING = 2**-6
"""Two roundings to bfloat16; the interpreter cuts off instead."""


def rows(device, *size):
    return torch.randn(*size, generator=torch.Generator().manual_seed(1)).bfloat16().to(device)


def test_a_norm_is_within_roundings_of_its_twin(triton_device):
    from omnirt.kernels.row_norm import norm_reference, norm_rows

    x, weight = rows(triton_device, 3, 1024), rows(triton_device, 1024)
    out = torch.empty_like(x)
    norm_rows(x, weight, out)
    want = norm_reference(x.float(), weight.float())
    assert ((out.float() - want).abs() <= want.abs() * ROUNDING + 1e-6).all()


def test_a_gate_is_within_roundings_of_its_twin(triton_device):
    from omnirt.kernels.row_norm import gate_reference, gate_rows

    both = rows(triton_device, 2, 4096)
    out = torch.empty(2, 2048, device=triton_device).bfloat16()
    gate_rows(both, out)
    want = gate_reference(both.float())
    assert ((out.float() - want).abs() <= want.abs() * ROUNDING + 1e-6).all()


def test_a_gate_of_rows_that_were_not_normed_applies_the_norm(triton_device):
    from omnirt.kernels.row_norm import gate_reference, gate_rows, norm_reference

    x, weight = rows(triton_device, 2, 1024) * 3, rows(triton_device, 4096, 1024) * 0.03
    out = torch.empty(2, 2048, device=triton_device).bfloat16()
    gate_rows((x.float() @ weight.float().t()).bfloat16(), out, x)
    want = gate_reference(norm_reference(x.float(), torch.ones(1024, device=triton_device)) @ weight.float().t())
    assert (out.float() - want).norm() <= want.norm() * ROUNDING
