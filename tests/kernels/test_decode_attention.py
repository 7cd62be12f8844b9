"""Attention over pages against its twin: tables in any order, mixed lengths, rows that are not active, prefill."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

HEADS, PAGES, ROW_PAGES, TOLERANCE = 2, 12, 3, 1e-2


def error(got, want):
    return float((got.double() - want.double()).norm() / want.double().norm())


@pytest.fixture
def normal(triton_device):
    generator = torch.Generator().manual_seed(6)
    # The interpreter does not know products of bfloat16.
    kind = torch.bfloat16 if triton_device == "cuda" else torch.float32
    return lambda *size: torch.randn(*size, generator=generator).to(triton_device, kind)


@pytest.fixture
def turns(normal):
    from omnirt.kernels.decode_attention import Turns
    from omnirt.kernels.frame_layout import DecoderShape
    from omnirt.kernels.frame_predictor import rotary

    shape = DecoderShape(width=64, feed=64, layers=1, heads=2 * HEADS, kv_heads=HEADS, head=128, eps=1e-6, theta=1e6)
    return Turns(1 + 0.1 * normal(128), 1 + 0.1 * normal(128), rotary(shape, ROW_PAGES * 64, normal(1).device))


@pytest.fixture
def pages(normal):
    from omnirt.kernels.decode_attention import Pages

    order = torch.randperm(PAGES - 1, generator=torch.Generator().manual_seed(7)) + 1
    tables = torch.cat([order[:9], torch.zeros(3, dtype=order.dtype)]).view(4, ROW_PAGES).int()
    keys, values = normal(PAGES, HEADS, 64, 128), normal(PAGES, HEADS, 64, 128)
    return Pages(keys, values, tables.to(keys.device), ROW_PAGES)


def copy_of(pages):
    return pages._replace(k=pages.k.clone(), v=pages.v.clone())


@pytest.mark.parametrize("parts", [1, 2, 8])
def test_a_new_position_attends_over_its_pages(normal, turns, pages, parts):
    from omnirt.kernels.decode_attention import Entries, Room, attend, reference

    device = pages.k.device
    at = torch.tensor([63, 130, 7, 0], device=device)
    active = torch.tensor([1, 1, 0, 1], device=device, dtype=torch.int32)
    out = torch.full_like(normal(4, HEADS * 256), float("nan"))
    entries = Entries(normal(4, HEADS * 512), out, at, active=active)
    twin, room = copy_of(pages), Room.make(4, HEADS, parts, device)
    want = reference(entries, turns, twin)
    attend(entries, turns, pages, room)
    assert error(out, want) < TOLERANCE
    assert error(pages.k, twin.k) < 1e-3
    assert torch.equal(pages.v, twin.v)
    assert not room.tensors.counts.any()


def test_a_row_behind_its_last_page_reads_and_writes_nothing_of_others(normal, turns, pages):
    from omnirt.kernels.decode_attention import Entries, Room, attend

    device = pages.k.device
    entries = Entries(
        normal(1, HEADS * 512),
        torch.zeros_like(normal(1, HEADS * 256)),
        torch.tensor([ROW_PAGES * 64 + 5], device=device),
        active=torch.ones(1, device=device, dtype=torch.int32),
    )
    before = copy_of(pages)
    attend(entries, turns, pages, Room.make(1, HEADS, 1, device))
    changed = (pages.k != before.k).flatten(1).any(1).nonzero().flatten().tolist()
    assert changed == [int(pages.tables[0, -1])]
    assert entries.out.isfinite().all()


def test_prefill_of_several_rows_equals_position_after_position(normal, turns, pages):
    from omnirt.kernels.decode_attention import Entries, Room, attend, place, reference

    device = pages.k.device
    owners = torch.tensor([0, 0, 0, 2, 2, 3, 3], device=device, dtype=torch.int32)
    at = torch.tensor([62, 63, 64, 0, 1, 0, 0], device=device)
    mixed, out = normal(7, HEADS * 512), torch.zeros_like(normal(7, HEADS * 256))
    mixed[5:] = 0
    twin, want = copy_of(pages), []
    for c in range(7):
        one = Entries(mixed[c : c + 1], out[c : c + 1], at[c : c + 1], owners=owners[c : c + 1])
        want.append(reference(one, turns, twin))
    entries = Entries(mixed, out, at, owners=owners)
    place(entries, turns, pages)
    attend(entries, turns, pages, Room.make(7, HEADS, 1, device))
    assert error(out[:5], torch.cat(want)[:5]) < TOLERANCE
    assert error(pages.k, twin.k) < 1e-3
    assert torch.equal(pages.v, twin.v)
    assert out.isfinite().all()


def test_with_rows_that_were_not_normed_the_norm_is_applied(normal, turns, pages):
    from omnirt.kernels.decode_attention import Entries, Room, attend, place, reference

    device = pages.k.device
    at, out = torch.tensor([63, 130, 7], device=device), normal(3, HEADS * 256)
    x, mixed = 3 * normal(3, 64), normal(3, HEADS * 512)
    active, owners = (torch.tensor(v, device=device, dtype=torch.int32) for v in ([1, 1, 1], [0, 1, 2]))
    twin, written = copy_of(pages), copy_of(pages)
    want = reference(Entries(mixed, out, at, active=active, x=x), turns, twin)
    attend(Entries(mixed, out, at, active=active, x=x), turns, pages, Room.make(3, HEADS, 1, device))
    assert error(out, want) < TOLERANCE
    entries = Entries(mixed.clone(), out.clone(), at, owners=owners, x=x)
    place(entries, turns, written)
    attend(entries, turns, written, Room.make(3, HEADS, 1, device))
    assert error(entries.out, want) < TOLERANCE
    for found in (pages, written):
        assert error(found.k, twin.k) < 1e-3
        assert error(found.v, twin.v) < 1e-3
