"""Text back, word by word: the smallest real pipeline, and the one to try a server with."""

from __future__ import annotations

import re
import time

import msgspec

from omnirt.runtime.stage import Chunk, Context, Emission, EngineStage, Request
from omnirt.wire.payload import Text

_WORD = re.compile(r"\s*\S+(?=\s)")


class EchoOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    delay_ms: float = 0.0
    """How long a step takes, whatever is in it."""


class _Row:
    """What has been read and not yet said."""

    def __init__(self) -> None:
        self.text = ""
        self.closed = False

    def word(self) -> str:
        """The next word with the space before it, or what is left at the end; empty when there is none yet."""
        found = _WORD.match(self.text)
        word = found[0] if found else self.text if self.closed else ""
        self.text = self.text[len(word) :]
        return word


class Echo(EngineStage):
    """The pieces joined are the input, to the last space."""

    accepts = {"text": Text}
    emits = {"text": Text}
    Options = EchoOptions

    def admit(self, ctx: Context, chunk: Chunk) -> None:
        self._row(chunk.request).text += chunk.payload.text

    def close(self, ctx: Context, request: Request) -> None:
        self._row(request).closed = True

    def step(self, ctx: Context, rows: list[Request]) -> list[Emission]:
        if self.options.delay_ms:
            time.sleep(self.options.delay_ms / 1000)  # noqa: TID251 - stands in for a device at work
        emissions: list[Emission] = []
        for request in rows:
            row = self._row(request)
            word = row.word()
            end = row.closed and not row.text
            if word or end:
                emissions.append(Emission(request, "text", Text(word) if word else None, end))
        return emissions

    def _row(self, request: Request) -> _Row:
        if request.state is None:
            request.state = _Row()
        return request.state
