"""The sum of a frame's embeddings and its text, and what it counts."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")


def test_only_active_rows_get_their_sum_and_are_counted(triton_device):
    from omnirt.kernels.embed_sum import EmbedRows, embed_frame, reference

    generator = torch.Generator().manual_seed(4)

    def normal(*size):
        return torch.randn(*size, generator=generator).bfloat16().to(triton_device)

    def number(*values, kind=torch.int32):
        return torch.tensor(values, dtype=kind, device=triton_device)

    first, others = normal(20, 64), normal(3, 8, 64)
    rows = EmbedRows(
        codes=torch.cat([number(19, 3, 0)[:, None], number(7, 0, 1, 2, 3, 4, 5, 6, 7).view(3, 3)], 1).contiguous(),
        text=normal(3, 4, 64),
        lines=number(4, 2, 3),
        active=number(1, 1, 0),
        steps=number(1, 9, 0),
        positions=number(12, 70, 5, kind=torch.int64),
        x=normal(3, 64),
    )
    want, kept = reference(rows, first, others), rows.x[2].clone()
    embed_frame(rows, first, others)
    assert ((rows.x[:2].float() - want[:2]).abs() <= want[:2].abs() * 2**-7 + 1e-6).all()
    assert torch.equal(rows.x[2], kept)
    assert rows.steps.tolist() == [2, 10, 0]
    assert rows.positions.tolist() == [13, 71, 5]
