"""The plain form is the published decoder, and pieces of any sizes are one stream."""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from omnirt.actors.engines.codec.form import PlainForm, Row  # noqa: E402
from omnirt.actors.engines.codec.plain import PlainDecoder, State  # noqa: E402

PARITY_TOLERANCE = 1e-5
STREAM_TOLERANCE = 1e-5


def test_samples_are_those_of_the_published_decoder(codec, reference):
    golden = json.loads(reference.GOLDEN.read_text())
    form = PlainForm(codec.shape, codec.weights, 2, "cpu", torch.float32)
    codes = np.array(golden["codes"], np.int32)
    got = np.stack(form.run(0, [Row(0, codes[0]), Row(1, codes[1])], heard=True).rows())
    assert np.abs(got - np.array(golden["samples"])).max() < PARITY_TOLERANCE


@pytest.mark.parametrize(("kind", "tolerance"), [("float64", 1e-10), ("float32", STREAM_TOLERANCE)])
def test_pieces_of_any_sizes_are_the_waveform_of_all_at_once(codec, reference, kind, tolerance):
    codes = reference.codes()[0]
    decoder = PlainDecoder(codec.shape, codec.weights, "cpu", getattr(torch, kind))
    state = State(codec.shape, 2, "cpu", getattr(torch, kind))
    with torch.inference_mode():
        whole = decoder.decode(codes[None], np.zeros(1, np.int64), state.rows([0]))
        parts, at = [], 0
        for n in (1, 1, 2, 3, 5, 8, 13, 6, 1):
            rows = state.rows([1])
            parts.append(decoder.decode(codes[None, at : at + n], state.positions[[1]], rows))
            state.keep([1], rows, n)
            at += n
    assert at == len(codes)
    assert whole.shape[1] == at * codec.shape.samples
    assert (torch.cat(parts, 1) - whole).abs().max() < tolerance


def test_rows_at_different_positions_share_a_call(codec, reference):
    codes = reference.codes()
    together = PlainForm(codec.shape, codec.weights, 2, "cpu", torch.float32)
    alone = PlainForm(codec.shape, codec.weights, 2, "cpu", torch.float32)
    for form in (together, alone):
        form.run(0, [Row(1, codes[1, :11])], heard=True)
    rows = [Row(0, codes[0, :6]), Row(1, codes[1, 11:17])]
    both = together.run(0, rows, heard=True).rows()
    for row, got in zip(rows, both, strict=True):
        assert np.abs(alone.run(0, [row], heard=True).rows()[0] - got).max() < STREAM_TOLERANCE
