"""Attention over a ring of keys, against all keys at once: any chunks, reused slots, rows of different lengths."""

import pytest

torch = pytest.importorskip("torch")

HEADS, WIDTH, WINDOW, RING, SLOTS = 2, 32, 7, 16, 3


@pytest.fixture(scope="module")
def kernel(triton_device):
    from omnirt.kernels import window_attention

    torch.manual_seed(0)
    return window_attention


@pytest.fixture(params=["float32", "bfloat16"])
def kind(request, triton_device):
    if triton_device == "cpu" and request.param == "bfloat16":
        pytest.skip("the interpreter neither rounds nor multiplies bfloat16 as a device does")
    return request.param


@pytest.fixture
def turns(kernel, triton_device):
    angles = torch.arange(64)[:, None] * 0.3 ** torch.arange(WIDTH // 2)
    return kernel.Turns(angles.cos().to(triton_device), angles.sin().to(triton_device))


class Stream:
    """Rows that share calls; each has its own slot and position. All that was there before them is rubbish."""

    def __init__(self, kernel, turns, kind, device):
        self.kernel, self.turns, self.kind, self.device = kernel, turns, kind, device
        rubbish = torch.full((1, SLOTS, HEADS, RING, WIDTH), float("nan"), dtype=kind, device=device)
        self.cache = kernel.Cache(rubbish, rubbish.clone())
        self.positions = torch.zeros(SLOTS, dtype=torch.int32, device=device)

    def call(self, chunks, frames):
        """{slot: [t, 3 * heads * width]} -> what each attended to."""
        from omnirt.kernels.tap_layout import Extent, View

        mixed = torch.randn(len(chunks), frames, 3 * HEADS * WIDTH).to(self.device, self.kind)
        lengths = torch.tensor([len(chunk) for chunk in chunks.values()], dtype=torch.int32, device=self.device)
        for row, chunk in enumerate(chunks.values()):
            mixed[row, : len(chunk)] = chunk
        out = torch.zeros(len(chunks), frames, HEADS * WIDTH, dtype=self.kind, device=self.device)
        slots = torch.tensor(list(chunks), dtype=torch.int32, device=self.device)
        self.kernel.attend_window(
            View(mixed, mixed[0].numel()),
            self.turns,
            self.cache,
            self.kernel.RowState(slots, self.positions, lengths),
            View(out, out[0].numel()),
            Extent(len(chunks), frames, 1),
            layer=0,
            window=WINDOW,
        )
        self.positions[slots.long()] += lengths
        return [out[row, :length] for row, length in enumerate(lengths.tolist())]


def test_chunks_of_any_size_attend_as_all_at_once(kernel, turns, triton_device, kind):
    dtype = getattr(torch, kind)
    rows = [torch.randn(40, 3 * HEADS * WIDTH).to(triton_device, dtype) for _ in range(2)]
    stream, at, got = Stream(kernel, turns, dtype, triton_device), [0, 0], [[], []]
    for lengths in ((1, 4), (9, 0), (3, 10), (10, 10), (10, 8), (7, 8)):
        chunks = {slot + 1: rows[slot][at[slot] : at[slot] + n] for slot, n in enumerate(lengths)}
        for slot, found in enumerate(stream.call(chunks, 10)):
            got[slot].append(found)
            at[slot] += lengths[slot]
    nothing = torch.zeros(HEADS, 0, WIDTH, device=triton_device)
    for row, parts in zip(rows, got, strict=True):
        want, _ = kernel.reference(row, turns, kernel.Cache(nothing, nothing), 0, WINDOW)
        tolerance = kernel.FLOAT32_TOLERANCE if kind == "float32" else kernel.TOLERANCE
        assert (torch.cat(parts).float() - want).abs().max() < tolerance


def test_how_frames_are_cut_into_chunks_changes_no_bit(kernel, turns, triton_device, kind):
    dtype = getattr(torch, kind)
    row = torch.randn(24, 3 * HEADS * WIDTH).to(triton_device, dtype)
    found = []
    for sizes in ([1] * 24, [10, 10, 4], [3] * 8):
        stream, at, parts = Stream(kernel, turns, dtype, triton_device), 0, []
        for n in sizes:
            parts += stream.call({0: row[at : at + n]}, n)
            at += n
        found.append(torch.cat(parts))
    for other in found[1:]:
        if triton_device == "cuda":
            assert torch.equal(found[0], other)
        assert (found[0] - other).abs().max() < kernel.FLOAT32_TOLERANCE  # the interpreter sums by where a row lies
