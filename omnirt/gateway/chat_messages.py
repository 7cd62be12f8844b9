"""The `messages` of a chat request, checked: pure, every refusal names the place (`messages[2].content[0].text`).

Recordings are numbered in the order in which they appear; a part refers to one by its number. An assistant's spoken
answer of an earlier request is replaced with what it said.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from msgspec import Struct

from omnirt.gateway.body import as_object
from omnirt.gateway.errors import invalid
from omnirt.gateway.fields import UNSUPPORTED, Fields, record, text
from omnirt.wire.payload import Message, Part

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
"""Role of the API -> role that the stages see."""
ELSEWHERE = {"image_url": "images", "video_url": "video", "file": "files", "image": "images", "video": "video"}
"""Parts that are known and that no pipeline here takes."""
KINDS = ("text", "input_audio", "audio_url")
NAME_CHARS_MAX = 256
RECORDINGS_MAX = 64


class MessageRules(Struct, frozen=True):
    """`hears`: the pipeline takes recordings. `transcript_of`: what an earlier spoken answer said, by its id."""

    hears: bool = True
    messages_max: int = 1024
    chars_max: int = 1 << 20
    transcript_of: Callable[[str], str | None] = lambda _: None


class Recording(Struct, frozen=True):
    """One of the request's recordings, not yet decoded: `data` (base64) or the `url` that it lies at."""

    param: str
    data: str = ""
    url: str = ""


class Conversation(Struct, frozen=True):
    messages: tuple[Message, ...]
    recordings: tuple[Recording, ...] = ()


def parse_messages(value: object, rules: MessageRules) -> Conversation:
    """Raises a 400."""
    if value is None:
        raise invalid("messages is required.", "messages", "missing_required_parameter")
    if not isinstance(value, list) or not value:
        raise invalid("messages must be a list with at least one message.", "messages")
    given = cast("list[object]", value)
    if len(given) > rules.messages_max:
        raise invalid(f"messages has {len(given)} entries; the limit is {rules.messages_max}.", "messages")
    reader = _Reader(rules)
    messages = tuple(reader.message(entry, f"messages[{index}]") for index, entry in enumerate(given))
    return Conversation(messages, tuple(reader.recordings))


class _Reader:
    def __init__(self, rules: MessageRules) -> None:
        self._rules = rules
        self._chars = 0
        self.recordings: list[Recording] = []

    def message(self, entry: object, at: str) -> Message:
        fields = as_object(entry)
        if fields is None:
            raise invalid(f"{at} must be an object.", at)
        role = fields.get("role")
        if not isinstance(role, str) or role not in ROLES:
            raise invalid(f"{at}.role must be one of: {', '.join(ROLES)}.", f"{at}.role")
        for name in ("tool_calls", "function_call"):
            if fields.get(name):
                raise invalid("This model does not support tools.", f"{at}.{name}", UNSUPPORTED)
        name = text(fields, "name", NAME_CHARS_MAX, f"{at}.") or ""
        said = self._spoken(fields, at) if role == "assistant" else None
        parts = self._content(fields.get("content"), f"{at}.content", optional=role == "assistant")
        if said is not None and not any(part.text for part in parts):
            parts = (self._text(said, f"{at}.audio.id"),)
        return Message(ROLES[role], parts, name)

    def _spoken(self, fields: Fields, at: str) -> str | None:
        """What the earlier answer said that the message refers to, if it does."""
        audio = record(fields, "audio", f"{at}.")
        if audio is None:
            return None
        param = f"{at}.audio.id"
        known_as = audio.get("id")
        if not isinstance(known_as, str):
            raise invalid(f"{param} must be a string.", param)
        transcript = self._rules.transcript_of(known_as)
        if transcript is None:
            raise invalid(f"{param} is not the id of a spoken answer that is still kept; send its text.", param)
        return transcript

    def _content(self, value: object, at: str, *, optional: bool) -> tuple[Part, ...]:
        if isinstance(value, str):
            return (self._text(value, at),)
        if value is None and optional:
            return ()
        if value is None:
            raise invalid(f"{at} is required.", at, "missing_required_parameter")
        if not isinstance(value, list) or not value:
            raise invalid(f"{at} must be a string or a list of parts that is not empty.", at)
        return tuple(self._part(entry, f"{at}[{index}]") for index, entry in enumerate(cast("list[object]", value)))

    def _part(self, entry: object, at: str) -> Part:
        if isinstance(entry, str):
            return self._text(entry, at)
        fields = as_object(entry)
        if fields is None:
            raise invalid(f"{at} must be an object.", at)
        kind = fields.get("type")
        if kind in ("text", "refusal"):
            return self._text(fields.get(kind), f"{at}.{kind}")
        if kind == "input_audio":
            return self._hear(fields, kind, at, "data")
        if kind == "audio_url":
            return self._hear(fields, kind, at, "url")
        if isinstance(kind, str) and kind in ELSEWHERE:
            raise invalid(f"This model takes no {ELSEWHERE[kind]}.", f"{at}.{kind}", UNSUPPORTED)
        raise invalid(f"{at}.type must be one of: {', '.join(KINDS)}.", f"{at}.type")

    def _hear(self, fields: Fields, kind: str, at: str, name: str) -> Part:
        param = f"{at}.{kind}"
        if not self._rules.hears:
            raise invalid("This model takes no audio.", param, UNSUPPORTED)
        if len(self.recordings) >= RECORDINGS_MAX:
            raise invalid(f"There are more than {RECORDINGS_MAX} recordings.", param)
        bare = kind == "audio_url" and isinstance(fields.get(kind), str)
        source: Fields = {"url": fields[kind]} if bare else record(fields, kind, f"{at}.") or {}
        value = source.get(name)
        if not isinstance(value, str) or not value:
            raise invalid(f"{param}.{name} must be a string that is not empty.", f"{param}.{name}")
        text(source, "format", NAME_CHARS_MAX, f"{param}.")  # what it is shows when it is decoded
        self.recordings.append(Recording(f"{param}.{name}", **{name: value}))
        return Part(clip=len(self.recordings) - 1)

    def _text(self, value: object, at: str) -> Part:
        if not isinstance(value, str):
            raise invalid(f"{at} must be a string.", at)
        self._chars += len(value)
        if self._chars > self._rules.chars_max:
            raise invalid(f"The messages have more than {self._rules.chars_max} characters.", "messages")
        return Part(value)
