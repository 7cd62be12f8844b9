"""The frame step of a GPU at full size: correctness against the plain step in float32, then times, memory, start.

    python bench/frame_step.py [check] [time] [lost] [1.7B] [0.6B] [rows ...]

Random weights, bfloat16, pages in random order. Times are of graph replays, 3 warm-ups, median of 15. Needs an H200.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from omnirt.actors.engines.frame.graph_memory import planned_bytes
from omnirt.actors.engines.frame.graph_step import GraphStep, buckets_of, sizes_of
from omnirt.actors.engines.frame.step import Piece
from omnirt.kernels import frame_predictor, frame_reference, talker_step
from omnirt.kernels.frame_layout import (
    PAGE,
    DecoderShape,
    FrameRows,
    FrameShape,
    FrameWeights,
    LayerWeights,
    PredictorWeights,
    Sampling,
)
from omnirt.kernels.frame_reference import PlainStep

PREDICTOR = DecoderShape(1024, 3072, 5, 16, 8, 128, 1e-6, 1e6)
SHAPES = {
    "1.7B": FrameShape(DecoderShape(2048, 6144, 28, 16, 8, 128, 1e-6, 1e6), PREDICTOR, 3072, 2048, 16, 2150),
    "0.6B": FrameShape(DecoderShape(1024, 3072, 28, 16, 8, 128, 1e-6, 1e6), PREDICTOR, 3072, 2048, 16, 2150),
}
TARGETS = {1: 1.90, 8: 2.42, 16: 2.72, 32: 3.65, 64: 5.08}
ROW_PAGES, LINES, PREFILL_MAX = 10, 32, 128
T0 = time.time()
results: dict[str, object] = {}


def log(*parts: object) -> None:
    print(f"[{time.time() - T0:6.1f}]", *parts, flush=True)


def rel(got: torch.Tensor, want: torch.Tensor) -> float:
    return float((got.double() - want.double()).norm() / want.double().norm())


def rand(*size: int, k: float = 0.02) -> torch.Tensor:
    return (torch.randn(*size, device="cuda") * k).bfloat16()


def norm(n: int) -> torch.Tensor:
    return (1 + 0.1 * torch.randn(n, device="cuda")).bfloat16()


def layer(s: DecoderShape) -> LayerWeights:
    wide, inner = (s.heads + 2 * s.kv_heads) * s.head, s.heads * s.head
    matrices = rand(s.feed, s.width), rand(s.feed, s.width), rand(s.width, s.feed)
    tail = rand(s.width, inner), norm(s.width), *matrices
    return LayerWeights(norm(s.width), rand(wide, s.width), norm(s.head), norm(s.head), *tail)


def made(shape: FrameShape) -> FrameWeights:
    torch.manual_seed(1)
    b, p = shape.backbone, shape.predictor
    narrow = b.width != p.width
    predictor = PredictorWeights(
        [layer(p) for _ in range(p.layers)],
        norm(p.width),
        rand(p.width, b.width) if narrow else None,
        rand(p.width) if narrow else None,
        [rand(shape.codes, p.width) for _ in range(shape.books - 1)],
    )
    layers = [layer(b) for _ in range(b.layers)]
    embed, embeds = rand(shape.vocab, b.width, k=0.3), rand(shape.books - 1, shape.codes, b.width, k=0.3)
    return FrameWeights(layers, norm(b.width), rand(shape.vocab, b.width), embed, embeds, predictor)


def wide(weights: FrameWeights) -> FrameWeights:
    """A copy in float32."""

    def up(value: torch.Tensor) -> torch.Tensor:
        return value.float() if isinstance(value, torch.Tensor) else value

    def layers(many: list[LayerWeights]) -> list[LayerWeights]:
        return [LayerWeights(*(up(v) for v in vars(one).values())) for one in many]

    p = weights.predictor
    predictor = PredictorWeights(layers(p.layers), up(p.norm), up(p.projection), up(p.bias), [up(h) for h in p.heads])
    rest = (up(weights.norm), up(weights.head), up(weights.embed), up(weights.embeds))
    return FrameWeights(layers(weights.layers), *rest, predictor)


def rows_of(shape: FrameShape, rows: int, *, heat: float = 0.0, filled: bool = True) -> FrameRows:
    torch.manual_seed(2)
    state = FrameRows.make(shape, rows, rows * ROW_PAGES + 1, ROW_PAGES, LINES, "cuda", torch.bfloat16)
    order = torch.randperm(rows * ROW_PAGES, device="cuda") + 1
    state.tables[:rows] = order.view(rows, ROW_PAGES).int()
    state.suppressed[shape.codes :] = -1e30
    state.suppressed[shape.stop_code] = 0
    state.text[:] = rand(*state.text.shape, k=1.0)
    state.lines.fill_(LINES)
    state.x[:] = rand(*state.x.shape, k=1.0)
    state.penalty.fill_(1.05)
    state.least.fill_(1 << 30)
    for sampling in (state.first, state.inner):
        sampling.temperature.fill_(heat)
        sampling.top_k.fill_(50)
        sampling.seed[:] = torch.arange(rows + 1, device="cuda") * 7919
    if filled:
        for i in range(shape.backbone.layers):
            state.keys[i], state.values[i] = rand(*state.keys[i].shape, k=1.0), rand(*state.values[i].shape, k=1.0)
    return state


def copied(state: FrameRows, kind: torch.dtype | None = None) -> FrameRows:
    def one(value: torch.Tensor | Sampling) -> torch.Tensor | Sampling:
        if isinstance(value, Sampling):
            return Sampling(*(part.clone() for part in vars(value).values()))
        return value.to(kind) if kind and value.dtype == torch.bfloat16 else value.clone()

    return replace(state, **{f.name: one(getattr(state, f.name)) for f in fields(state)})


def put(state: FrameRows, other: FrameRows, caches: bool = True) -> None:
    for field in fields(state):
        mine, theirs = getattr(state, field.name), getattr(other, field.name)
        if isinstance(mine, Sampling):
            for name, tensor in vars(mine).items():
                tensor.copy_(vars(theirs)[name])
        elif caches or field.name not in ("keys", "values"):
            mine.copy_(theirs)


# ---------------------------------------------------------------- checks


class Judge:
    """The plain step in float32, given the codes that were chosen: each must be its best, or nearly."""

    def __init__(self, shape: FrameShape, weights: FrameWeights) -> None:
        self.shape, self.weights = shape, weights
        self.exact = self.near = self.total = 0
        self.worst = self.hidden = self.next = 0.0

    def look(self, before: FrameRows, after: FrameRows, bucket: int) -> None:
        """`before` in float32."""
        plain = PlainStep(self.shape, self.weights, before, PREFILL_MAX, (bucket,), fixed=True)
        rows = torch.arange(bucket, device="cuda")
        active = before.active[:bucket] != 0
        logits: list[torch.Tensor] = []
        codes = after.codes[:bucket].long()

        def given(values: torch.Tensor, book: int, *_: object) -> torch.Tensor:
            logits.append(values)
            return codes[:, book]

        kept, frame_reference.draw = frame_reference.draw, given
        hidden = plain._backbone(rows)
        plain._first(hidden, rows)
        plain._inner(after.hidden[:bucket].float(), codes[:, 0], before.steps[rows], frame_reference._of(before.inner, rows))
        frame_reference.draw = kept
        self.hidden = max(self.hidden, rel(after.hidden[:bucket][active], hidden[active]))
        self.next = max(self.next, rel(after.x[:bucket][active], plain._next(codes, rows, before.steps[rows])[active]))
        for book, whole in enumerate(logits):
            one, code = whole[active], codes[active, book]
            gap = (one.amax(-1) - one.gather(1, code[:, None])[:, 0]) / one[:, : self.shape.codes].std(-1)
            self.exact += int((gap == 0).sum())
            self.near += int(((gap > 0) & (gap < 0.05)).sum())
            self.total += len(gap)
            self.worst = max(self.worst, float(gap.max()))

    def __str__(self) -> str:
        return (
            f"float32's best {self.exact}/{self.total}, others within 0.05 of a deviation {self.near}, "
            f"worst gap {self.worst:.3f}, hidden error {self.hidden:.1e}, next input {self.next:.1e}"
        )


def check_frames(step: GraphStep, wide_weights: FrameWeights, name: str, bucket: int, frames: int) -> None:
    """Mixed lengths, some rows not active, pages in random order."""
    state, shape = step.state, step.shape
    torch.manual_seed(bucket)
    state.positions.copy_(torch.randint(1, 600, state.positions.shape, device="cuda"))
    state.positions[0] = 63
    state.active[:bucket] = (torch.rand(bucket, device="cuda") < 0.75).int()
    state.active[bucket:] = 0
    state.active[0] = 1
    judge = Judge(shape, wide_weights)
    untouched = True
    for _ in range(frames):
        before, keys = copied(state, torch.float32), state.keys[:].clone()
        step.run(bucket)
        torch.cuda.synchronize()
        idle = before.active == 0
        for part in ("x", "positions", "steps", "seen", "stopped"):
            untouched &= torch.equal(
                getattr(before, part)[idle], getattr(state, part)[idle].to(getattr(before, part).dtype)
            )
        changed = (state.keys != keys).flatten(4).any(-1).any(2).any(0).nonzero()
        on = before.active.nonzero()[:, 0]
        at = before.positions[on]
        want = torch.stack([state.tables[on, at // PAGE].long(), at % PAGE], 1)
        untouched &= sorted(changed.tolist()) == sorted(want.tolist())
        untouched &= torch.equal(before.positions + before.active, state.positions)
        judge.look(before, state, bucket)
        del before, keys
    log(f"CHECK {name} rows {bucket}: {judge}; the rest untouched: {untouched}")
    results[f"check {name} {bucket}"] = str(judge) + f" untouched {untouched}"


def check_prefill(step: GraphStep, wide_weights: FrameWeights, name: str) -> None:
    """Prompts of mixed lengths in pieces, then frames; the plain step has its own cache, in float32."""
    state, shape = step.state, step.shape
    torch.manual_seed(9)
    state.keys.zero_(), state.values.zero_(), state.active.zero_(), state.steps.zero_(), state.seen.zero_()
    lengths = [5, 37, 100, 129, 1, 64, 65]
    prompts = [rand(n + 1, shape.backbone.width, k=1.0) for n in lengths]
    plain_state = copied(state, torch.float32)
    plain = PlainStep(shape, wide_weights, plain_state, PREFILL_MAX, (8,), fixed=True)
    pieces = []
    for row, (n, prompt) in enumerate(zip(lengths, prompts, strict=True)):
        cuts = [0, n // 2, n] if n > 30 else [0, n]
        pieces += [Piece(row, a, prompt[a:b]) for a, b in itertools.pairwise(cuts)]
        plain.prefill([(row, 0, prompt[:n].float())])
    pending: list[Piece] = []
    for piece in [*pieces, None]:
        if piece is None or sum(len(p.rows) for p in pending) + len(piece.rows) > PREFILL_MAX:
            step.prefill(pending)
            pending = []
        if piece:
            pending.append(piece)
    torch.cuda.synchronize()
    keys = rel(state.keys[:, 1:], plain_state.keys[:, 1:])
    first_keys, values = (
        rel(state.keys[0, 1:], plain_state.keys[0, 1:]),
        rel(state.values[:, 1:], plain_state.values[:, 1:]),
    )
    for row, (n, prompt) in enumerate(zip(lengths, prompts, strict=True)):
        for s in (state, plain_state):
            s.x[row], s.positions[row], s.active[row] = prompt[n].to(s.x.dtype), n, 1
    judge = Judge(shape, wide_weights)
    for _ in range(3):
        for part in ("x", "positions", "steps", "seen", "active"):
            getattr(plain_state, part).copy_(getattr(state, part))
        step.run(8)
        torch.cuda.synchronize()
        judge.look(plain_state, state, 8)
    caches = f"keys {keys:.1e} (first layer {first_keys:.1e}), values {values:.1e}"
    log(f"CHECK {name} prefill of {lengths}: {caches}; frames: {judge}")
    results[f"check prefill {name}"] = f"{caches}; {judge}"


def check_alone(step: GraphStep, name: str, bucket: int) -> None:
    """Bit for bit: rows among others, the same rows among other others, and with nobody else."""
    state = step.state
    state.active[:bucket], state.active[bucket:] = 1, 0
    state.positions.copy_(torch.randint(20, 600, state.positions.shape, device="cuda"))
    for sampling in (state.first, state.inner):
        sampling.temperature.fill_(0.9)
    start = copied(state)
    step.run(bucket)
    torch.cuda.synchronize()
    few = torch.tensor([0, 2, 5][: min(3, bucket)], device="cuda")
    want = [getattr(state, part)[few].clone() for part in ("hidden", "codes", "x")]
    equal = []
    for alone in (False, True):
        put(state, start)
        others = torch.ones(bucket, device="cuda", dtype=torch.bool).index_fill_(0, few, False)
        state.x[:bucket][others] = rand(int(others.sum()), state.x.shape[1], k=1.0)
        state.positions[:bucket][others] = 17
        if alone:
            state.active[:bucket][others] = 0
        step.run(bucket)
        torch.cuda.synchronize()
        got = [getattr(state, part)[few] for part in ("hidden", "codes", "x")]
        equal.append(all(torch.equal(a, b) for a, b in zip(got, want, strict=True)))
    put(state, start)
    log(f"CHECK {name} rows {bucket}: bit-equal among others {equal[0]}, alone {equal[1]}")
    results[f"alone {name} {bucket}"] = equal


# ---------------------------------------------------------------- times


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

        def rewind(to: torch.Tensor | int) -> None:
            state.positions.copy_(to) if isinstance(to, torch.Tensor) else state.positions.fill_(to)
            state.steps.zero_()
            state.seen.zero_()

        same = time_ms(lambda b=bucket: step.run(b), lambda: rewind(300))
        other = time_ms(lambda b=bucket: step.run(b), lambda: rewind(mixed))
        far = time_ms(lambda b=bucket: step.run(b), lambda: rewind(600))
        state.active[1:] = 0
        few = time_ms(lambda b=bucket: step.run(b), lambda: rewind(300))
        target = f" (target {TARGETS[bucket]})" if name == "1.7B" and bucket in TARGETS else ""
        log(
            f"TIME {name}{note} rows {bucket}: {same:.3f} ms at 300{target}, {other:.3f} at 20 to 600, "
            f"{far:.3f} at 600, {few:.3f} with one row active; {bucket * 80 / same:.0f} audio-s/s without the decoder"
        )
        results[f"time {name}{note} {bucket}"] = [same, other, far, few]


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

    planned = planned_bytes(shape, buckets_of(64), PREFILL_MAX, ROW_PAGES, bits=bits)
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
    for place in (frame_predictor.SoloPredictor, frame_predictor.RowsPredictor, talker_step.TalkerStep):
        program = place.program

        def more(*args: object, of: Callable[..., object] = program) -> object:
            made_program = of(*args)
            return made_program._replace(definitions=(*made_program.definitions, (name, value)))  # type: ignore[attr-defined]

        place.program = staticmethod(more)


def lose_a_block(bucket: int) -> None:
    """In a process of its own: a launch with a lost block must end as an error."""
    with_definition("LOST", 5)
    shape = replace(SHAPES["1.7B"], backbone=replace(SHAPES["1.7B"].backbone, layers=2))
    state = rows_of(shape, 8)
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


def check(step: GraphStep, wide_weights: FrameWeights, model: str, sizes: list[int], start: FrameRows) -> None:
    for bucket in sizes:
        put(step.state, start)
        check_frames(step, wide_weights, model, bucket, 3 if bucket <= 16 else 1)
        put(step.state, start)
        check_alone(step, model, bucket)
    put(step.state, start)
    check_prefill(step, wide_weights, model)


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
        for bucket in ("1", "8"):
            subprocess.run([sys.executable, __file__, "lose", bucket], check=False, timeout=120)
    if out := os.environ.get("OUT"):
        Path(out, "frame_step.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
