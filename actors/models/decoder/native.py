"""The decoder as one native call per pass, on CPU. A token's numbers depend on its sequence only, bit for bit, whatever
is computed with it: see the kernel's invariants.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from omnirt.actors.models.decoder.config import DecoderConfig
from omnirt.actors.models.decoder.pieces import Piece
from omnirt.actors.models.decoder.rope import rotary_tables
from omnirt.actors.models.decoder.weights import Weights
from omnirt.kernels.decoder_packing import DecoderShape, Kept
from omnirt.kernels.decoder_step import PackedDecoder, is_compiled

__all__ = ["COMPILING", "NativeDecoder", "is_compiled", "packed", "shape_of"]
COMPILING = "compiling the kernel (once on this machine, about 20 s)"


class NativeDecoder:
    def __init__(self, packed: PackedDecoder, config: DecoderConfig, cache: tuple[np.ndarray, np.ndarray]) -> None:
        """`cache`: keys, values, [slots, layers, kv, positions, head_dim] float32."""
        self._packed = packed
        self._cache = cache
        self._rotation = rotary_tables(config, cache[0].shape[3])

    def run(self, pieces: Sequence[Piece], logits: np.ndarray) -> None:
        """Keys and values of every token into the cache, and of each piece that wants them its logits into the next row
        of `logits`. A slot may have one piece in a pass."""
        counts = [len(piece.ids) for piece in pieces]
        tokens = np.array([token for piece in pieces for token in piece.ids], np.int32)
        slots = np.repeat(np.array([piece.slot for piece in pieces], np.int32), counts)
        positions = np.concatenate([np.arange(p.start, p.start + len(p.ids), dtype=np.int32) for p in pieces])
        ends = np.cumsum(counts, dtype=np.int32) - np.int32(1)
        wanted = np.ascontiguousarray(ends[[piece.wanted for piece in pieces]])
        self._packed.step(tokens, positions, slots, self._cache, self._rotation, logits, wanted)


def shape_of(config: DecoderConfig) -> DecoderShape | None:
    """None for what the kernel does not take."""
    try:
        return DecoderShape(
            layers=config.layers,
            d_model=config.hidden,
            heads=config.heads,
            kv_heads=config.kv_heads,
            head_dim=config.head_dim,
            d_ffn=config.ffn,
            vocab=config.vocab_size,
            rms_eps=config.norm_eps,
            qk_norm=config.head_norm,
            qkv_bias=config.qkv_bias,
        )
    except AssertionError:
        return None


def packed(shape: DecoderShape, weights: Weights, dtype: Kept, rows_max: int, threads: int) -> PackedDecoder:
    return PackedDecoder.pack(shape, weights, dtype, rows_max=rows_max, threads=threads)
