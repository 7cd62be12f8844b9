"""The inner passes of a GPU's frame step alone: logits and codes against the twin, and times. See frame_step.py."""

from __future__ import annotations

import statistics

import torch
from frame_step_check import taking
from frame_step_model import PREFILL_MAX, copied, log, rand, rel, results

from omnirt.actors.engines.frame.graph_step import GraphStep
from omnirt.kernels.frame_layout import FrameWeights, Sampling
from omnirt.kernels.frame_predictor import WIDTH, Draw
from omnirt.kernels.frame_reference import PlainStep
from omnirt.kernels.frame_reference_draw import draw

AGAIN = 100
EXPECTED_MS = {1: 1.01, 8: 1.41, 16: 1.55, 32: 1.84, 64: 2.34}
"""Of 1.7B, sampled, from the prototype (bench/notes.md)."""


def inner(step: GraphStep, wide_weights: FrameWeights, name: str, sizes: list[int]) -> None:
    for bucket in sizes:
        for rows in (bucket, bucket - 3, bucket // 2 + 1) if bucket > 8 else (bucket,):
            check_inner(step, wide_weights, name, bucket, rows)
        time_inner(step, name, bucket)


class Passes:
    """The predictor of one bucket with inputs of its own."""

    def __init__(self, step: GraphStep, bucket: int, rows: int, top_p: float = 1.0) -> None:
        torch.manual_seed(rows)
        width, self._form = step.shape.backbone.width, step._form
        self._predictor = self._form._predictors[bucket]
        self.hidden = torch.zeros(rows, WIDTH, device="cuda", dtype=torch.bfloat16)
        self.hidden[:, :width] = rand(rows, width, k=1.0)
        self.codes = torch.randint(0, step.shape.codes, (rows, step.shape.books), device="cuda", dtype=torch.int32)
        by_row = [torch.full((rows,), v, device="cuda") for v in (0.9, 50, top_p)]
        seed = torch.arange(rows, device="cuda") * 7919 + (3 << 40)
        steps = torch.full((rows,), 5, device="cuda", dtype=torch.int32)
        self.draw = Draw(by_row[0], by_row[1].int(), by_row[2], seed, steps)

    def run(self, logits: torch.Tensor | None = None) -> None:
        self._predictor.run(self.hidden, self.codes, self.draw, self._form._mail, logits=logits)


def check_inner(step: GraphStep, wide_weights: FrameWeights, name: str, bucket: int, rows: int) -> None:
    """Logits as float32 has them for these codes; codes as the twin draws them from these logits; always the same."""
    shape, equal, again = step.shape, [], 0
    for top_p in (1.0, 0.8):
        passes = Passes(step, bucket, rows, top_p)
        logits = torch.full((shape.books - 1, rows, shape.codes), float("nan"), device="cuda")
        passes.run(logits)
        sampling, steps = Sampling(*passes.draw[:4]), passes.draw.step.long()
        drawn = torch.stack([draw(one, n, steps, sampling) for n, one in enumerate(logits, 1)], 1)
        equal.append(int((drawn == passes.codes[:, 1:]).sum()))
        codes = passes.codes.clone()
        for _ in range(AGAIN):
            passes.run()
            again += int((passes.codes != codes).any())
    plain = PlainStep(shape, wide_weights, copied(step.state, torch.float32), PREFILL_MAX, (rows,), fixed=True)
    with taking(codes.long()) as want:
        plain._inner(passes.hidden[:, : shape.backbone.width].float(), codes[:, 0].long(), steps, sampling)
    error = rel(logits, torch.stack(want))
    log(
        f"INNER {name} rows {rows}: logits error {error:.1e}, sampled codes equal to the twin's {equal[0]} and "
        f"{equal[1]} of {(shape.books - 1) * rows}, of {2 * AGAIN} equal runs {again} differ"
    )
    results[f"inner {name} {rows}"] = [error, *equal, again]


def time_inner(step: GraphStep, name: str, bucket: int) -> None:
    passes = Passes(step, bucket, bucket)
    passes.run()
    graph, times = torch.cuda.CUDAGraph(), []
    with torch.cuda.graph(graph):
        passes.run()
    for _ in range(18):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        graph.replay()
        b.record()
        b.synchronize()
        times.append(a.elapsed_time(b))
    median = statistics.median(times[3:])
    log(f"TIME {name} inner passes of {bucket}: {median:.3f} ms sampled (expected {EXPECTED_MS.get(bucket)})")
    results[f"time inner {name} {bucket}"] = median
