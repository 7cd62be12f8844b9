"""Keys and values of tokens seen before, in blocks, the least recently used go first.

A block is known by all tokens from the start of its sequence to its own end (a chain of hashes), and holds the very
bits that computing it again would give. So an answer does not depend on what is in here, and the answer of one turn is
as good as a prompt in the next. Memory is one pool of a fixed size, touched as it fills.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from omnirt.actors.models.decoder.pieces import BLOCK

START = b""
"""The chain before the first block."""


def chained(chain: bytes, ids: Sequence[int]) -> bytes:
    """The name of the block `ids` that follows `chain`. A cryptographic hash: prompts come from strangers."""
    return blake2b(chain + np.asarray(ids, np.int32).tobytes(), digest_size=32).digest()


class PromptCache:
    def __init__(self, pool: Any) -> None:
        """`pool`: an array or tensor [blocks, 2, layers, kv, BLOCK, d], of no or many blocks."""
        self._pool = pool
        self._places: OrderedDict[bytes, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._places)

    def fetch(self, name: bytes, block: tuple[Any, Any]) -> bool:
        """Write what is known by `name` into `block` (keys, values, [layers, kv, BLOCK, d]), if something is."""
        place = self._places.get(name)
        if place is None:
            return False
        self._places.move_to_end(name)
        block[0][...] = self._pool[place, 0]
        block[1][...] = self._pool[place, 1]
        return True

    def store(self, name: bytes, block: tuple[Any, Any]) -> None:
        assert block[0].shape[2] == BLOCK
        if name in self._places:
            self._places.move_to_end(name)
            return
        if len(self._places) < len(self._pool):
            place = len(self._places)
        elif self._places:
            _, place = self._places.popitem(last=False)
        else:
            return
        self._pool[place, 0] = block[0]
        self._pool[place, 1] = block[1]
        self._places[name] = place
