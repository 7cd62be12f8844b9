"""Hands on what it gets, unchanged: for measuring what a hop costs, and for showing that placement changes nothing."""

from __future__ import annotations

from omnirt.runtime.stage import Chunk, Context, Emission, Stage
from omnirt.wire.payload import Text


class Relay(Stage):
    accepts = {"text": Text}
    emits = {"text": Text}

    def step(self, ctx: Context, chunks: list[Chunk]) -> list[Emission]:
        return [chunk.reply("text", chunk.payload) for chunk in chunks]
