"""A conversation as the server wants it each turn: every message so far, recordings included.

Invariant: questions and answers alternate; a question that got no answer is not part of the conversation.
"""

from __future__ import annotations

import base64
from pathlib import PurePath
from typing import Any

import msgspec
from msgspec import Struct

FIRST_BYTES = (
    (b"RIFF", 0, "wav"),
    (b"ID3", 0, "mp3"),
    (b"\xff\xfb", 0, "mp3"),
    (b"\xff\xf3", 0, "mp3"),
    (b"\xff\xf1", 0, "aac"),
    (b"fLaC", 0, "flac"),
    (b"OggS", 0, "ogg"),
    (b"ftyp", 4, "m4a"),
    (b"\x1aE\xdf\xa3", 0, "webm"),
)
"""How files of each kind begin, and at which byte."""


class Recording(Struct, frozen=True):
    name: str
    data: bytes
    format: str


def format_of(name: str, data: bytes) -> str:
    """What kind of audio it is: by its first bytes, else by its name, else empty."""
    for first, at, kind in FIRST_BYTES:
        if data[at : at + len(first)] == first:
            return kind
    return PurePath(name).suffix.lstrip(".").lower()


class Conversation:
    def __init__(self, system: str = "") -> None:
        self._system = system
        self._turns: list[dict[str, Any]] = []
        self._names: dict[int, str] = {}
        """Which recording a question was, by its place."""

    def ask(self, text: str, recording: Recording | None = None) -> None:
        content: str | list[dict[str, Any]] = text
        if recording is not None:
            sound = {"data": base64.b64encode(recording.data).decode("ascii"), "format": recording.format}
            content = [{"type": "text", "text": text}] if text else []
            content.append({"type": "input_audio", "input_audio": sound})
            self._names[len(self._turns)] = recording.name
        self._turns.append({"role": "user", "content": content})

    def answered(self, text: str) -> None:
        """The end of the turn, with as much of the answer as came."""
        assert self._turns, "an answer follows a question"
        if text:
            self._turns.append({"role": "assistant", "content": text})
        else:
            self._turns.pop()
            self._names.pop(len(self._turns), None)

    def reset(self) -> None:
        self._turns.clear()
        self._names.clear()

    def messages(self) -> list[dict[str, Any]]:
        system = [{"role": "system", "content": self._system}] if self._system else []
        return system + self._turns

    def as_json(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode({"messages": self.messages()}), indent=1) + b"\n"

    def as_text(self) -> str:
        """For reading. A recording shows as its file's name."""
        lines = [f"system: {self._system}"] if self._system else []
        for place, turn in enumerate(self._turns):
            content = turn["content"]
            words = content if isinstance(content, str) else " ".join(part.get("text", "") for part in content).strip()
            heard = [f"[{self._names[place]}]"] if place in self._names else []
            lines.append(" ".join([f"{turn['role']}:", *heard, *([words] if words else [])]))
        return "\n\n".join(lines) + "\n"
