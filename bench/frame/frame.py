"""A whole codec frame of Qwen3-TTS 1.7B as one CUDA graph: correctness against plain torch in float32, then times.

    python3 frame.py [check] [time] [C ...]

Random weights at full size, bfloat16, every row at position 300 with caches of 640, forced length.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "kernels"))
import torch
import torch.nn.functional as nn
from decode_attention import Room, attend
from decode_attention import reference as attend_reference
from embed_sum import embed_frame
from embed_sum import reference as embed_reference
from frame_predictor import (
    ClusterPredictor,
    LayerWeights,
    PredictorShape,
    PredictorWeights,
    RowsPredictor,
    Sampling,
    SoloPredictor,
    layer_reference,
    pack,
    pack_cluster,
    pack_rows,
    rotary,
    sample_reference,
)
from frame_predictor import reference as predictor_reference
from row_norm import gate_rows, norm_rows
from row_product import multiply_row
from row_product import reference as product_reference
from row_sampler import First, penalize_reference, sample_rows
from talker_step import TalkerStep, pack_talker

torch.set_grad_enabled(False)
torch.backends.cuda.matmul.allow_tf32 = False
dev = "cuda"
LENGTH, START, V0, EOS = 640, 300, 3072, 2150
FLOOR = {1: 1.236, 64: 1.749}
T0 = time.time()


def log(*a):
    print(f"[{time.time() - T0:6.1f}]", *a, flush=True)


def rel(a, b):
    return float((a.double() - b.double()).norm() / b.double().norm())


def rand(*size, k=0.02):
    return (torch.randn(*size, device=dev) * k).bfloat16()


def norm_weight(n):
    return (1 + 0.1 * torch.randn(n, device=dev)).bfloat16()


def layer(h, f):
    return LayerWeights(
        norm_weight(h),
        rand(4096, h),
        norm_weight(128),
        norm_weight(128),
        rand(h, 2048),
        norm_weight(h),
        rand(f, h),
        rand(f, h),
        rand(h, f),
    )


class Weights:
    def __init__(self):
        torch.manual_seed(1)
        self.shape = s = PredictorShape()
        self.talker = [layer(2048, 6144) for _ in range(28)]
        self.norm, self.head, self.embed = norm_weight(2048), rand(V0, 2048), rand(V0, 2048, k=0.3)
        self.embeds = rand(15, 2048, 2048, k=0.3)
        projection, bias = rand(1024, 2048), rand(1024)
        tables = [nn.linear(self.embed[:2048], projection, bias)] + [
            nn.linear(e, projection, bias) for e in self.embeds[:14]
        ]
        self.predictor = PredictorWeights(
            [layer(1024, 3072) for _ in range(5)],
            norm_weight(1024),
            projection,
            bias,
            [rand(2048, 1024) for _ in range(15)],
            tables,
        )
        self.gate_up = [torch.cat([w.gate, w.up]) for w in self.talker]
        after = lambda norm, weight: (weight.float() * norm.float()).bfloat16()
        self.folded = [(after(w.attn_norm, w.qkv), after(w.mlp_norm, g)) for w, g in zip(self.talker, self.gate_up, strict=True)]
        self.predictor_gate_up = [torch.cat([w.gate, w.up]) for w in self.predictor.layers]
        self.cosines, self.sines = rotary(s, LENGTH, dev)


class Rows:
    """The state of a batch: what stays on the device between frames."""

    def __init__(self, c):
        e = lambda *s, t=torch.bfloat16: torch.empty(*s, device=dev, dtype=t)
        self.c = c
        self.keys = torch.stack([rand(c, 8, LENGTH, 128, k=1.0) for _ in range(28)])
        self.values = torch.stack([rand(c, 8, LENGTH, 128, k=1.0) for _ in range(28)])
        self.x, self.hidden = rand(c, 2048, k=1.0), e(c, 2048)
        self.codes = torch.zeros(c, 16, device=dev, dtype=torch.int32)
        self.positions = torch.full((c,), START, device=dev, dtype=torch.int64)
        self.text, self.lengths = rand(c, 32, 2048, k=1.0), torch.full((c,), 32, device=dev, dtype=torch.int32)
        step = torch.zeros(c, device=dev, dtype=torch.int32)
        self.sampling, self.inner = self.parameters(step), self.parameters(step)
        suppressed = torch.zeros(V0, device=dev)
        suppressed[2048:] = -1e30
        self.first = First(
            torch.zeros(c, V0, device=dev, dtype=torch.uint8),
            torch.full((c,), 1.05, device=dev),
            suppressed,
            EOS,
            torch.zeros(c, device=dev, dtype=torch.int32),
        )
        self.logits, self.wide_logits = e(c, V0), e(c, V0, t=torch.float32)

    def parameters(self, step):
        f = lambda v, t: torch.full((self.c,), v, device=dev, dtype=t)
        return Sampling(
            f(0.9, torch.float32),
            f(50, torch.int32),
            f(1.0, torch.float32),
            torch.arange(self.c, device=dev, dtype=torch.int64) * 7919,
            step,
        )

    def rewind(self):
        self.positions.fill_(START)
        self.sampling.step.zero_()
        self.first.seen.zero_()


class Frame:
    def __init__(self, w, rows, predictor, early=False, step=None):
        self.w, self.r, self.predictor, self.early, self.step = w, rows, predictor, early, step
        c = rows.c
        e = lambda *s: torch.empty(*s, device=dev, dtype=torch.bfloat16)
        self.mixed, self.att, self.both, self.act, self.y = e(c, 4096), e(c, 2048), e(c, 12288), e(c, 6144), e(c, 2048)
        self.attention = {"block": 64, "stages": 2} if c > 32 else {}
        self.room = Room.make(c, 8, 8 if c <= 4 else 2 if c <= 16 else 1, dev)

    def talker(self):
        w, r = self.w, self.r
        if self.step:
            self.step.run(r.x, r.keys, r.values, r.positions, r.hidden, r.wide_logits)
            return
        one = r.c == 1
        for i, l in enumerate(w.talker):
            cache = (w.cosines, w.sines, r.keys[i], r.values[i], r.positions, self.att, self.room)
            if one:
                multiply_row(l.qkv, r.x, self.mixed, norm=l.attn_norm, early=self.early)
                attend(self.mixed, l.q_norm, l.k_norm, *cache)
                multiply_row(l.output, self.att, r.x, add=True, early=self.early)
                multiply_row(w.gate_up[i], r.x, self.act, norm=l.mlp_norm, gated=True, outputs_a_block=8, warps=8)
                multiply_row(l.down, self.act, r.x, add=True, early=self.early)
            else:
                qkv, gate_up = w.folded[i]                 # norms are in the weights; their scale is applied by the next node
                torch.mm(r.x, qkv.t(), out=self.mixed)
                attend(self.mixed, l.q_norm, l.k_norm, *cache, x=r.x, **self.attention)
                torch.addmm(r.x, self.att, l.output.t(), out=r.x)
                torch.mm(r.x, gate_up.t(), out=self.both)
                gate_rows(self.both, self.act, r.x)
                torch.addmm(r.x, self.act, l.down.t(), out=r.x)
        if one:
            multiply_row(w.head, r.x, r.logits, norm=w.norm, normed=r.hidden, early=self.early)
        else:
            norm_rows(r.x, w.norm, r.hidden)
            torch.mm(r.hidden, w.head.t(), out=r.logits)

    def sample(self):
        sample_rows(self.r.wide_logits if self.step else self.r.logits, self.r.codes, 0, self.r.sampling, self.r.first)

    def inner(self):
        self.predictor(self.r)

    def embed(self):
        r, w = self.r, self.w
        embed_frame(r.codes, w.embed, w.embeds, r.text, r.lengths, r.sampling.step, r.positions, r.x)

    def whole(self):
        self.talker()
        self.sample()
        self.inner()
        self.embed()


class LibraryPredictor:
    """The inner passes as library products and fused nodes: the form for many rows."""

    def __init__(self, w, c):
        e = lambda *s: torch.empty(*s, device=dev, dtype=torch.bfloat16)
        self.w = w
        self.x, self.y, self.mixed, self.att, self.both, self.act = (
            e(c, 1024),
            e(c, 1024),
            e(c, 4096),
            e(c, 2048),
            e(c, 6144),
            e(c, 3072),
        )
        self.caches = [(e(c, 8, 17, 128), e(c, 8, 17, 128)) for _ in range(5)]
        self.logits, self.room = e(c, 2048), Room.make(c, 8, 1, dev)

    def __call__(self, r):
        p = self.w.predictor
        positions = r.positions
        for turn in range(16):
            if turn:
                torch.index_select(p.tables[turn - 1], 0, r.codes[:, turn - 1], out=self.x)
            else:
                torch.addmm(p.projection_bias, r.hidden, p.projection.t(), out=self.x)
            for i, l in enumerate(p.layers):
                norm_rows(self.x, l.attn_norm, self.y)
                torch.mm(self.y, l.qkv.t(), out=self.mixed)
                attend(
                    self.mixed,
                    l.q_norm,
                    l.k_norm,
                    self.w.cosines,
                    self.w.sines,
                    *self.caches[i],
                    positions,
                    self.att,
                    self.room,
                    fixed=turn,
                )
                if turn == 0 and i == 4:
                    break
                torch.addmm(self.x, self.att, l.output.t(), out=self.x)
                norm_rows(self.x, l.mlp_norm, self.y)
                torch.mm(self.y, self.w.predictor_gate_up[i].t(), out=self.both)
                gate_rows(self.both, self.act)
                torch.addmm(self.x, self.act, l.down.t(), out=self.x)
            if turn:
                norm_rows(self.x, p.norm, self.y)
                torch.mm(self.y, p.heads[turn - 1].t(), out=self.logits)
                sample_rows(self.logits, r.codes, turn, r.inner)


class PersistentPredictor:
    """One launch for up to 16 rows; more rows are served in turn."""

    def __init__(self, engine, step=16):
        self.engine, self.step = engine, step

    def __call__(self, r, logits=None):
        for i in range(0, r.c, self.step):
            s = slice(i, min(i + self.step, r.c))
            part = Sampling(*(t[s] for t in vars(r.inner).values()))
            self.engine.run(r.hidden[s], r.codes[s], part, logits)


def graph_of(fn):
    s = torch.cuda.Stream()
    s.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(s):
        fn()
        fn()
    torch.cuda.current_stream().wait_stream(s)
    torch.cuda.synchronize()
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        fn()
    return g


def time_ms(fn, before=lambda: None, reps=15):
    g = graph_of(fn)
    times = []
    for _ in range(reps + 3):
        before()
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        g.replay()
        b.record()
        b.synchronize()
        times.append(a.elapsed_time(b))
    return statistics.median(times[3:])


def check_kernels(w):
    x, y = rand(1, 2048, k=1.0), torch.empty(1, 6144, device=dev, dtype=torch.bfloat16)
    multiply_row(w.gate_up[0], x, y, norm=w.norm, gated=True, outputs_a_block=8, warps=8)
    log("row_product gated", f"{rel(y, product_reference(w.gate_up[0], x, norm=w.norm, gated=True)):.2e}")
    for c, parts in ((1, 8), (5, 2), (16, 1)):
        keys, values, mixed = rand(c, 8, LENGTH, 128, k=1.0), rand(c, 8, LENGTH, 128, k=1.0), rand(c, 4096, k=1.0)
        positions = torch.randint(0, LENGTH, (c,), device=dev)
        out = torch.full((c, 2048), float("nan"), device=dev, dtype=torch.bfloat16)
        k2, v2 = keys.clone(), values.clone()
        attend(
            mixed,
            w.talker[0].q_norm,
            w.talker[0].k_norm,
            w.cosines,
            w.sines,
            keys,
            values,
            positions,
            out,
            Room.make(c, 8, parts, dev),
        )
        want = attend_reference(mixed, w.talker[0].q_norm, w.talker[0].k_norm, w.cosines, w.sines, k2, v2, positions)
        log(
            f"decode_attention c={c} parts={parts}",
            f"{rel(out, want):.2e}, cache {rel(keys, k2):.1e} {rel(values, v2):.1e}",
        )
    r = Rows(16)
    good = total = 0
    for heat, k, p in ((0.0, 50, 1.0), (0.9, 50, 1.0), (0.9, 50, 0.8), (1.3, 0, 0.95), (0.7, 0, 1.0)):
        r.logits.copy_(rand(16, V0, k=2.0))
        r.sampling.temperature.fill_(heat), r.sampling.top_k.fill_(k), r.sampling.top_p.fill_(p)
        want = sample_reference(penalize_reference(r.logits.float(), r.first), 0, r.sampling)
        r.first.seen[torch.arange(16, device=dev), want] += 0
        sample_rows(r.logits, r.codes, 0, r.sampling, r.first)
        good, total = good + int((r.codes[:, 0] == want).sum()), total + 16
    log(f"row_sampler equal to its twin: {good}/{total}")
    want = embed_reference(r.codes, [w.embed, *w.embeds], r.text, r.lengths, r.sampling.step)
    embed_frame(r.codes, w.embed, w.embeds, r.text, r.lengths, r.sampling.step, r.positions, r.x)
    log("embed_sum", f"{rel(r.x, want):.2e}")


def check_frame(w, c, name, predictor, step, frames=3):
    """Greedy, frame by frame: the float32 reference is given the engine's codes, and each must be its best or nearly."""
    torch.manual_seed(5)
    r = Rows(c)
    r.sampling.temperature.zero_()
    r.inner.temperature.zero_()
    f = Frame(w, r, predictor, step=step)
    keep = {k: getattr(r, k).clone() for k in ("x",)}
    graph = graph_of(f.whole)
    r.rewind()
    r.x.copy_(keep["x"])
    exact = total = near = 0
    worst = hidden_error = 0.0
    for _ in range(frames):
        x, seen, position = r.x.float(), r.first.seen.clone(), int(r.positions[0])
        step = r.sampling.step.clone()
        graph.replay()
        torch.cuda.synchronize()
        turn = (w.cosines[position], w.sines[position])
        for i, l in enumerate(w.talker):
            x = layer_reference(x, l, [r.keys[i][:, :, :position].float(), r.values[i][:, :, :position].float()], turn)
        hidden = nn.rms_norm(x, (2048,), w.norm.float(), 1e-6)
        hidden_error = max(hidden_error, rel(r.hidden, hidden))
        first = First(seen, r.first.penalty, r.first.suppressed, EOS, r.first.stopped)
        logits = [penalize_reference(nn.linear(hidden, w.head.float()), first)]
        logits += list(predictor_reference(w.shape, w.predictor, r.hidden.float(), r.codes, None)[1])
        for n, l in enumerate(logits):
            code = r.codes[:, n].long()
            spread = l[:, :2048].std(-1)
            gap = (l.max(-1).values - l.gather(1, code[:, None])[:, 0]) / spread
            exact += int((gap == 0).sum())
            near += int(((gap > 0) & (gap < 0.05)).sum())
            total += c
            worst = max(worst, float(gap.max()))
        want = embed_reference(r.codes, [w.embed, *w.embeds], r.text, r.lengths, step)
        assert rel(r.x, want) < 5e-3, rel(r.x, want)
    log(
        f"CHECK C={c} {name}: codes that are the float32 argmax {exact}/{total}, others within 0.05 of a deviation {near}, "
        f"worst gap {worst:.3f}, hidden error {hidden_error:.1e}"
    )


def main(argv):
    log(torch.__version__, torch.cuda.get_device_name())
    sizes = [int(a) for a in argv if a.isdigit()] or [1, 8, 16, 32, 64]
    w = Weights()
    solo = SoloPredictor(w.shape, pack(w.predictor))
    packed = pack_rows(w.predictor)
    buckets = {min(n for n in (8, 16, 32, 64) if n >= c) for c in sizes}
    engines = {n: RowsPredictor(w.shape, packed, n) for n in sorted(buckets - {64})}
    if 64 in buckets:
        engines[64] = ClusterPredictor(w.shape, pack_cluster(w.predictor), 64)
    packed = pack_talker(w.talker, w.norm, w.head, w.cosines, w.sines)
    steps = {n: TalkerStep(packed, n) for n in sorted(buckets & {8, 16})}
    torch.cuda.synchronize()
    log("packed and compiled")
    table = {}

    def choices(c):
        inner = (
            PersistentPredictor(solo, 1)
            if c == 1
            else PersistentPredictor(engines[min(n for n in engines if n >= c)], 64)
        )
        if c <= 16:
            yield "both in one launch each", inner, steps[8 if c <= 8 else 16]
        yield "predictor in one launch", inner, None
        if c >= 8 and "library" in argv:
            yield "library", LibraryPredictor(w, c), None

    if "check" in argv:
        try:
            check_kernels(w)
        except Exception:
            traceback.print_exc(limit=3)
        for c in sizes:
            for name, predictor, step in choices(c):
                try:
                    check_frame(w, c, name, predictor, step, 3 if c < 32 else 1)
                except Exception:
                    traceback.print_exc(limit=5)
        torch.cuda.empty_cache()
    if "time" in argv:
        for c in sizes:
            r = Rows(c)
            for name, predictor, step in choices(c):
                for early in (False,):
                    try:
                        f = Frame(w, r, predictor, early, step)
                        parts = {
                            "whole": f.whole,
                            "talker": f.talker,
                            "sample": f.sample,
                            "inner": f.inner,
                            "embed": f.embed,
                        }
                        t = {k: time_ms(fn, r.rewind) for k, fn in parts.items()}
                        table[f"{c} {name}"] = t
                        floor = FLOOR.get(c) or 1.236 + (1.749 - 1.236) * (c - 1) / 63
                        log(
                            f"TIME C={c} {name}: "
                            + ", ".join(f"{k} {v:.3f}" for k, v in t.items())
                            + f" ms; floor {floor:.3f}, {t['whole'] / floor:.2f}x; {c * 80 / t['whole']:.1f} audio-s/s without the decoder"
                        )
                    except Exception:
                        traceback.print_exc(limit=5)
            del r
            torch.cuda.empty_cache()
    out = os.environ.get("OUT")
    if out:
        with open(os.path.join(out, "frame.json"), "w") as file:
            json.dump(table, file, indent=1)


if __name__ == "__main__":
    main(sys.argv[1:])
