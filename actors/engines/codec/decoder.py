"""The streaming decoder of a 12 Hz codec: pieces of codes in, their samples out, for many requests at a time.

    slot = decoder.open()
    call = decoder.launch([Piece(slot, codes), ...])      # any mix of lengths; waits for nothing
    call.ready(), call.samples()                          # float32, `samples_per_frame` of every frame
    decoder.close(slot)

However the frames of a request are cut into pieces, their samples together are those of all at once, from the first on.
Work is done in the order of the calls, on the device's current stream. A slot's state can be copied, so that what many
requests begin with (the recording that a voice is copied from) is decoded once.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np
import torch

from omnirt.actors.engines.codec.form import Form, PlainForm, Result, Row, Snapshot
from omnirt.actors.engines.codec.memory import POSITIONS_MAX, has_kernels
from omnirt.actors.models.qwen3_tts.codec_weights import Codec
from omnirt.errors import ConfigError, InvalidRequest, Overloaded
from omnirt.loader import did_you_mean

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class Piece(NamedTuple):
    """The next frames of a request. codes: [n, books] int32. The first `unheard` only lead in: no samples of them."""

    slot: int
    codes: np.ndarray
    unheard: int = 0


class Part(NamedTuple):
    """Where some of a piece's samples lie, and how many at their beginning to leave out."""

    result: Result
    row: int
    cut: int


class Call:
    def __init__(self, pieces: list[list[Part]], results: list[Result]) -> None:
        self._pieces, self._results = pieces, results

    def ready(self) -> bool:
        """Whether `samples` would not wait."""
        return all(result.ready() for result in self._results)

    def samples(self) -> list[np.ndarray]:
        """Of each piece, in order; unheard frames have none. To be asked once."""
        rows = [result.rows() for result in self._results]
        of = {id(result): found for result, found in zip(self._results, rows, strict=True)}
        nothing = np.empty(0, np.float32)
        return [
            np.concatenate([nothing, *(of[id(part.result)][part.row][part.cut :] for part in parts)])
            for parts in self._pieces
        ]


class StreamingDecoder:
    def __init__(self, codec: Codec, slots: int, device: str = "cpu", dtype: str = "auto") -> None:
        """`dtype`: `float32`, `bfloat16`; auto is bfloat16 on a GPU. Raises ConfigError."""
        self.shape = codec.shape
        self.sample_rate, self.samples_per_frame = codec.sample_rate, codec.shape.samples
        self.slots = slots
        self._form: Form = _form(codec, slots, device, dtype)
        self._free = list(range(slots))
        self._positions = [0] * slots

    @property
    def frames_max(self) -> int:
        """Of one row in one call of the device; longer pieces take several."""
        return max(size.frames for size in self._form.sizes.sizes)

    @property
    def slots_free(self) -> int:
        return len(self._free)

    def open(self) -> int:
        """A slot for a new request. Raises Overloaded."""
        if not self._free:
            raise Overloaded(f"all {self.slots} rows of the decoder are taken")
        slot = heapq.heappop(self._free)
        self._positions[slot] = 0
        self._form.clear(slot)
        return slot

    def close(self, slot: int) -> None:
        """Of a call under way the samples are still to be had."""
        assert slot not in self._free
        heapq.heappush(self._free, slot)

    def snapshot(self, slot: int) -> Snapshot:
        """What the slot holds after all that was launched. Costs its bytes on the device (see memory)."""
        return self._form.snapshot(slot, self._positions[slot])

    def restore(self, slot: int, snapshot: Snapshot) -> None:
        """The slot goes on from there."""
        self._positions[slot] = snapshot.position
        self._form.restore(slot, snapshot)

    def launch(self, pieces: list[Piece]) -> Call:
        """Raises InvalidRequest, before anything has begun."""
        assert len({piece.slot for piece in pieces}) == len(pieces)
        for piece in pieces:
            self._check(piece)
        parts: list[list[Part]] = [[] for _ in pieces]
        results = []
        for size, takes in self._form.sizes.rounds([len(piece.codes) for piece in pieces]):
            rows = [Row(pieces[take.piece].slot, pieces[take.piece].codes[take.first : take.last]) for take in takes]
            heard = any(take.last > pieces[take.piece].unheard for take in takes)
            results.append(self._form.run(size, rows, heard=heard))
            for row, take in enumerate(takes):
                unheard = pieces[take.piece].unheard
                if take.last > unheard:
                    cut = max(0, unheard - take.first) * self.samples_per_frame
                    parts[take.piece].append(Part(results[-1], row, cut))
        for piece in pieces:
            self._positions[piece.slot] += len(piece.codes)
        return Call(parts, results)

    def _check(self, piece: Piece) -> None:
        codes, books = piece.codes, self.shape.books
        if codes.ndim != 2 or codes.shape[1] != books:
            raise InvalidRequest(f"codes are {list(codes.shape)}, frames of {books} codes were expected", param="codes")
        if codes.size and not 0 <= int(codes.min()) <= int(codes.max()) < self.shape.codes:
            raise InvalidRequest(f"codes must be from 0 to {self.shape.codes - 1}", param="codes")
        if self._positions[piece.slot] + len(codes) > POSITIONS_MAX:
            raise InvalidRequest(f"a request may have up to {POSITIONS_MAX} frames", param="codes")


def _form(codec: Codec, slots: int, device: str, dtype: str) -> Form:
    if dtype != "auto" and dtype not in DTYPES:
        raise ConfigError(f"there is no dtype {dtype!r}{did_you_mean(dtype, ('auto', *DTYPES))}")
    on_gpu = device.startswith("cuda")
    kind = DTYPES["bfloat16" if on_gpu else "float32"] if dtype == "auto" else DTYPES[dtype]
    if on_gpu and kind == torch.bfloat16 and has_kernels(codec.shape):
        from omnirt.actors.engines.codec.buckets import KernelForm

        return KernelForm(codec.shape, codec.weights, slots, device)
    return PlainForm(codec.shape, codec.weights, slots, device, kind)
