"""The frame step of a GPU at full size: correctness against the plain step in float32, then times, memory, start.

    python bench/frame_step.py [inner] [check] [time] [again] [eight] [unbounded] [lost] [1.7B] [0.6B] [rows ...]

Random weights, bfloat16, pages in random order. Times are of graph replays, 3 warm-ups, median of 15. `inner`: the
inner passes alone, checked and timed; `again`: a start with kept machine code; `eight`: weights of 8 bits; `unbounded`:
without bounds on the waits, to see what they cost; `lost`: a launch that loses a block must fail. Needs an H200.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from frame_step_check import check
from frame_step_inner import inner
from frame_step_model import LONG_PAGES, PREFILL_MAX, SHAPES, copied, log, made, put, rand, results, rows_of, wide

from omnirt.actors.engines.frame.graph_memory import planned_bytes
from omnirt.actors.engines.frame.graph_step import GraphStep, buckets_of, sizes_of
from omnirt.actors.engines.frame.step import Piece
from omnirt.kernels import frame_pairs, frame_predictor, talker_step
from omnirt.kernels.frame_layout import FrameRows, FrameShape, FrameWeights

TARGETS = {1: 1.90, 8: 2.42, 16: 2.72, 32: 3.55, 64: 4.35}
"""Of 1.7B, from the prototype (bench/notes.md)."""


def time_ms(work: Callable[[], None], before: Callable[[], None], repeats: int = 15) -> float:
    times = []
    for _ in range(repeats + 3):
        before()
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        work()
        b.record()
        b.synchronize()
        times.append(a.elapsed_time(b))
    return statistics.median(times[3:])


def time_frames(step: GraphStep, name: str, sizes: list[int], note: str = "") -> None:
    state = step.state
    for sampling in (state.first, state.inner):
        sampling.temperature.fill_(0.9)
    mixed = torch.randint(20, 600, state.positions.shape, device="cuda")
    for bucket in sizes:
        state.active.zero_()
        state.active[:bucket] = 1

        def one_long(positions: int) -> torch.Tensor:
            return torch.full_like(mixed, 100).index_fill_(0, mixed.new_zeros(1), positions)

        def rewind(to: torch.Tensor | int) -> None:
            state.positions.copy_(to) if isinstance(to, torch.Tensor) else state.positions.fill_(to)
            state.steps.zero_()
            state.seen.zero_()

        same = time_ms(lambda b=bucket: step.run(b), lambda: rewind(300))
        other = time_ms(lambda b=bucket: step.run(b), lambda: rewind(mixed))
        far = time_ms(lambda b=bucket: step.run(b), lambda: rewind(600))
        long = [time_ms(lambda b=bucket: step.run(b), lambda n=n: rewind(one_long(n))) for n in (100, 1000, 4000)]
        state.active[1:] = 0
        few = time_ms(lambda b=bucket: step.run(b), lambda: rewind(300))
        target = f" (target {TARGETS[bucket]})" if name == "1.7B" and bucket in TARGETS else ""
        log(
            f"TIME {name}{note} rows {bucket}: {same:.3f} ms at 300{target}, {other:.3f} at 20 to 600, "
            f"{far:.3f} at 600, {few:.3f} with one row active; {bucket * 80 / same:.0f} audio-s/s without the decoder"
        )
        log(f"     {long[0]:.3f} ms at 100, {long[1]:.3f} with one row at 1000, {long[2]:.3f} with one at 4000")
        results[f"time {name}{note} {bucket}"] = [same, other, far, few, *long]


def time_prefill(step: GraphStep, name: str) -> None:
    width = step.shape.backbone.width
    for size in sizes_of(PREFILL_MAX):
        x = rand(size, width, k=1.0)
        first = time_ms(lambda x=x: step.prefill([Piece(0, 0, x)]), lambda: None)
        later = time_ms(lambda x=x: step.prefill([Piece(0, 448, x)]), lambda: None)
        replay = time_ms(lambda s=size: step._prefills[s].replay(), lambda: None)
        log(f"TIME {name} prefill {size}: {first:.3f} ms from 0, {later:.3f} from 448; graph alone {replay:.3f}")
        results[f"prefill {name} {size}"] = [first, later, replay]


def make_step(
    shape: FrameShape, weights: FrameWeights, state: FrameRows, folder: Path, name: str, bits: int = 16
) -> GraphStep:
    p = weights.predictor
    own = replace(weights, predictor=replace(p, layers=list(p.layers), heads=list(p.heads)))
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before, free, at = torch.cuda.memory_allocated(), torch.cuda.mem_get_info()[0], time.time()
    step = GraphStep(shape, own, state, buckets_of(64), PREFILL_MAX, bits=bits, folder=folder)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()

    def mib(size: int) -> str:
        return f"{size / 2**20:.0f}"

    planned = planned_bytes(shape, buckets_of(64), PREFILL_MAX, LONG_PAGES, bits=bits)
    log(
        f"MADE {name} in {time.time() - at:.1f} s; allocated {mib(torch.cuda.memory_allocated() - before)} MiB, "
        f"of the device {mib(free - torch.cuda.mem_get_info()[0])}, peak {mib(torch.cuda.max_memory_allocated())}; "
        f"bytes { ({k: mib(v) for k, v in step.bytes.items()}) }, planned { ({k: mib(v) for k, v in planned.items()}) }"
    )
    return step


def profile_start() -> None:
    """How long each part of making a step takes, printed as it happens."""
    from omnirt.actors.engines.frame import graph_fused, graph_step
    from omnirt.kernels import cuda_module

    def timed(place: object, name: str, note: Callable[..., object]) -> None:
        inner = getattr(place, name)

        def outer(*args: object, **more: object) -> object:
            at = time.time()
            result = inner(*args, **more)
            torch.cuda.synchronize()
            if time.time() - at > 0.05:
                log(f"   {name} {note(*args)}: {time.time() - at:.2f} s")
            return result

        setattr(place, name, outer)

    timed(graph_step, "_captured", lambda work, size, *_: f"{work.__name__} {size}")
    timed(talker_step, "pack_talker", lambda *_: "")
    timed(frame_predictor, "pack_rows", lambda *_: "")
    timed(frame_predictor, "pack_solo", lambda *_: "")
    timed(frame_pairs, "pack_pairs", lambda *_: "")
    timed(frame_predictor, "pack_shared", lambda *_: "")
    timed(graph_fused.FusedForm, "__init__", lambda *_: "")
    compile_source = cuda_module.compile_source

    def compiled(*args: object) -> object:
        at = time.time()
        result = compile_source(*args)  # type: ignore[arg-type]
        log(f"   compiled in {time.time() - at:.2f} s")
        return result

    cuda_module.compile_source = compiled  # type: ignore[assignment]


def with_definition(name: str, value: int) -> None:
    """All kernels from now on with one more definition."""
    predictors = frame_predictor.SoloPredictor, frame_predictor.RowsPredictor, frame_pairs.PairsPredictor
    for place in (*predictors, talker_step.TalkerStep):
        program = place.program

        def more(*args: object, of: Callable[..., object] = program) -> object:
            made_program = of(*args)
            return made_program._replace(definitions=(*made_program.definitions, (name, value)))  # type: ignore[attr-defined]

        place.program = staticmethod(more)


def lose_a_block(bucket: int) -> None:
    """In a process of its own: a launch with a lost block must end as an error."""
    with_definition("LOST", 5)
    shape = replace(SHAPES["1.7B"], backbone=replace(SHAPES["1.7B"].backbone, layers=2))
    state = rows_of(shape, max(8, bucket))
    at = time.time()
    try:
        GraphStep(shape, made(shape), state, (bucket,), 16, folder=Path(tempfile.gettempdir()) / "lost")
        torch.cuda.synchronize()
        log(f"LOST {bucket}: nothing happened")
    except RuntimeError as error:
        log(f"LOST {bucket}: after {time.time() - at:.1f} s: {str(error).splitlines()[0]}")
    os._exit(0)


def measure(model: str, argv: list[str], sizes: list[int], folder: Path) -> None:
    shape = SHAPES[model]
    weights, state = made(shape), rows_of(shape, 64)
    step = make_step(shape, weights, state, folder, model)
    start = copied(state)
    if "inner" in argv:
        inner(step, wide(weights), model, sizes)
    if "check" in argv:
        check(step, wide(weights), model, sizes, start)
    put(state, start)
    if "time" in argv:
        time_frames(step, model, sizes)
        time_prefill(step, model)
    if "again" in argv:
        del step
        make_step(shape, weights, state, folder, model + " again")
    if "eight" in argv and model == "1.7B":
        step = make_step(shape, weights, state, folder, model + " 8 bits", 8)
        put(state, start)
        time_frames(step, model, [b for b in sizes if b <= 16], " 8 bits")
    if "unbounded" in argv and model == "1.7B":
        with_definition("UNBOUNDED", 1)
        step = make_step(shape, weights, state, folder, model + " unbounded")
        put(state, start)
        time_frames(step, model, sizes, " unbounded")


def main(argv: list[str]) -> None:
    torch.set_grad_enabled(False)
    torch.backends.cuda.matmul.allow_tf32 = False
    sizes = [int(a) for a in argv if a.isdigit()] or list(TARGETS)
    if "lose" in argv:
        lose_a_block(sizes[0])
    log(torch.__version__, torch.cuda.get_device_name(), torch.cuda.mem_get_info()[0] >> 20, "MiB free")
    profile_start()
    with tempfile.TemporaryDirectory() as name:
        for model in [a for a in argv if a in SHAPES] or list(SHAPES):
            measure(model, argv, sizes, Path(name))
            torch.cuda.empty_cache()
    if "lost" in argv:
        for bucket in ("1", "8", "64"):
            subprocess.run([sys.executable, __file__, "lose", bucket], check=False, timeout=120)
    if out := os.environ.get("OUT"):
        Path(out, "frame_step.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
