"""One frame of a codec-frame model in plain torch: every shape, every number type, processor or GPU.

The twin of all other forms of the step, the step of a processor, and on a GPU that of models without kernels of their
own: `run` has fixed shapes for a bucket there and reads nothing back, so a CUDA graph can capture it.

What always holds:
    a row's numbers do not depend on the other rows: on a processor bit for bit, whatever the bucket and however its
    prompt was cut (as far as its library's products allow: see frame_reference_layers); on a GPU bit for bit within a
    bucket, for a prompt within rounding;
    a call that raises has changed nothing that the same call would not write again.

Letters as in frame_layout; r is a row of the bucket.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from omnirt.kernels.frame_layout import PAGE, FrameRows, FrameShape, FrameWeights, Sampling
from omnirt.kernels.frame_reference_draw import BARRED, draw, may_be_warm, noise_of, penalized
from omnirt.kernels.frame_reference_layers import (
    attend,
    attend_in_turn,
    attend_together,
    finished,
    mixed,
    norm,
    pages_of,
    product,
    turns,
    wide,
    write,
)


class PlainStep:
    """See actors/engines/frame/step.py, of which this is one.

    `fixed`: shapes depend on the bucket alone, each row attends over its whole table, masked. None: on a GPU. Without,
    only the rows that are active are computed, each over what it has.
    """

    def __init__(
        self,
        shape: FrameShape,
        weights: FrameWeights,
        state: FrameRows,
        prefill_max: int,
        buckets: tuple[int, ...],
        *,
        fixed: bool | None = None,
    ) -> None:
        self.shape, self.weights, self.state = shape, weights, state
        self.prefill_max, self.buckets = prefill_max, buckets
        self._fixed = state.x.device.type != "cpu" if fixed is None else fixed
        back, inner = shape.backbone, shape.predictor
        self._turns = turns(back.head, back.theta, state.tables.shape[1] * PAGE, state.x)
        self._inner_turns = turns(inner.head, inner.theta, shape.books, state.x)
        self._rows = {size: torch.arange(size, device=state.x.device) for size in buckets}

    @torch.no_grad()
    def prefill(self, pieces: Sequence[tuple[int, int, Tensor]]) -> None:
        s, back = self.state, self.shape.backbone
        device = s.x.device
        x = torch.cat([rows for _, _, rows in pieces]).to(s.x.dtype)
        spans = [torch.arange(start, start + len(rows), device=device) for _, start, rows in pieces]
        positions = torch.cat(spans)
        pages = torch.cat([s.tables[p[0]][span // PAGE] for p, span in zip(pieces, spans, strict=True)]).long()
        turn = self._turns[0][positions], self._turns[1][positions]
        for layer, keys, values in zip(self.weights.layers, s.keys, s.values, strict=True):
            q, k, v = mixed(x, layer, back, turn)
            write(keys, pages, positions, k)
            write(values, pages, positions, v)
            if layer is self.weights.layers[-1]:
                return  # only keys and values are wanted
            x = finished(x, self._attend_pieces(q, keys, values, pieces), layer, back.eps)

    @torch.no_grad()
    def run(self, bucket: int) -> None:
        s = self.state
        rows = self._rows[bucket] if self._fixed else s.active[:bucket].nonzero()[:, 0]
        if not len(rows):
            return
        hidden = self._backbone(rows)
        steps = s.steps[rows]
        codes = torch.stack(self._inner(hidden, self._first(hidden, rows), steps, _of(s.inner, rows)), 1)
        x = self._next(codes, rows, steps)
        active = s.active[rows] != 0
        s.x[rows] = torch.where(active[:, None], x, s.x[rows])
        s.hidden[rows] = hidden
        s.codes[rows] = codes.to(s.codes.dtype)
        s.seen[rows, codes[:, 0]] = torch.where(active, 1, s.seen[rows, codes[:, 0]]).to(s.seen.dtype)
        s.stopped[rows] |= active & (codes[:, 0] == self.shape.stop_code)
        s.positions[rows] += active
        s.steps[rows] += active

    def _attend_pieces(
        self, q_rhd: Tensor, keys: Tensor, values: Tensor, pieces: Sequence[tuple[int, int, Tensor]]
    ) -> Tensor:
        over = attend_together if self._fixed else attend_in_turn
        parts, at = [], 0
        for row, start, rows in pieces:
            pages = self.state.tables[row, : -(-(start + len(rows)) // PAGE)]
            q = q_rhd[at : at + len(rows)]
            parts.append(over(q, pages_of(keys, pages), pages_of(values, pages), start))
            at += len(rows)
        return torch.cat(parts)

    def _backbone(self, rows: Tensor) -> Tensor:
        """The hidden rows, normed. Writes keys and values, which a second time would be the same."""
        s, w, back = self.state, self.weights, self.shape.backbone
        positions, tables = s.positions[rows], s.tables[rows]
        # A row that is over may stand behind its last page; what it writes is nobody's.
        last = s.tables.shape[1] * PAGE - 1
        positions = positions.clamp(max=last)
        pages = tables.gather(1, (positions // PAGE)[:, None])[:, 0].long()
        turn = self._turns[0][positions], self._turns[1][positions]
        seen = torch.arange(last + 1, device=rows.device)[None] <= positions[:, None] if self._fixed else None
        lengths = [] if self._fixed else positions.tolist()
        x = s.x[rows]
        for layer, keys, values in zip(w.layers, s.keys, s.values, strict=True):
            q, k, v = mixed(x, layer, back, turn)
            write(keys, pages, positions, k)
            write(values, pages, positions, v)
            if seen is not None:
                attended = attend(q, pages_of(keys, tables), pages_of(values, tables), seen)
            else:
                attended = _each(q, keys, values, tables, lengths)
            x = finished(x, attended, layer, back.eps)
        return norm(x, w.norm, back.eps)

    def _first(self, hidden: Tensor, rows: Tensor) -> Tensor:
        s, stop = self.state, self.shape.stop_code
        logits = penalized(product(hidden, self.weights.head).float(), s.seen[rows], s.penalty[rows])
        logits = logits + s.suppressed
        early = s.steps[rows] < s.least[rows]
        logits[:, stop] = torch.where(early, BARRED, logits[:, stop])
        return draw(logits, 0, s.steps[rows], _of(s.first, rows))

    def _inner(self, hidden: Tensor, first: Tensor, steps: Tensor, sampling: Sampling) -> list[Tensor]:
        """All codes of the frame. Position 0 is the hidden row, position n the embedding of code n - 1."""
        w, p, shape = self.weights.predictor, self.shape.predictor, self.shape
        cache = hidden.new_empty(2, p.layers, hidden.shape[0], p.kv_heads, shape.books, p.head)
        books, codes = range(1, shape.books), [first]
        noise = noise_of(sampling, steps, books, shape.codes).unbind(1) if may_be_warm(sampling) else None
        for n in range(shape.books):
            x = self._embedded(n - 1, codes[-1]) if n else hidden
            if w.projection is not None:
                x = product(x, w.projection, w.bias)
            turn = self._inner_turns[0][n : n + 1], self._inner_turns[1][n : n + 1]
            for layer, keys, values in zip(w.layers, cache[0], cache[1], strict=True):
                q, k, v = mixed(x, layer, p, turn)
                keys[:, :, n], values[:, :, n] = k, v
                x = finished(x, attend(q, keys[:, :, : n + 1], values[:, :, : n + 1]), layer, p.eps)
            if n:
                logits = product(norm(x, w.norm, p.eps), w.heads[n - 1]).float()
                codes.append(draw(logits, n, steps, sampling, noise[n - 1] if noise else None))
        return codes

    def _embedded(self, book: int, codes: Tensor) -> Tensor:
        return (self.weights.embeds[book - 1] if book else self.weights.embed)[codes]

    def _next(self, codes_rn: Tensor, rows: Tensor, steps: Tensor) -> Tensor:
        s = self.state
        line = torch.minimum(steps, s.lines[rows] - 1).long()
        total = s.text[rows, line].to(wide(s.x.dtype))
        for book in range(self.shape.books):
            total = total + self._embedded(book, codes_rn[:, book])
        return total.to(s.x.dtype)


def _of(sampling: Sampling, rows: Tensor) -> Sampling:
    return Sampling(sampling.temperature[rows], sampling.top_k[rows], sampling.top_p[rows], sampling.seed[rows])


def _each(q_rhd: Tensor, keys: Tensor, values: Tensor, tables: Tensor, positions: list[int]) -> Tensor:
    """Every row over the pages that it has."""
    parts = []
    for i, position in enumerate(positions):
        pages = tables[i, : position // PAGE + 1]
        parts.append(attend_in_turn(q_rhd[i : i + 1], pages_of(keys, pages), pages_of(values, pages), position))
    return torch.cat(parts)
