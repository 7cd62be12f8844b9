"""Token ids to text as they come. The pieces joined are the text of all ids; a character comes when it is whole."""

from __future__ import annotations

import codecs

from omnirt.actors.text.tokenizer import Tokenizer


class Detokenizer:
    """Of one answer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._at_start = tokenizer.strips_first_space

    def feed(self, token_id: int) -> str:
        """The text that is certain now: empty within a character, and for special tokens."""
        return self._trimmed(self._decoder.decode(self._tokenizer.bytes_of(token_id)))

    def close(self) -> str:
        """What is left of a character that was never completed."""
        return self._trimmed(self._decoder.decode(b"", final=True))

    @property
    def holds(self) -> bool:
        """Whether bytes of an incomplete character are waiting."""
        return bool(self._decoder.getstate()[0])

    def _trimmed(self, text: str) -> str:
        if self._at_start and text:
            self._at_start = False
            return text.removeprefix(" ")
        return text
