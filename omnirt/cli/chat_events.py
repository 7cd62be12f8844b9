"""What a streamed chat answer says: bytes of an event stream in, pieces of text and sound out.

Invariants: a piece of bytes may end anywhere; comments and fields nobody asked for are skipped; an answer that names
its text twice (as `content` and as the transcript of its audio) gives it once, as the kind that came first.
"""

from __future__ import annotations

import base64
from typing import Any

import msgspec
from msgspec import Struct

DONE = b"[DONE]"


class EventStream:
    """Server-sent events, cut at any byte."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, piece: bytes) -> list[bytes]:
        """The data of the events that `piece` completes."""
        if b"\n" not in piece:
            self._rest += piece
            return []
        *lines, self._rest = (self._rest + piece).split(b"\n")
        events: list[bytes] = []
        for raw in lines:
            line = raw.removesuffix(b"\r")
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif not line and self._data:
                events.append(self._data[0] if len(self._data) == 1 else b"\n".join(self._data))
                self._data.clear()
        return events


class Audio(Struct):
    data: str | None = None
    transcript: str | None = None


class Delta(Struct):
    content: str | None = None
    audio: Audio | None = None


class Choice(Struct):
    delta: Delta = msgspec.field(default_factory=Delta)
    finish_reason: str | None = None


class Event(Struct):
    choices: tuple[Choice, ...] = ()
    error: Any = None


class Piece(Struct, frozen=True):
    """`sound`: 16-bit little-endian mono samples."""

    text: str = ""
    sound: bytes = b""


class Answer:
    """An answer as far as it has come."""

    def __init__(self) -> None:
        self.text = ""
        self.error = ""
        """The server's words, once it has given up."""
        self.finish_reason = ""
        self.complete = False
        self._stream = EventStream()
        self._decoder = msgspec.json.Decoder(Event)
        self._named_by = ""

    def feed(self, piece: bytes) -> list[Piece]:
        """What is new. Raises msgspec.MsgspecError for what is no chat answer."""
        pieces: list[Piece] = []
        for data in self._stream.feed(piece):
            if data == DONE:
                self.complete = True
            else:
                pieces += self._heard(self._decoder.decode(data))
        return pieces

    def _heard(self, event: Event) -> list[Piece]:
        if event.error is not None:
            self.error = message_of(event.error)
        pieces: list[Piece] = []
        for choice in event.choices[:1]:
            self.finish_reason = choice.finish_reason or self.finish_reason
            audio = choice.delta.audio or Audio()
            text = self._once("content", choice.delta.content) + self._once("transcript", audio.transcript)
            self.text += text
            if text or audio.data:
                pieces.append(Piece(text, base64.b64decode(audio.data or "")))
        return pieces

    def _once(self, kind: str, text: str | None) -> str:
        if not text:
            return ""
        self._named_by = self._named_by or kind
        return text if self._named_by == kind else ""


def message_of(error: object) -> str:
    """The sentence in an error, however the server wraps it."""
    if isinstance(error, dict):
        return str(error.get("message") or error)  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]
    return str(error)
