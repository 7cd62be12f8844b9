# pyright: basic
"""One step of a decoder (Llama, Qwen2, Qwen3) for any rows, each with its token, position and slot: one native call.

A row is a token of one slot's sequence. Rows of a step may be of different slots (decoding) or follow each other in one
slot (prefill), in any mixture: keys and values of all rows are written before any row attends.

Invariants
* a row's numbers are the same to the bit whatever other rows are in the step, however many threads work
* a step allocates nothing but a few Python objects; between steps every thread sleeps in the kernel
* however weights are kept, the numbers are those of float32 with `rounded` weights, to the bit
* no two rows of a step have the same slot and position

Measured with 135 M weights, 200 positions, on one core (Zen 3, 3.2 GHz, 20 GB/s): bfloat16 15.4 ms for one row, where
reading the weights takes 13.5; 38 ms for 8 rows, 70 for 16, the second core then halves it. int8 12.2 ms for one row.
"""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from omnirt.kernels import decoder_layout as at
from omnirt.kernels.decoder_packing import (
    TILE,
    Arena,
    Blocks,
    DecoderShape,
    Kept,
    Matrix,
    in_groups,
    layer_matrices,
    layer_vectors,
    lines,
    rounded,
    tiled,
)
from omnirt.kernels.decoder_reference import reference

__all__ = ["Blocks", "DecoderShape", "Kept", "PackedDecoder", "reference", "rounded"]
TOLERANCE = 2e-5
"""Of `step` against `reference` with `rounded` weights, relative to the largest logit: another order of additions."""
Pair = tuple[np.ndarray, np.ndarray]
_KINDS = {at.FLOAT32: "float32", at.BFLOAT16: "bfloat16", at.INT8: "int8", at.INT4: "int4"}


class PackedDecoder:
    """Weights as the kernel reads them, buffers for `rows_max` rows, and the threads that help."""

    def __init__(self, shape: DecoderShape, rows_max: int, threads: int) -> None:
        self.shape = shape
        self.rows_max = rows_max
        self.threads = threads
        words = np.zeros(at.END + 8, np.int64)
        self._c = words[-words.ctypes.data % 64 // 8 :][: at.END]
        self._alive: list[object] = []
        self._context = 0
        self._everyone = np.arange(rows_max, dtype=np.int32)

    @classmethod
    def pack(
        cls,
        shape: DecoderShape,
        weights: Mapping[str, Matrix],
        dtype: Kept = "bfloat16",
        *,
        rows_max: int = 256,
        threads: int | None = None,
    ) -> PackedDecoder:
        """`weights`: embed, norm, lm_head (perhaps the very object embed) and, for each layer i, "i.attn_norm", "i.q",
        "i.k", "i.v", "i.o", "i.mlp_norm", "i.gate", "i.up", "i.down"; "i.q_bias", ... and "i.q_norm", "i.k_norm" where
        the shape has them. Matrices are float32 [outputs, inputs], or Blocks, which int8 keeps as they are.

        One caller at a time; `threads` are those of a step, the caller's among them.
        """
        decoder = cls(shape, rows_max, threads or len(os.sched_getaffinity(0)))
        decoder._set_shape()
        decoder._set_layers(weights, dtype)
        decoder._set_ends(weights, dtype)
        decoder._set_buffers()
        decoder._start()
        return decoder

    def step(
        self,
        tokens: np.ndarray,
        positions: np.ndarray,
        slots: np.ndarray,
        cache: Pair,
        rotation: Pair,
        logits: np.ndarray,
        wanted: np.ndarray | None = None,
    ) -> None:
        """Keys and values into the cache; logits[j] of the row wanted[j], or of every row.

        int32 [rows] tokens, positions, slots; float32 [slots, layers, kv_heads, context, head_dim] keys, values;
        float32 [context, head_dim] cosines, sines; float32 [rows wanted, vocab] logits.
        """
        c, rows, (keys, values) = self._c, len(tokens), cache
        wanted = self._everyone[:rows] if wanted is None else wanted
        if keys.shape[3] != self._context:
            self._set_context(keys.shape[3])
        assert rows <= self.rows_max
        self._check_integers((tokens, self.shape.vocab), (positions, self._context), (slots, len(keys)), (wanted, rows))
        self._check_arrays(cache, rotation, logits)
        assert len(tokens) == len(positions) == len(slots)
        assert len(wanted) <= len(logits)
        c[at.ROWS], c[at.TOKENS], c[at.POSITIONS], c[at.SLOTS] = rows, _at(tokens), _at(positions), _at(slots)
        c[at.KEYS], c[at.VALUES] = _at(keys), _at(values)
        c[at.KV_SLOT : at.KV_HEAD + 1] = keys.strides[:3]
        c[at.COS], c[at.SIN] = (_at(table) for table in rotation)
        c[at.WANTED], c[at.WANTED_ROWS] = _at(wanted), len(wanted)
        c[at.LOGITS], c[at.LOGITS_BYTES] = _at(logits), logits.strides[0]
        self._run(c, 0)

    @staticmethod
    def _check_integers(*arrays: tuple[np.ndarray, int]) -> None:
        """Native code reads where they point."""
        for array, end in arrays:
            assert array.dtype == np.int32
            assert array.flags.c_contiguous
            assert not len(array) or (array.min() >= 0 and array.max() < end)

    def _check_arrays(self, cache: Pair, rotation: Pair, logits: np.ndarray) -> None:
        shape, (keys, values) = self.shape, cache
        assert keys.shape[1:] == (shape.layers, shape.kv_heads, self._context, shape.head_dim)
        assert keys.strides == values.strides
        assert keys.strides[3:] == (4 * shape.head_dim, 4)
        assert logits.flags.c_contiguous
        assert logits.shape[1] == shape.vocab
        for table in rotation:
            assert table.flags.c_contiguous
            assert len(table) >= self._context
        for array in (*cache, *rotation, logits):
            assert array.dtype == np.float32

    # ---------------------------------------------------------------- before the first step

    def _set_shape(self) -> None:
        c, shape = self._c, self.shape
        c[at.LAYERS], c[at.D], c[at.HEADS], c[at.KV_HEADS] = shape.layers, shape.d_model, shape.heads, shape.kv_heads
        c[at.HEAD_DIM], c[at.VOCAB] = shape.head_dim, shape.vocab
        c[at.EPS] = np.array([shape.rms_eps, 0], np.float32).view(np.int64)[0]
        c[at.HAS_QK_NORM], c[at.HAS_BIAS] = shape.qk_norm, shape.qkv_bias
        c[at.HEAD_TILES] = len(in_groups(shape.head_dim)) // TILE

    def _set_layers(self, weights: Mapping[str, Matrix], dtype: Kept) -> None:
        """Layers lie one behind the other, all alike."""
        c = self._c
        for layer in range(self.shape.layers):
            matrices = list(layer_matrices(self.shape, weights, layer, dtype))
            vectors = layer_vectors(self.shape, weights, layer)
            if layer == 0:
                size = sum(lines(data.nbytes) for data in (*(data for _, _, data, _ in matrices), *vectors.values()))
                arena = self._arena(size * self.shape.layers)
                c[at.WEIGHTS], c[at.LAYER_BYTES] = arena.address, size
            start = arena.address + arena.used
            for word, kind, data, terms in matrices:
                assert layer == 0 or c[word + at.M_KIND] == kind
                self._set_matrix(word, arena.add(data) - start, (kind, data, terms))
            for word, data in vectors.items():
                c[word] = arena.add(data) - start

    def _set_matrix(self, word: int, place: int, matrix: tuple[int, np.ndarray, int]) -> None:
        c, (kind, data, terms) = self._c, matrix
        outputs = self._outputs(word)
        c[word + at.M_AT], c[word + at.M_TILE], c[word + at.M_TERMS] = place, data.nbytes * TILE // outputs, terms
        c[word + at.M_KIND], c[word + at.M_PRODUCT] = kind, _product(_KINDS[kind])

    def _outputs(self, word: int) -> int:
        shape = self.shape
        if word == at.QKV:
            return (shape.heads + 2 * shape.kv_heads) * len(in_groups(shape.head_dim))
        if word == at.GATE_UP:
            return 2 * len(in_groups(shape.d_ffn))
        return len(in_groups(shape.d_model if word in (at.OUTPUT, at.DOWN) else shape.vocab))

    def _set_ends(self, weights: Mapping[str, Matrix], dtype: Kept) -> None:
        """Embeddings and logits; often one matrix."""
        c, shape = self._c, self.shape
        for word, name in ((at.HEAD, "lm_head"), (at.EMBED, "embed")):
            if word == at.EMBED and weights["lm_head"] is weights["embed"]:
                c[at.EMBED : at.EMBED + at.HEAD - at.EMBED] = c[at.HEAD : at.END]
                continue
            kind, data = tiled([weights[name]], in_groups(shape.vocab), dtype)
            self._set_matrix(word, self._arena(lines(data.nbytes)).add(data), (kind, data, shape.d_model))
        c[at.NORM] = self._arena(lines(shape.d_model * 4)).add(np.asarray(weights["norm"], np.float32))

    def _set_buffers(self) -> None:
        c, shape, rows = self._c, self.shape, self.rows_max
        c[at.HIDDEN_BYTES] = len(in_groups(shape.d_ffn)) * 4
        c[at.X] = self._arena(rows * shape.d_model * 4).address
        c[at.Q] = self._arena(rows * shape.heads * shape.head_dim * 4).address
        c[at.HIDDEN] = self._arena(rows * int(c[at.HIDDEN_BYTES])).address
        c[at.ATTEND] = _attention()
        self._scratch: Arena | None = None

    def _set_context(self, context: int) -> None:
        """Each thread's scratch: normalised rows, outputs of a few rows, the scores of three heads."""
        c, shape = self._c, self.shape
        self._context = context
        c[at.SCRATCH_OUT] = at.PART * shape.d_model * 4
        c[at.SCRATCH_SCORES] = c[at.SCRATCH_OUT] + 6 * max(at.WIDE, len(in_groups(shape.head_dim))) * 4
        c[at.SCRATCH_BYTES] = lines(int(c[at.SCRATCH_SCORES] + 3 * (context + 8) * 4))
        self._scratch = Arena(self.threads * int(c[at.SCRATCH_BYTES]))
        c[at.SCRATCH] = self._scratch.address

    def _arena(self, size: int) -> Arena:
        arena = Arena(size)
        self._alive.append(arena)
        return arena

    def _start(self) -> None:
        self._run = _step()
        weakref.finalize(self, self._run, self._c, -1).atexit = False
        for thread in range(1, self.threads):
            threading.Thread(target=self._run, args=(self._c, thread), daemon=True, name=f"decoder {thread}").start()


def _at(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


# Compiled code. numba is imported here, 1.5 s; the first time on a machine it compiles, then it loads what it kept.


def is_compiled() -> bool:
    """Whether an earlier start has left the code for this one; it is kept under the digest of its sources."""
    from numba.core.caching import FunctionCache

    from omnirt.kernels import decoder_native, native_memory

    try:
        folder = Path(FunctionCache(decoder_native.run).cache_path)
    except RuntimeError:  # nothing can be kept here
        return False
    return any(folder.glob(f"decoder_native.run_{native_memory._digest()}-*.nbi"))


@functools.cache
def _step() -> Any:
    from omnirt.kernels import decoder_native

    return decoder_native.compiled()


@functools.cache
def _product(kind: str) -> int:
    from omnirt.kernels import row_products

    return _kept(row_products.compiled(kind))


@functools.cache
def _attention() -> int:
    from omnirt.kernels import cached_attention

    return _kept(cached_attention.compiled())


_functions: list[Any] = []
"""What the addresses point into; never freed."""


def _kept(function: Any) -> int:
    _functions.append(function)
    return function.address
