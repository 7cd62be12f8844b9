"""The streaming decoder of the 12 Hz codec at full size on a GPU: checks, then times of each size of call.

    python bench/codec_decoder.py [start] [check] [same] [tune] [time] [parts]

Random weights. Times are of graph replays back to back, 2 warm-ups, median of 11; floors are 4.96 GFLOP a frame at 789
TFLOP/s, or the weights at 4.3 TB/s where that is more.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
import triton

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from omnirt.actors.engines.codec import memory
from omnirt.actors.engines.codec.bucket import Bucket, Step
from omnirt.actors.engines.codec.buckets import KernelForm
from omnirt.actors.engines.codec.decoder import Piece, StreamingDecoder
from omnirt.actors.engines.codec.form import PlainForm, Row
from omnirt.actors.models.qwen3_tts.codec_weights import Codec
from omnirt.kernels.codec_layout import CodecShape, weight_count, weight_sizes
from omnirt.kernels.tap_layout import Tile

SHAPE = CodecShape(16, 2048, 512, 1024, 512, 1024, 8, 16, 64, 72, (2, 2), 1536, (8, 5, 4, 3), 1e-5, 1e4)
FLOP, FLOPS, BYTES_S = 4.96e9, 789e12, 4.3e12
SLOTS = 64
SCALES = {"point": 0.3, "last": 0.1, "tables": 0.25}
T0 = time.time()
results: dict[str, object] = {}


def log(*parts: object) -> None:
    print(f"[{time.time() - T0:6.1f}]", *parts, flush=True)


def weights(seed: int = 3) -> dict[str, np.ndarray]:
    """Scaled so that values keep their size from layer to layer."""
    rng = np.random.default_rng(seed)
    return {name: random(rng, name, size) for name, size in weight_sizes(SHAPE).items()}


def random(rng: np.random.Generator, name: str, size: tuple[int, ...]) -> np.ndarray:
    value = rng.standard_normal(size, dtype=np.float32)
    end = name.split(".")[-1]
    if end.startswith("norm") or end == "ln":
        return 1 + 0.1 * value
    if end.startswith(("scale", "gamma")):
        return 0.3 + 0.1 * value
    if end in ("alpha", "beta", "bias"):
        return value * (0.02 if end == "bias" else 0.3)
    if end == "stretch" or re.fullmatch(r"up\d", end):
        return value / (size[0] * (2 if end == "stretch" else 1)) ** 0.5
    scale = SCALES.get(end, 0.7 if end == "wide" and name.startswith("block") else 1.0)
    fan = 1 if end == "tables" else int(np.prod(size[1:]))
    return value * scale / fan**0.5


def codes(rows: int, frames: int, seed: int = 5) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, SHAPE.codes, (rows, frames, SHAPE.books)).astype(np.int32)


def streamed(form: PlainForm | KernelForm, of: np.ndarray, slots: list[int], plan: list[tuple[int, int]]) -> np.ndarray:
    """Rows together through sizes of call; `plan`: (size, frames)."""
    for slot in slots:
        form.clear(slot)
    parts, at = [], 0
    for size, n in plan:
        rows = [Row(slot, row[at : at + n]) for slot, row in zip(slots, of, strict=True)]
        parts.append(np.stack(form.run(size, rows, heard=True).rows()))
        parts[-1] = parts[-1].copy()
        at += n
    return np.concatenate(parts, 1)


def relative(got: np.ndarray, want: np.ndarray) -> float:
    return float(np.linalg.norm(got - want) / np.linalg.norm(want))


def graph_of(fn: Callable[[], object]) -> torch.cuda.CUDAGraph:
    fn()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        fn()
    return graph


def timed(run: Callable[[], object], times: int = 11) -> float:
    """ms."""
    found = []
    for _ in range(times + 2):
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record()
        run()
        last.record()
        last.synchronize()
        found.append(first.elapsed_time(last))
    return statistics.median(found[2:])


# ------------------------------------------------------------ checks


def check(form: KernelForm, w: dict[str, np.ndarray]) -> None:
    """Each size of call and mixed lengths against float32 in plain torch; float32 streamed against one shot."""
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    of = codes(8, 96)
    plain = PlainForm(SHAPE, w, 9, "cuda", torch.float32)
    want = streamed(plain, of[:, :32], list(range(8)), [(1, 8)] * 4)
    longer = streamed(plain, of[:1], [8], [(0, 32)] * 3)
    plain.clear(8)
    whole = plain._decoder.decode(of[:1], np.zeros(1, np.int64), plain._state.rows([8])).cpu().numpy()
    log(f"float32 plain, 3 x 32 frames against 96: {abs(longer - whole).max():.2e}, deviation {whole.std():.3f}")
    parts = streamed(plain, of[:1], [7], [(0, n) for n in (1, 2, 4, 8, 16, 16, 16, 16, 8, 4, 2, 1, 1, 1)])
    log(f"float32 plain, pieces of 1 to 16 against one shot: {abs(parts - whole).max():.2e}")
    for i, size in enumerate(form.sizes.sizes):
        rows = min(8, size.rows)
        got = streamed(form, of[:rows, :32], list(range(10, 10 + rows)), [(i, size.frames)] * (32 // size.frames))
        log(f"bfloat16 {size.rows} x {size.frames}: relative error {relative(got, want[:rows]):.2e}")
    log(f"mixed lengths through launch: relative error {mixed(form, of, want):.2e}")
    del plain
    exact(w, of, want, whole)


def mixed(form: KernelForm, of: np.ndarray, want: np.ndarray) -> float:
    """Rows at different positions with pieces of 1 to 9 frames, decoded as the engine does."""
    decoder = StreamingDecoder.__new__(StreamingDecoder)
    decoder.shape, decoder.samples_per_frame, decoder.slots = SHAPE, SHAPE.samples, SLOTS
    decoder._form, decoder._free, decoder._positions = form, list(range(SLOTS)), [0] * SLOTS
    rng, at = np.random.default_rng(9), [0] * 8
    slots = [decoder.open() for _ in range(8)]
    got: list[list[np.ndarray]] = [[] for _ in range(8)]
    calls = []
    while min(at) < 32:
        going = [i for i in range(8) if at[i] < 32 and rng.random() < 0.8]
        counts = [min(32 - at[i], int(rng.integers(1, 10))) for i in going]
        pieces = []
        for i, n in zip(going, counts, strict=True):
            pieces.append(Piece(slots[i], of[i, at[i] : at[i] + n]))
            at[i] += n
        calls.append((going, decoder.launch(pieces)))
        if len(calls) == 4:
            take(calls, got)
    take(calls, got)
    return relative(np.stack([np.concatenate(row) for row in got]), want)


def take(calls: list, got: list[list[np.ndarray]]) -> None:
    for going, call in calls:
        for i, samples in zip(going, call.samples(), strict=True):
            got[i].append(samples)
    calls.clear()


def exact(w: dict[str, np.ndarray], of: np.ndarray, want: np.ndarray, whole: np.ndarray) -> None:
    form = KernelForm(SHAPE, w, 2, "cuda", torch.float32)
    sizes = list(form.sizes.sizes)
    got = streamed(form, of[:2, :32], [0, 1], [(sizes.index((2, 4)), 4)] * 8)
    log(f"float32 kernels 2 x 4 against plain: {abs(got - want[:2]).max():.2e}")
    plan = [(2, n) for n in (16, 16, 8, 4, 2, 1, 1, 16, 16, 16)]
    got, again = streamed(form, of[:1], [0], plan), streamed(form, of[:1], [1], [(2, 16)] * 6)
    log(f"float32 kernels, mixed pieces against plain: {abs(got - whole).max():.2e}")
    log(f"float32 kernels, mixed pieces against pieces of 16: {abs(got - again).max():.2e}")


def same(form: KernelForm) -> None:
    """Bit for bit: other sizes of call, other neighbours, other pieces."""
    of, other = codes(1, 32), codes(64, 32, seed=6)
    base = streamed(form, of, [3], [(0, 1)] * 32)
    for i, size in enumerate(form.sizes.sizes):
        for n in {size.frames, max(1, size.frames // 4), min(3, size.frames)}:
            plan = [(i, min(n, 32 - at)) for at in range(0, 32, n)]
            for rows in {1, size.rows}:
                all_rows = np.concatenate([other[: rows - 1], of])
                got = streamed(form, all_rows, [*range(rows - 1), SLOTS - 1], plan)[-1]
                gap = abs(got - base[0]).max()
                log(f"{size.rows} x {size.frames}, {rows} rows, pieces of {n}: largest difference {gap:.1e}")


# ------------------------------------------------------------ times


def kind_of(name: str) -> str:
    return re.sub(r"(block\d)\.\d\.", r"\1.", re.sub(r"^(layer|up)\d+", r"\1", name))


def candidates(step: Step) -> list[Tile]:
    name = kind_of(step.name)
    if name == "block2.unit":
        return [Tile(64, 0, 64, 4, 3), Tile(64, 0, 64, 4, 4), Tile(64, 0, 32, 4, 5)]
    if name == "block3.unit":
        return [Tile(64, 0, 32, 4, 4), Tile(64, 0, 32, 4, 6)]
    deep = 64 if name == "block3.stretch" else 128
    found = [Tile(64, 16, deep, 4, 5), Tile(64, 32, deep, 4, 4), Tile(64, 32, deep, 4, 5), Tile(64, 64, deep, 4, 4)]
    if step.rows >= 64 and name not in ("layer.qkv", "layer.gate", "leave"):
        found += [Tile(64, 64, 64, 4, 4), Tile(64, 128, 64, 4, 4)]
    return found


def tune(form: KernelForm) -> None:
    flush = torch.empty(80 << 20, device="cuda", dtype=torch.uint8)
    jobs: list[tuple[str, Bucket, Step]] = []
    for bucket in form.buckets[:6]:
        seen = set()
        for step in bucket.steps:
            key = f"{kind_of(step.name)}|{step.rows}"
            if step.tile.k and key not in seen:
                seen.add(key)
                jobs.append((f"{bucket.size.rows}x{bucket.size.frames} {key}", bucket, step))
    for bucket in form.buckets[:6]:
        bucket.early = False
    with ThreadPoolExecutor(15) as pool:
        list(pool.map(lambda job: [attempt(job[2], tile) for tile in candidates(job[2])], jobs))
    torch.cuda.synchronize()
    log("compiled")
    for label, bucket, step in jobs:
        compare(label, step, flush if bucket.size.rows * bucket.size.frames <= 16 else None)


def compare(label: str, step: Step, flush: torch.Tensor | None) -> None:
    """Tiles of one step by time, in microseconds; `flush`: what sweeps the weights out of the cache."""

    def four(tile: Tile | None) -> None:
        for _ in range(4):
            if tile is not None:
                step.run(tile)
            if flush is not None:
                flush.zero_()

    base = timed(graph_of(lambda: four(None)).replay, 5) if flush is not None else 0.0
    tiles = [tile for tile in dict.fromkeys([step.tile, *candidates(step)]) if attempt(step, tile)]
    times = [((timed(graph_of(lambda t=tile: four(t)).replay, 5) - base) * 250, vars(tile)) for tile in tiles]
    found = sorted(times, key=lambda time: time[0])
    now = next(us for us, tile in found if tile == vars(step.tile))
    log(f"{label}: now {now:.1f}; " + ", ".join(f"{us:.1f} {tuple(tile.values())}" for us, tile in found[:3]))


def attempt(step: Step, tile: Tile) -> bool:
    try:
        step.run(tile)
    except (RuntimeError, triton.runtime.errors.OutOfResources) as error:
        print("does not fit", step.name, tile, str(error)[:60])
        return False
    return True


def group_of(name: str) -> str:
    if name.startswith(("layer", "pre", "enter", "leave")):
        return "transformer"
    return name[:6] if name.startswith("block") else name.split(".")[0].rstrip("01")


def fill(form: KernelForm, index: int, rows: int, frames: int) -> None:
    bucket = form.buckets[index]
    host = form._host()
    form._fill(host, bucket, [Row(i, codes(1, frames)[0]) for i in range(rows)])
    form._memory.inputs.copy_(host.inputs)
    form._slots.positions.fill_(100)


def time_all(form: KernelForm, parts: bool) -> None:
    for i, size in enumerate(form.sizes.sizes):
        bucket = form.buckets[i]
        fills = {(size.rows, size.frames)}
        if bucket.live:
            fills |= {(size.rows, 1), (size.rows // 2, size.frames), (size.rows // 4, size.frames), (size.rows // 2, 1)}
        for rows, frames in sorted(fills, reverse=True):
            fill(form, i, rows, frames)
            ms = timed(form._runs[i])
            floor = max(rows * frames * FLOP / FLOPS, 2 * weight_count(SHAPE) / BYTES_S) * 1e3
            each = f"{ms / frames:.3f} a frame of all, {ms / rows / frames * 1e3:.1f} us a frame of one"
            log(f"{size.rows} x {size.frames} with {rows} x {frames}: {ms:.3f} ms, {each}; {ms / floor:.1f} floors")
            results[f"{size.rows}x{size.frames}:{rows}x{frames}"] = ms
        if parts:
            fill(form, i, size.rows, size.frames)
            row = {}
            for group, steps in itertools.groupby(bucket.steps, lambda step: group_of(step.name)):
                run = graph_of(lambda chosen=list(steps): [s.run(s.tile) for s in chosen for _ in range(3)])
                row[group] = round(timed(run.replay, 5) / 3, 4)
            log(f"{size.rows} x {size.frames}:", row)


def host_time(form: KernelForm) -> None:
    """What launching costs the loop, and a call from launch to samples."""
    for index, n, frames in ((0, 1, 1), (4, 8, 4), (7, 64, 4)):
        of = codes(n, frames)
        rows = [Row(i, of[i]) for i in range(n)]
        spent, whole = [], []
        for _ in range(9):
            torch.cuda.synchronize()
            first = time.perf_counter()
            result = form.run(index, rows, heard=True)
            spent.append(time.perf_counter() - first)
            result.rows()
            whole.append(time.perf_counter() - first)
        run_us, whole_ms = statistics.median(spent) * 1e6, statistics.median(whole) * 1e3
        log(f"{n} x {frames}: run {run_us:.0f} us, to samples {whole_ms:.3f} ms")


def main() -> None:
    what = set(sys.argv[1:]) or {"start", "check", "same", "time", "parts"}
    w = weights()
    codec = Codec(SHAPE, 24000, 0.08, w)
    log("weights", weight_count(SHAPE), "planned", memory.codec_bytes(SHAPE, SLOTS))
    torch.zeros(1, device="cuda")
    before, first = torch.cuda.mem_get_info()[0], time.time()
    form = KernelForm(codec.shape, codec.weights, SLOTS, "cuda")
    torch.cuda.synchronize()
    taken = (before - torch.cuda.mem_get_info()[0]) / 1e9
    log(f"ready after {time.time() - first:.1f} s, device memory {taken:.2f} GB")
    if "start" in what:
        first = time.time()
        for bucket in form.buckets:
            form._captured(bucket)
        log(f"captured again, compiled already: {time.time() - first:.2f} s")
    if "check" in what:
        check(form, w)
    if "same" in what:
        same(form)
    if "time" in what:
        time_all(form, "parts" in what)
        host_time(form)
    if "tune" in what:
        tune(form)
    out = os.environ.get("OUT")
    if out:
        Path(out, "codec.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
