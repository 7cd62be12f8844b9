"""What a connection of `/v1/audio/speech/stream` means, message by message: a pure machine.

    session.config ---> input.text, input.text, ... ---> input.done ---> input.text ... | session.config | session.close
                        |<--------- an utterance --------------->|

An utterance is one unit of text to speak, or several where the client wants it cut into sentences or clauses. Text goes
on as it comes; its units are spoken in order, while more of it arrives.

Invariants: `input.done` gives one `Flush`, and every unit that began has one `Whole` or one `Abort`; what
is wrong with one utterance stays with it: its error is said once, the rest of its text is dropped, and the next one
begins afresh. Settings change between utterances only. Where they are wrong, that is said once, and nothing is spoken
until good ones come, of an utterance only its end: speech with other settings than those asked for would be worse.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from omnirt.gateway.body import as_object
from omnirt.gateway.text_split import Splitter

MESSAGES = ("session.config", "input.text", "input.done", "session.close")

# ---------------------------------------------------------------- effects


class Configure(Struct, frozen=True):
    """Look at these settings, then say `configured` or `misconfigured`."""

    fields: dict[str, Any]


class Begin(Struct, frozen=True):
    """Speak a unit, of which this is the text so far."""

    utterance: int
    sentence: int
    text: str


class More(Struct, frozen=True):
    """More of the unit that began last."""

    text: str


class Whole(Struct, frozen=True):
    """That unit has all its text."""


class Abort(Struct, frozen=True):
    """That unit is not to be spoken any further."""


class Lost(Struct, frozen=True):
    """A unit that never began: what was wrong has been said."""

    utterance: int
    sentence: int


class Flush(Struct, frozen=True):
    """The utterance ends behind its units. `error`: not all of it was spoken."""

    utterance: int
    sentences: int
    error: bool = False


class Complain(Struct, frozen=True):
    message: str
    code: str = "invalid_value"
    param: str | None = None


class Close(Struct, frozen=True):
    """When all that began was spoken."""


Effect = Configure | Begin | More | Whole | Abort | Lost | Flush | Complain | Close


class Bounds(Struct, frozen=True):
    """`chars_max`: of a unit."""

    chars_max: int
    config_bytes_max: int
    text_bytes_max: int


class Utterances:
    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._granularity = "none"
        self._splitter = Splitter("none")
        self._is_set = False
        self._is_usable = False
        """Whether the settings that came last can be spoken with."""
        self._utterance = self._sentence = 0
        self._has_text = self._failed = self._was_aborted = False
        self._chars = -1
        """Of the unit that is open; below 0 when none is."""

    @property
    def is_set(self) -> bool:
        """Whether settings came, good or bad."""
        return self._is_set

    # ------------------------------------------------------------ settings

    def configured(self, granularity: str) -> list[Effect]:
        self._is_set, self._is_usable, self._granularity = True, True, granularity
        self._splitter = Splitter(granularity)
        return []

    def misconfigured(self, complaint: Complain) -> list[Effect]:
        self._is_set, self._is_usable = True, False
        return [complaint]

    # ------------------------------------------------------------ messages

    def received(self, data: bytes) -> list[Effect]:
        """A text message."""
        try:
            message = as_object(msgspec.json.decode(data))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return [Complain(f"The message is not valid JSON: {error}.", "invalid_json")]
        if message is None:
            return [Complain("The message must be a JSON object.", "invalid_json")]
        kind = message.get("type")
        bounds = self._bounds
        limit = bounds.config_bytes_max if kind == "session.config" else bounds.text_bytes_max
        if len(data) > limit:
            text = f"The message has {len(data)} bytes; the limit is {limit}."
            return self._too_large(kind, Complain(text, "request_too_large"))
        if kind == "session.config":
            return self._config({name: value for name, value in message.items() if name != "type"})
        return self._input(kind, message.get("text"))

    def binary(self) -> list[Effect]:
        return [Complain("Binary messages are not understood here; send JSON as text.", "invalid_json")]

    def _too_large(self, kind: object, complaint: Complain) -> list[Effect]:
        if kind == "session.config" and not self._has_text:
            return self.misconfigured(complaint)
        return self._spoilt(complaint) if kind == "input.text" and self._is_set else [complaint]

    def _config(self, fields: dict[str, Any]) -> list[Effect]:
        if self._has_text:
            return [Complain("session.config cannot come in the middle of an utterance; send input.done first.")]
        return [Configure(fields)]

    def _input(self, kind: object, text: object) -> list[Effect]:
        if kind == "session.close":
            return [*self._abort(), Close()]
        if kind not in MESSAGES:
            return [Complain(f"type must be one of: {', '.join(MESSAGES)}.", "unknown_event", "type")]
        if not self._is_set:
            return [Complain("Send session.config first.", param="type")]
        return self._done() if kind == "input.done" else self._text(text)

    # ------------------------------------------------------------ text

    def _text(self, text: object) -> list[Effect]:
        if not isinstance(text, str):
            return self._spoilt(Complain("input.text must have its text as a string.", param="text"))
        if not text:
            return []
        self._has_text = True
        if self._failed or not self._is_usable:
            return []
        effects: list[Effect] = []
        for piece, ends in self._splitter.feed(text):
            effects += self._piece(piece, ends)
            if self._failed:
                break
        return effects

    def _piece(self, piece: str, ends: bool) -> list[Effect]:
        effects: list[Effect] = []
        if self._chars < 0:
            piece = piece.lstrip()
            if piece:
                self._chars = len(piece)
                effects.append(Begin(self._utterance, self._sentence, piece))
        elif piece:
            self._chars += len(piece)
            effects.append(More(piece))
        if self._chars > self._bounds.chars_max:
            limit = self._bounds.chars_max
            return self._spoilt(Complain(f"The text has over {limit} characters.", param="input"), begun=effects)
        if ends and self._chars >= 0:
            effects += self._whole()
        return effects

    def _done(self) -> list[Effect]:
        effects: list[Effect] = self._whole() if self._chars >= 0 else []
        if self._failed and not self._was_aborted and self._is_usable:
            effects.append(Lost(self._utterance, self._sentence))
            self._sentence += 1
        is_unspoken = self._has_text and not self._is_usable
        effects.append(Flush(self._utterance, self._sentence, self._failed or is_unspoken))
        self._utterance += 1
        self._sentence = 0
        self._has_text = self._failed = self._was_aborted = False
        self._splitter = Splitter(self._granularity)
        return effects

    def _whole(self) -> list[Effect]:
        self._chars = -1
        self._sentence += 1
        return [Whole()]

    def _spoilt(self, complaint: Complain, begun: list[Effect] | None = None) -> list[Effect]:
        """The utterance cannot be spoken as it was meant. `begun`: effects of its text, of which what would only be
        thrown away is left out."""
        effects: list[Effect] = [complaint]
        if self._chars >= 0 and not (begun and isinstance(begun[0], Begin)):
            effects += self._abort()
        self._chars = -1
        self._has_text = self._failed = True
        return effects

    def _abort(self) -> list[Effect]:
        if self._chars < 0:
            return []
        self._chars = -1
        self._sentence += 1
        self._was_aborted = True
        return [Abort()]
