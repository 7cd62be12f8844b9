"""What becomes of a request, and the readers that find it out from the bytes of an answer and when they arrived.

Times and counts only: sound is counted by its length, never decoded. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import msgspec
from msgspec import Struct
from serve_ask import PCM16_RATE

from omnirt.cli.chat_events import DONE, EventStream


class Record(Struct):
    """What became of one request. Times in ns of one clock; 0 for what did not happen."""

    began_ns: int
    """When it was due: in an open loop the wait for the client counts too."""
    ended_ns: int = 0
    code: str = ""
    """Empty for a whole answer; else the HTTP status and the server's code, or one of ours: `connect`, `timeout`,
    `broken`, `no_end`, `unreadable`, `not_samples`, `client_full`."""
    text_ns: list[int] = []
    """When each piece of text that was not empty arrived."""
    sound: list[tuple[int, int]] = []
    """(arrival, samples) of each piece of sound that was not empty."""
    rate: int = PCM16_RATE
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    sent_s: float = 0.0
    text: str = ""

    @property
    def received_s(self) -> float:
        """Of sound, by its samples."""
        return sum(samples for _, samples in self.sound) / self.rate


class Reader(Protocol):
    def begin(self, headers: dict[bytes, bytes]) -> None: ...

    def feed(self, piece: bytes, at_ns: int) -> None: ...

    def end(self) -> None:
        """The body is complete."""
        ...


class Audio(Struct):
    data: msgspec.Raw = msgspec.Raw()
    """As it stands in the event, quotes included."""


class Delta(Struct):
    content: str | None = None
    audio: Audio | None = None


class Metadata(Struct):
    sample_rate_hz: int | None = None


class Choice(Struct):
    delta: Delta | None = None
    audio_metadata: Metadata | None = None


class Usage(Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class Event(Struct):
    choices: list[Choice] = []
    usage: Usage | None = None
    error: Any = None


class Events:
    """A streamed chat."""

    decoder = msgspec.json.Decoder(Event)

    def __init__(self, record: Record) -> None:
        self._record = record
        self._stream = EventStream()
        self._done = False

    def begin(self, headers: dict[bytes, bytes]) -> None: ...

    def feed(self, piece: bytes, at_ns: int) -> None:
        for data in self._stream.feed(piece):
            if data == DONE:
                self._done = True
            else:
                self._event(self.decoder.decode(data), at_ns)

    def end(self) -> None:
        if not self._done and not self._record.code:
            self._record.code = "no_end"

    def _event(self, event: Event, at_ns: int) -> None:
        record = self._record
        for choice in event.choices:
            delta = choice.delta
            if delta is None:
                continue
            if delta.content:
                record.text_ns.append(at_ns)
                record.text += delta.content
            if delta.audio is not None:
                samples = samples_of(bytes(delta.audio.data))
                if samples:
                    record.sound.append((at_ns, samples))
            if choice.audio_metadata is not None and choice.audio_metadata.sample_rate_hz:
                record.rate = choice.audio_metadata.sample_rate_hz
        if event.usage is not None:
            record.prompt_tokens, record.completion_tokens = event.usage.prompt_tokens, event.usage.completion_tokens
        if event.error is not None:
            record.code = code_of(event.error)


def samples_of(raw: bytes) -> int:
    """16-bit samples in a JSON string of base64, by its length."""
    if raw in (b"", b"null"):
        return 0
    if b"\\" in raw:
        raw = b'"%b"' % msgspec.json.decode(raw, type=str).encode()
    return (len(raw) - 2 - raw[-3:].count(b"=")) * 3 // 4 // 2


class Samples:
    """A body of raw 16-bit samples."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._nbytes = 0
        self._kind = ""

    def begin(self, headers: dict[bytes, bytes]) -> None:
        self._kind = headers.get(b"content-type", b"").decode("latin-1").replace(" ", "").lower()
        stated = [part[5:] for part in self._kind.split(";") if part.startswith("rate=")]
        self._record.rate = int(stated[0] if stated else headers.get(b"x-sample-rate", b"") or self._record.rate)

    def feed(self, piece: bytes, at_ns: int) -> None:
        before = self._nbytes // 2
        self._nbytes += len(piece)
        samples = self._nbytes // 2 - before
        if samples:
            self._record.sound.append((at_ns, samples))

    def end(self) -> None:
        if not self._kind.startswith(("audio/pcm", "audio/l16", "application/octet-stream", "audio/raw")):
            self._record.code = "not_samples"


class Whole:
    """An answer in one piece: the text of a transcription."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._body = bytearray()

    def begin(self, headers: dict[bytes, bytes]) -> None: ...

    def feed(self, piece: bytes, at_ns: int) -> None:
        self._body += piece

    def end(self) -> None:
        self._record.text = str(msgspec.json.decode(self._body, type=dict[str, Any]).get("text", ""))


class Refusal:
    """Whatever was asked, the answer is an error."""

    def __init__(self, record: Record, status: int) -> None:
        self._record = record
        record.code = str(status)
        self._body = bytearray()

    def begin(self, headers: dict[bytes, bytes]) -> None: ...

    def feed(self, piece: bytes, at_ns: int) -> None:
        self._body += piece

    def end(self) -> None:
        try:
            error = msgspec.json.decode(self._body, type=dict[str, Any])["error"]
        except (msgspec.MsgspecError, KeyError):
            return
        self._record.code = f"{self._record.code} {code_of(error)}"


READERS: dict[str, Callable[[Record], Reader]] = {"events": Events, "samples": Samples, "whole": Whole}


def code_of(error: object) -> str:
    return str(error.get("code") or error.get("type") or "error") if isinstance(error, dict) else "error"
