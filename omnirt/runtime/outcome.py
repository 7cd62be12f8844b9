"""What a step did for one row: what it used, what it said, how it ended."""

from __future__ import annotations

from typing import Any

import numpy as np

from omnirt.errors import OmnirtError
from omnirt.runtime.row import Arrived, Row
from omnirt.runtime.stage import Chunk, Emission
from omnirt.wire.payload import Payload, owned


class Outcome:
    __slots__ = ("chunks", "emissions", "error", "finished", "put_off", "row", "used")

    def __init__(self, row: Row) -> None:
        self.row = row
        self.chunks: list[Chunk] = []
        self.used: list[Arrived] = []
        self.emissions: list[Emission] = []
        self.finished = False
        self.put_off = False
        """The step took no notice of the row: the next one does."""
        self.error: OmnirtError | None = None

    def release(self) -> None:
        """Give back the input. What was emitted and lies in it is copied first: from now on others may write there."""
        borrowed: list[Any] = [
            value
            for chunk, arrived in zip(self.chunks, self.used, strict=False)
            if not isinstance(arrived.body, Payload)
            for name in chunk.payload.__struct_fields__
            if isinstance(value := getattr(chunk.payload, name), np.ndarray)
        ]
        if borrowed:
            for emission in self.emissions:
                if emission.payload is not None:
                    emission.payload = owned(emission.payload, borrowed)
        for arrived in self.used:
            arrived.release()
