"""What a decoder computes in one pass: pieces of sequences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

BLOCK = 16
"""Tokens. Memory of rows and cached prompts come in whole blocks."""


class Piece(NamedTuple):
    """Consecutive tokens of the sequence in `slot`: a chunk of a prompt, or the one token of a decode step."""

    slot: int
    start: int
    """Position of the first token; keys and values of all before are in the slot."""
    ids: Sequence[int]
    wanted: bool = True
    """Whether the logits after the last token are."""

    def single(self) -> Iterator[Piece]:
        """One piece for each token; what is wanted is wanted of the last."""
        for i, token in enumerate(self.ids):
            yield Piece(self.slot, self.start + i, (token,), self.wanted and i + 1 == len(self.ids))
