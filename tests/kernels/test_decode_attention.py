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
    from omnirt.kernels.frame_layout import DecoderShape
    from omnirt.kernels.frame_predictor import rotary
    from omnirt.kernels.page_attention import Turns

    shape = DecoderShape(width=64, feed=64, layers=1, heads=2 * HEADS, kv_heads=HEADS, head=128, eps=1e-6, theta=1e6)
    return Turns(1 + 0.1 * normal(128), 1 + 0.1 * normal(128), rotary(shape, ROW_PAGES * 64, normal(1).device))


@pytest.fixture
def pages(normal):
    from omnirt.kernels.page_attention import Pages

    order = torch.randperm(PAGES - 1, generator=torch.Generator().manual_seed(7)) + 1
    tables = torch.cat([order[:9], torch.zeros(3, dtype=order.dtype)]).view(4, ROW_PAGES).int()
    keys, values = normal(PAGES, HEADS, 64, 128), normal(PAGES, HEADS, 64, 128)
    return Pages(keys, values, tables.to(keys.device), ROW_PAGES)


def copy_of(pages):
    return pages._replace(k=pages.k.clone(), v=pages.v.clone())


@pytest.fixture
def cut(triton_device, monkeypatch):
    """Rows are cut so, from now on; parts that are not a row's first are for few programs."""
    from omnirt.kernels import attention_parts, decode_attention

    monkeypatch.setattr(decode_attention, "_SHARING", 3)

    def to(longest, parts=16):
        monkeypatch.setattr(decode_attention, "LONGEST", longest)
        for place in (attention_parts, decode_attention):
            monkeypatch.setattr(place, "PARTS", parts)

    return to


@pytest.fixture
def room(triton_device):
    from omnirt.kernels.attention_parts import AttentionRoom

    return lambda rows: AttentionRoom.make(rows, HEADS, triton_device)


def integers(pages, *values):
    return torch.tensor(values, device=pages.k.device, dtype=torch.int32)


@pytest.mark.parametrize("cut_to", [(512,), (64,), (64, 2)], ids=["whole", "parts", "few parts"])
def test_a_new_position_attends_over_its_pages(normal, turns, pages, room, cut, cut_to):
    from omnirt.kernels.decode_attention import attend
    from omnirt.kernels.page_attention import Entries, reference

    cut(*cut_to)
    at = integers(pages, 63, 191, 7, 0).long()
    out = torch.full_like(normal(4, HEADS * 256), float("nan"))
    entries = Entries(normal(4, HEADS * 512), out, at, active=integers(pages, 1, 1, 0, 1))
    twin, own = copy_of(pages), room(4)
    want = reference(entries, turns, twin)
    for _ in range(2):  # the second time with what the first has left in the room
        attend(entries, turns, pages, own)
        assert error(out, want) < TOLERANCE
        assert error(pages.k, twin.k) < 1e-3
        assert torch.equal(pages.v, twin.v)
        assert not own.counts.any()


def test_a_long_row_has_parts_and_a_row_alone_has_more(normal, room, turns, cut):
    from omnirt.kernels.attention_parts import LONGEST, LONGEST_ALONE, PARTS
    from omnirt.kernels.decode_attention import attend
    from omnirt.kernels.frame_layout import DecoderShape
    from omnirt.kernels.frame_predictor import rotary
    from omnirt.kernels.page_attention import Entries, Pages, reference

    row_pages = LONGEST // 64 + 2
    keys, values = normal(1 + 2 * row_pages, HEADS, 64, 128), normal(1 + 2 * row_pages, HEADS, 64, 128)
    tables = torch.randperm(2 * row_pages, generator=torch.Generator().manual_seed(8)).view(2, row_pages).int() + 1
    pages = Pages(keys, values, tables.to(keys.device), row_pages)
    shape = DecoderShape(width=64, feed=64, layers=1, heads=4, kv_heads=2, head=128, eps=1e-6, theta=1e6)
    turns = turns._replace(rotary=rotary(shape, row_pages * 64, keys.device))
    mixed, out, own = normal(2, HEADS * 512), torch.zeros_like(normal(2, HEADS * 256)), room(2)
    at = integers(pages, LONGEST + 1, LONGEST).long()
    entries = Entries(mixed, out, at, active=integers(pages, 1, 1))
    want = reference(entries, turns, copy_of(pages))
    own.sums.zero_()
    attend(entries, turns, pages, own)
    assert error(out, want) < TOLERANCE
    used = own.sums.view(2, HEADS, PARTS, 256).any(-1)
    assert used.sum(-1).tolist() == [[2] * HEADS, [0] * HEADS]
    one = Entries(*(t[:1] for t in entries[:4]))
    attend(one, turns, pages, own)
    assert error(out, want) < TOLERANCE
    used = own.sums.view(2, HEADS, PARTS, 256).any(-1)
    assert used[0].sum(-1).tolist() == [LONGEST // LONGEST_ALONE + 1] * HEADS


def test_a_row_gets_the_same_whoever_is_with_it_and_however_many_rows_there_are(normal, turns, pages, room, cut):
    from omnirt.kernels.decode_attention import attend
    from omnirt.kernels.page_attention import Entries

    cut(64)
    mixed, out, own = normal(4, HEADS * 512), torch.zeros_like(normal(4, HEADS * 256)), room(4)

    def run(rows, at, active):
        found = torch.full_like(out[:rows], float("nan"))
        entries = Entries(mixed[:rows], found, integers(pages, *at).long(), active=integers(pages, *active))
        attend(entries, turns, copy_of(pages), own)
        return found

    for length in (63, 64, 65, 128, 150):
        among = run(4, (length, 190, 3, 70), (1, 1, 1, 1))[0]
        assert torch.equal(run(4, (length, 5, 100, 0), (1, 1, 1, 0))[0], among)
        assert torch.equal(run(3, (length, 5, 100), (1, 0, 0))[0], among)
        assert torch.equal(run(2, (length, 129), (1, 1))[0], among)


def test_a_row_behind_its_last_page_reads_and_writes_nothing_of_others(normal, turns, pages, room, cut):
    from omnirt.kernels.decode_attention import attend
    from omnirt.kernels.page_attention import Entries

    device = pages.k.device
    entries = Entries(
        normal(1, HEADS * 512),
        torch.zeros_like(normal(1, HEADS * 256)),
        torch.tensor([ROW_PAGES * 64 + 5], device=device),
        active=torch.ones(1, device=device, dtype=torch.int32),
    )
    before = copy_of(pages)
    attend(entries, turns, pages, room(1))
    changed = (pages.k != before.k).flatten(1).any(1).nonzero().flatten().tolist()
    assert changed == [int(pages.tables[0, -1])]
    assert entries.out.isfinite().all()


def test_prefill_of_several_rows_equals_position_after_position(normal, turns, pages):
    from omnirt.kernels.page_attention import Entries, reference
    from omnirt.kernels.prefill_attention import attend_placed, place

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
    attend_placed(entries, pages)
    assert error(out[:5], torch.cat(want)[:5]) < TOLERANCE
    assert error(pages.k, twin.k) < 1e-3
    assert torch.equal(pages.v, twin.v)
    assert out.isfinite().all()


def test_with_rows_that_were_not_normed_the_norm_is_applied(normal, turns, pages, room, cut):
    from omnirt.kernels.decode_attention import attend
    from omnirt.kernels.page_attention import Entries, reference
    from omnirt.kernels.prefill_attention import attend_placed, place

    device = pages.k.device
    at, out = torch.tensor([63, 130, 7], device=device), normal(3, HEADS * 256)
    x, mixed = 3 * normal(3, 64), normal(3, HEADS * 512)
    active, owners = (torch.tensor(v, device=device, dtype=torch.int32) for v in ([1, 1, 1], [0, 1, 2]))
    twin, written = copy_of(pages), copy_of(pages)
    want = reference(Entries(mixed, out, at, active=active, x=x), turns, twin)
    attend(Entries(mixed, out, at, active=active, x=x), turns, pages, room(3))
    assert error(out, want) < TOLERANCE
    entries = Entries(mixed.clone(), out.clone(), at, owners=owners, x=x)
    place(entries, turns, written)
    attend_placed(entries, written)
    assert error(entries.out, want) < TOLERANCE
    for found in (pages, written):
        assert error(found.k, twin.k) < 1e-3
        assert error(found.v, twin.v) < 1e-3
