"""A GPU's frame step against the plain step in float32, and against itself in other company. See frame_step.py."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator

import torch
from frame_step_model import PREFILL_MAX, copied, log, put, rand, rel, results

from omnirt.actors.engines.frame.graph_step import GraphStep
from omnirt.actors.engines.frame.step import Piece
from omnirt.kernels import frame_reference
from omnirt.kernels.attention_parts import LONGEST
from omnirt.kernels.frame_layout import PAGE, FrameRows, FrameShape, FrameWeights
from omnirt.kernels.frame_reference import PlainStep

CUTS = LONGEST - 1, LONGEST, LONGEST + 1
"""Lengths where a row comes to be cut into parts."""


def check(step: GraphStep, wide_weights: FrameWeights, model: str, sizes: list[int], start: FrameRows) -> None:
    for bucket in sizes:
        put(step.state, start)
        check_frames(step, wide_weights, model, bucket, 3 if bucket <= 16 else 1)
        put(step.state, start)
        check_alone(step, model, bucket)
        put(step.state, start)
        check_again(step, model, bucket)
    put(step.state, start)
    check_prefill(step, wide_weights, model)


@contextlib.contextmanager
def taking(codes: torch.Tensor) -> Iterator[list[torch.Tensor]]:
    """Instead of drawing, the plain step takes these codes; gives the logits that it would have drawn them from."""
    logits: list[torch.Tensor] = []

    def given(values: torch.Tensor, book: int, *_: object) -> torch.Tensor:
        logits.append(values)
        return codes[:, book]

    kept, frame_reference.draw = frame_reference.draw, given
    yield logits
    frame_reference.draw = kept


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
        codes = after.codes[:bucket].long()
        with taking(codes) as logits:
            hidden = plain._backbone(rows)
            plain._first(hidden, rows)
            plain._inner(
                after.hidden[:bucket].float(), codes[:, 0], before.steps[rows], frame_reference._of(before.inner, rows)
            )
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
    state.positions[0] = 63 if frames > 1 else 1500
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


def check_again(step: GraphStep, name: str, bucket: int, times: int = 300) -> None:
    """The same frame again and again: a copy that overtakes a read, or a value that is taken too early, is rare."""
    state = step.state
    state.active[:bucket], state.active[bucket:] = 1, 0
    state.positions.copy_(torch.randint(20, 600, state.positions.shape, device="cuda"))
    start = copied(state)
    bad = torch.zeros(times, device="cuda", dtype=torch.bool)
    for i in range(times):
        put(state, start, caches=False)
        step.run(bucket)
        if i == 0:
            hidden, codes = state.hidden[:bucket].clone(), state.codes[:bucket].clone()
        bad[i] = (state.hidden[:bucket] != hidden).any() | (state.codes[:bucket] != codes).any()
    log(f"CHECK {name} rows {bucket}: of {times} equal frames {int(bad.sum())} differ")
    results[f"again {name} {bucket}"] = int(bad.sum())


def check_alone(step: GraphStep, name: str, bucket: int) -> None:
    """Bit for bit: rows among others, the same rows among other others, and with nobody else; long ones, and some
    where attention begins to cut a row into parts."""
    state = step.state
    state.active[:bucket], state.active[bucket:] = 1, 0
    state.positions.copy_(torch.randint(20, 600, state.positions.shape, device="cuda"))
    for sampling in (state.first, state.inner):
        sampling.temperature.fill_(0.9)
    few = torch.tensor([0, 2, 5, 6, 7][: min(5, bucket)], device="cuda")
    state.positions[few] = torch.tensor([1500, 300, *CUTS], device="cuda")[: len(few)]
    start = copied(state)
    step.run(bucket)
    torch.cuda.synchronize()
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
