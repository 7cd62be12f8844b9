"""A frame and a prefill made of our kernels, for the shapes that they are written for.

    rows          backbone                                     inner passes
    1             one launch (talker_rows)                     one launch (frame_solo)
    up to 16      one launch (talker_rows)                     one launch (frame_rows)
    up to 32      library products and fused nodes             one launch (frame_rows)
    more          library products and fused nodes             one launch (frame_pairs), at most 64 rows each

A backbone for which there is no one launch (a narrower one) has products and nodes for any number of rows; its hidden
rows are then followed by zeros, and the projection is the identity. Prefill is always products and nodes.

Invariants
* everything here is put on the current stream and reads nothing back
* of a row that is not active nothing changes but its codes and its hidden row
* weights are there once as checkpoints have them (backbone, head, embeddings) and once for each kernel that reads them
  in its own order; the predictor's are not kept as they came
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace

import numpy as np
import torch
from torch import Tensor

from omnirt.actors.engines.frame import graph_backbone
from omnirt.actors.engines.frame.graph_backbone import Backbone
from omnirt.actors.engines.frame.graph_memory import mail_words, predictor_sizes
from omnirt.actors.engines.frame.settings import send
from omnirt.actors.engines.frame.step import Piece
from omnirt.kernels import frame_pairs, frame_predictor, talker_step
from omnirt.kernels.cuda_module import Compiler, Program
from omnirt.kernels.embed_sum import EmbedRows, embed_frame
from omnirt.kernels.frame_layout import PAGE, FrameRows, FrameShape, FrameWeights, Sampling
from omnirt.kernels.frame_pairs import PairsPredictor
from omnirt.kernels.frame_predictor import WIDTH, Draw, Predictor, RowsPredictor, SoloPredictor, rotary
from omnirt.kernels.row_sampler import First, sample_rows
from omnirt.kernels.talker_step import TalkerRows, TalkerStep

_TALKER_ROWS = (8, talker_step.ROWS_MAX)


def fits(shape: FrameShape) -> bool:
    return frame_predictor.fits(shape) and graph_backbone.fits(shape)


def first_rows(state: FrameRows, count: int) -> FrameRows:
    """The first rows of everything that is by row."""
    cut: dict[str, Tensor | Sampling] = {}
    for field in fields(state):
        value = getattr(state, field.name)
        if isinstance(value, Sampling):
            cut[field.name] = Sampling(*(getattr(value, part.name)[:count] for part in fields(value)))
        elif field.name not in ("keys", "values", "suppressed"):
            cut[field.name] = value[:count]
    return replace(state, **cut)


def _draw(sampling: Sampling, rows: FrameRows) -> Draw:
    return Draw(sampling.temperature, sampling.top_k, sampling.top_p, sampling.seed, rows.steps)


def _covering(sizes: Iterable[int], count: int) -> int:
    return min(size for size in sizes if size >= count)


def _several(predictor_rows: list[int]) -> list[int]:
    return [rows for rows in predictor_rows if 1 < rows <= frame_predictor.ROWS_MAX]


class FusedForm:
    def __init__(
        self,
        shape: FrameShape,
        weights: FrameWeights,
        state: FrameRows,
        buckets: tuple[int, ...],
        prefill_sizes: tuple[int, ...],
        *,
        compiler: Compiler,
        bits: int = 16,
    ) -> None:
        """Takes the weights over: the predictor's are gone afterwards. `bits` is 16, or 8 for what the launches read of
        one row or of the backbone, where there is one for the backbone."""
        bits = bits if talker_step.fits(shape) else 16
        self._shape, self._weights, self._state, self._bits = shape, weights, state, bits
        for program in self.programs(shape, buckets, bits):
            compiler.start(program)
        device, most = state.x.device, max(*buckets, *prefill_sizes)
        self._rotary = rotary(shape.backbone, state.tables.shape[1] * PAGE, device)
        self._backbone = Backbone(shape, weights, state, self._rotary, most, buckets[-1])
        self._talkers = self._make_talkers(buckets, compiler)
        self._predictors = self._make_predictors(buckets, compiler)
        size = prefill_sizes[-1]
        self._entry = torch.zeros(size, shape.backbone.width, device=device, dtype=state.x.dtype)
        self._positions = torch.zeros(size, device=device, dtype=torch.int64)
        self._owners = torch.zeros(size, device=device, dtype=torch.int32)
        self._logits = torch.empty(buckets[-1], shape.vocab, device=device, dtype=state.x.dtype)
        self._wide_logits = torch.empty(talker_step.ROWS_MAX, shape.vocab, device=device)
        narrow = shape.backbone.width < WIDTH
        self._hidden = torch.zeros(buckets[-1], WIDTH, device=device, dtype=state.x.dtype) if narrow else None
        self._mail = torch.empty(mail_words(shape, buckets[-1]), device=device, dtype=torch.int32)

    # ------------------------------------------------------------ making

    @staticmethod
    def programs(shape: FrameShape, buckets: tuple[int, ...], bits: int) -> list[Program]:
        """All that will be compiled, the slowest first."""
        sizes = predictor_sizes(buckets)
        talkers = {_covering(_TALKER_ROWS, b) for b in buckets if b <= _TALKER_ROWS[-1]}
        found = [PairsPredictor.program(shape)] if sizes[-1] == frame_pairs.ROWS_MAX else []
        found += [RowsPredictor.program(shape, rows) for rows in _several(sizes)]
        found += [SoloPredictor.program(shape, bits)] if 1 in sizes else []
        return found + ([TalkerStep.program(shape, rows, bits) for rows in talkers] if talker_step.fits(shape) else [])

    def _make_talkers(self, buckets: tuple[int, ...], compiler: Compiler) -> dict[int, TalkerStep]:
        sizes = {_covering(_TALKER_ROWS, b) for b in buckets if b <= _TALKER_ROWS[-1]}
        self._packed: list[dict[str, Tensor]] = []
        if not sizes or not talker_step.fits(self._shape):
            return {}
        packed = talker_step.pack_talker(self._weights, self._bits)
        self._packed.append(packed)
        pages = self._state.tables.shape[1]
        rest = {"row_pages": pages, "bits": self._bits}
        return {size: TalkerStep(self._shape, packed, size, compiler, **rest) for size in sizes}

    def _make_predictors(self, buckets: tuple[int, ...], compiler: Compiler) -> dict[int, Predictor]:
        weights, sizes = self._weights.predictor, predictor_sizes(buckets)
        found: dict[int, Predictor] = {}
        shared = frame_predictor.pack_shared(self._shape, self._weights)
        if 1 in sizes:
            solo = shared | frame_predictor.pack_solo(weights, self._bits)
            self._packed.append(solo)
            found[1] = SoloPredictor(self._shape, solo, compiler, self._bits)
        if _several(sizes):
            several = shared | frame_predictor.pack_rows(weights)
            self._packed.append(several)
            found |= {size: RowsPredictor(self._shape, several, size, compiler) for size in _several(sizes)}
        if sizes[-1] == frame_pairs.ROWS_MAX:
            pairs = shared | frame_pairs.pack_pairs(weights)
            self._packed.append(pairs)
            found[sizes[-1]] = PairsPredictor(self._shape, pairs, compiler)
        weights.layers.clear()
        weights.heads.clear()
        weights.projection = weights.bias = None
        return found

    @property
    def bytes(self) -> dict[str, int]:
        """What is held, each place once."""
        w, done = self._weights, set[int]()
        plain = [t for layer in w.layers for t in vars(layer).values()]
        work = [*self._backbone.tensors, self._rotary, self._entry, self._logits, self._wide_logits, self._mail]
        groups = {"embeddings": [w.embed, w.embeds], "plain": [*plain, w.norm, w.head]}
        groups |= {"packed": [t for packed in self._packed for t in packed.values()], "work": work}
        sizes = {}
        for name, tensors in groups.items():
            places = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
            sizes[name] = sum(size for place, size in places.items() if place not in done)
            done |= places.keys()
        return sizes

    # ------------------------------------------------------------ a frame

    def frame(self, bucket: int) -> None:
        rows = first_rows(self._state, bucket)
        logits = self._think(rows)
        first = First(rows.seen, rows.penalty, rows.suppressed, rows.least, rows.active, rows.stopped)
        sample_rows(logits, rows.codes, 0, _draw(rows.first, rows), first=first, stop_code=self._shape.stop_code)
        hidden = rows.hidden
        if self._hidden is not None:
            hidden = self._hidden[:bucket]
            hidden[:, : rows.hidden.shape[1]].copy_(rows.hidden)
        inner = _draw(rows.inner, rows)
        for at in range(0, bucket, frame_pairs.ROWS_MAX):
            part = slice(at, min(at + frame_pairs.ROWS_MAX, bucket))
            predictor = self._predictors[_covering(self._predictors, part.stop - part.start)]
            predictor.run(hidden[part], rows.codes[part], Draw(*(t[part] for t in inner)), self._mail)
        embed_rows = EmbedRows(rows.codes, rows.text, rows.lines, rows.active, rows.steps, rows.positions, rows.x)
        embed_frame(embed_rows, self._weights.embed, self._weights.embeds)

    def _think(self, rows: FrameRows) -> Tensor:
        count = len(rows.x)
        if not self._talkers or count > talker_step.ROWS_MAX:
            self._backbone.decode(rows, self._logits[:count])
            return self._logits[:count]
        logits = self._wide_logits[:count]
        by_row = (rows.positions, rows.tables, rows.active)
        at = TalkerRows(rows.x, rows.keys, rows.values, *by_row, self._rotary, rows.hidden, logits)
        self._talkers[_covering(self._talkers, count)].run(at, self._mail)
        return logits

    # ------------------------------------------------------------ prefill

    def enter(self, pieces: Sequence[Piece]) -> int:
        """Puts the pieces one after the other; what follows them is the last row's. How many entries that are."""
        size, nobody = len(self._entry), self._state.x.shape[0] - 1
        places, owners = np.zeros(size, np.int64), np.full(size, nobody, np.int32)
        count = 0
        for row, start, rows in pieces:
            part = slice(count, count + rows.shape[0])
            places[part] = np.arange(start, start + rows.shape[0])
            owners[part] = row
            count = part.stop
        if pieces:
            torch.cat([rows for _, _, rows in pieces], out=self._entry[:count])
        send(self._positions, places)
        send(self._owners, owners)
        return count

    def prefill(self, size: int) -> None:
        self._backbone.prefill(self._entry[:size], self._positions[:size], self._owners[:size])
