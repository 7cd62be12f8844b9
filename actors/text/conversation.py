"""A conversation that is still being heard: messages at once, what was said in their recordings as it is recognised."""

from __future__ import annotations

from omnirt.errors import InvalidRequest
from omnirt.wire.payload import Message, Part, Transcript


class Conversation:
    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._heard: dict[int, list[str]] = {}
        self._whole: set[int] = set()
        """Recordings that nothing more is heard of."""

    def add_messages(self, messages: tuple[Message, ...]) -> None:
        self._messages += messages

    def add_transcript(self, transcript: Transcript) -> None:
        said = self._heard.setdefault(transcript.clip, [])
        if transcript.text.strip():
            said.append(transcript.text.strip())
        if transcript.last:
            self._whole.add(transcript.clip)

    @property
    def is_empty(self) -> bool:
        return not self._messages and not self._heard

    @property
    def is_complete(self) -> bool:
        """Whether every recording that the messages speak of has been heard to its end."""
        clips = (clip for message in self._messages for clip in _clips(message))
        return bool(self._messages) and all(clip in self._whole for clip in clips)

    def end(self) -> None:
        """No more comes. What was said alone, without messages, is the user's. Raises InvalidRequest."""
        if not self._messages:
            self._messages = [Message("user", (Part(clip=clip),)) for clip in sorted(self._heard)]
        for number, message in enumerate(self._messages):
            if any(clip not in self._whole for clip in _clips(message)):
                raise _unheard(number)

    def rendered(self, system: str = "") -> list[dict[str, str]]:
        """For a chat template. `system` opens a conversation that has no system message. Raises InvalidRequest."""
        if not self._messages:
            raise InvalidRequest("messages must not be empty", param="messages")
        said = [self._content(number, message) for number, message in enumerate(self._messages)]
        if system and all(message.role != "system" for message in self._messages):
            said.insert(0, {"role": "system", "content": system})
        return said

    def _content(self, number: int, message: Message) -> dict[str, str]:
        texts = [part.text if part.clip < 0 else " ".join(self._heard.get(part.clip, ())) for part in message.parts]
        if _clips(message):
            texts = [text for text in texts if text]
            if not texts:
                raise _unheard(number)
        fields = {"role": message.role, "content": "\n".join(texts)}
        return {**fields, "name": message.name} if message.name else fields


def _clips(message: Message) -> list[int]:
    return [part.clip for part in message.parts if part.clip >= 0]


def _unheard(number: int) -> InvalidRequest:
    return InvalidRequest(f"no speech was heard in messages[{number}]", param="messages")
