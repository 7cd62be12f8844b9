"""Text of a request to the ids a prompt is made of. Text never becomes a special token.

The model was trained on `<|im_start|>assistant\\n` + text, so ids are those of the text behind that line: with a text
that begins with a newline they are others than those of the text alone.
"""

from __future__ import annotations

from pathlib import Path

from omnirt.actors.models.qwen3_tts.config import Qwen3TtsConfig
from omnirt.actors.text.tokenizer import Tokenizer
from omnirt.errors import ConfigError

_SPEAKER = "assistant\n"
_SPEAKER_IDS = 2
_LONG_WORD_CHARS = 256
"""That are held because their word still goes on. From there on it is only looked at when it has grown by an eighth:
letter by letter, a word of thousands of letters would take the process seconds."""


class PromptTokens:
    """`role`: the ids that say who speaks."""

    def __init__(self, tokenizer: Tokenizer, config: Qwen3TtsConfig) -> None:
        """Raises ConfigError for a tokenizer of another model."""
        self._tokenizer = tokenizer
        self._ids = config.text
        self.role = tokenizer.encode(f"<|im_start|>{_SPEAKER}")
        if len(self.role) != 1 + _SPEAKER_IDS or self.role[0] != config.text.im_start:
            raise ConfigError(
                f"the tokenizer does not belong to config.json: <|im_start|> is {self.role[:1]}, im_start_token_id "
                f"{config.text.im_start}, and `assistant` and a newline are {len(self.role) - 1} tokens, not two"
            )

    @classmethod
    def load(cls, folder: Path, config: Qwen3TtsConfig) -> PromptTokens:
        """Raises ConfigError."""
        return cls(Tokenizer.load(folder), config)

    def text(self, text: str, tokens_max: int = 0) -> list[int]:
        """Of what is to be spoken, or was spoken in a recording. TooLongError for a text of far more than `tokens_max`
        tokens (0: no bound)."""
        return self._tokenizer.encode_text(_SPEAKER + text, tokens_max)[_SPEAKER_IDS:]

    def instruct(self, text: str, tokens_max: int = 0) -> list[int]:
        """Of instructions; none for an empty text."""
        if not text:
            return []
        said = self._tokenizer.encode_text(f"user\n{text}", tokens_max)
        return [self._ids.im_start, *said, self._ids.im_end, *self._tokenizer.encode_text("\n")]

    def incoming(self) -> IncomingText:
        """For a text that arrives in pieces."""
        return IncomingText(self._tokenizer)


class IncomingText:
    """Ids as soon as no later text can change them; all of them are the ids of the whole text."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._held = _SPEAKER
        self._skip = _SPEAKER_IDS
        self._look_chars = 0
        """Fewer that are held are not worth a look."""

    def push(self, text: str) -> list[int]:
        self._held += text
        if len(self._held) < self._look_chars:
            return []
        ids, self._held = self._tokenizer.settled(self._held)
        held = len(self._held)
        self._look_chars = held + held // 8 if held >= _LONG_WORD_CHARS else 0
        return self._released(ids)

    def end(self) -> list[int]:
        """No text comes any more."""
        ids, self._held = self._tokenizer.encode_text(self._held), ""
        return self._released(ids)

    def _released(self, ids: list[int]) -> list[int]:
        skipped = min(self._skip, len(ids))
        self._skip -= skipped
        return ids[skipped:]
