"""A tiny codec-frame model of random numbers, the plain step on it, and a step that only counts."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from omnirt.actors.engines.frame.engine import FrameEngine  # noqa: E402
from omnirt.kernels.frame_layout import (  # noqa: E402
    DecoderShape,
    FrameRows,
    FrameShape,
    FrameWeights,
    LayerWeights,
    PredictorWeights,
)
from omnirt.kernels.frame_reference import PlainStep  # noqa: E402

SHAPE = FrameShape(
    DecoderShape(width=32, feed=48, layers=2, heads=4, kv_heads=2, head=16, eps=1e-6, theta=1e4),
    DecoderShape(width=24, feed=40, layers=2, heads=4, kv_heads=1, head=8, eps=1e-6, theta=1e4),
    vocab=40,
    codes=30,
    books=4,
    stop_code=33,
)


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Products this small only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def made_weights():
    draws = torch.Generator().manual_seed(3)

    def matrix(*size):
        return torch.randn(*size, generator=draws) * 1.3 / size[-1] ** 0.5

    def layer(s):
        wide, inner = (s.heads + 2 * s.kv_heads) * s.head, s.heads * s.head
        return LayerWeights(
            torch.ones(s.width),
            matrix(wide, s.width),
            torch.ones(s.head),
            torch.ones(s.head),
            matrix(s.width, inner),
            torch.ones(s.width),
            matrix(s.feed, s.width),
            matrix(s.feed, s.width),
            matrix(s.width, s.feed),
        )

    back, inner = SHAPE.backbone, SHAPE.predictor
    predictor = PredictorWeights(
        [layer(inner) for _ in range(inner.layers)],
        torch.ones(inner.width),
        matrix(inner.width, back.width),
        matrix(inner.width),
        [matrix(SHAPE.codes, inner.width) * 2 for _ in range(SHAPE.books - 1)],
    )
    return FrameWeights(
        [layer(back) for _ in range(back.layers)],
        torch.ones(back.width),
        matrix(SHAPE.vocab, back.width) * 2,
        matrix(SHAPE.vocab, back.width) * 4,
        matrix(SHAPE.books - 1, SHAPE.codes, back.width) * 4,
        predictor,
    )


@pytest.fixture(scope="session")
def weights():
    return made_weights()


class Watched(PlainStep):
    """The plain step; remembers what it was asked, and fails when told to."""

    def __init__(self, *args):
        super().__init__(*args)
        self.calls = []
        self.fail = ""

    def prefill(self, pieces):
        if self.fail == "prefill":
            raise RuntimeError("prefill")
        self.calls.append(("prefill", [(row, start, len(rows)) for row, start, rows in pieces]))
        super().prefill(pieces)

    def run(self, bucket):
        if self.fail == "run":
            raise RuntimeError("run")
        self.calls.append(("run", bucket, self.state.active[:bucket].tolist()))
        super().run(bucket)


@pytest.fixture
def made(weights):
    """made(**options) -> (engine, step)."""

    def make(*, rows=4, row_pages=2, pages=0, lines=12, prefill_max=16, buckets=(1, 2, 4), **options):
        state = FrameRows.make(SHAPE, rows, pages or 1 + rows * row_pages, row_pages, lines, "cpu", torch.float32)
        step = Watched(SHAPE, weights, state, prefill_max, buckets)
        return FrameEngine(step, **options), step

    return make


@pytest.fixture(scope="session")
def inputs():
    """inputs(seed, positions, lines) -> prompt, text."""

    def make(seed, positions, lines):
        draws = torch.Generator().manual_seed(seed)
        width = SHAPE.backbone.width
        return torch.randn(positions, width, generator=draws), torch.randn(lines, width, generator=draws)

    return make


@pytest.fixture(scope="session")
def finish():
    """finish(engine, [sequences]) -> each one's frames as a list, and its reason."""

    def drive(engine, sequences, steps=400):
        frames, reasons = {s: [] for s in sequences}, dict.fromkeys(sequences, "")
        for _ in range(steps):
            for produced in engine.step([s for s in sequences if not reasons[s]]):
                frames[produced.sequence] += produced.codes.tolist()
                reasons[produced.sequence] = produced.finish_reason
                assert produced.codes.dtype == np.int32
                assert produced.codes.shape[1] == SHAPE.books
            if all(reasons.values()):
                return [(frames[s], reasons[s]) for s in sequences]
        raise AssertionError("it never ends")

    return drive
