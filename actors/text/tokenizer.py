"""Text to token ids and back, by the tokenizer.json of a checkpoint, or by its vocab.json and merges.txt.

What always holds:
    text that a user wrote never becomes a special token, wherever a template puts it: `guard` breaks what looks like
    one, and `encode_guarded` takes the guards out again only after special tokens have been looked for;
    without such text the ids are those of encoding the rendered prompt as a whole;
    what is far too long is refused for the price of its beginning;
    ids of a text that arrives in pieces (`settled`) are those of the whole text.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from omnirt.actors.text.vocabulary_files import from_vocabulary
from omnirt.errors import ConfigError, InvalidRequest

_GUARDS = [chr(code) for code in range(0xFDD0, 0xFDF0)]
"""Code points that Unicode keeps out of text."""
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_FIRST_LOOK = 8
"""Characters for each token that a prompt may have: more than most prompts need."""
_LOOK_GROWS = 4


class TooLongError(Exception):
    """A prompt has more tokens than it may."""


class Tokenizer:
    def __init__(self, library: Any) -> None:
        """`library`: a `tokenizers.Tokenizer`."""
        self._library = library
        added = {number: token for number, token in library.get_added_tokens_decoder().items() if token.special}
        self.special = {number: token.content for number, token in added.items()}
        self._ids = {content: number for number, content in self.special.items()}
        # One character alone cannot be broken, so it is not looked for either: it is never special in a template.
        breakable = [token for token in added.values() if len(token.content) > 1]
        breakable.sort(key=lambda token: -len(token.content))
        self._marks = re.compile("|".join(re.escape(token.content) for token in breakable) or r"(?!)")
        self._splits = re.compile("|".join(_with_space(token) for token in breakable) or r"(?!)")
        self._words = [t.content for t in library.get_added_tokens_decoder().values() if not t.special]
        """Found in plain text, too."""
        self._spelling = _spelling(library)
        self._bytes: dict[int, bytes] = {}
        # A normaliser may drop characters; without one no token stands for more of them than it has bytes.
        self._longest = 0 if library.normalizer else max(map(self._length_of, library.get_vocab()), default=0)

    @classmethod
    def load(cls, folder: Path) -> Tokenizer:
        """Raises ConfigError."""
        import tokenizers

        path = folder / "tokenizer.json"
        if not path.is_file() and not (folder / "vocab.json").is_file():
            raise ConfigError(f"{folder} holds no tokenizer.json, nor vocab.json")
        try:
            library = tokenizers.Tokenizer.from_file(str(path)) if path.is_file() else from_vocabulary(folder)
        except ConfigError:
            raise
        except Exception as error:  # the library raises this very class
            raise ConfigError(f"the tokenizer of {folder} cannot be read: {error}") from error
        library.no_truncation()
        library.no_padding()
        return cls(library)

    def encode(self, prompt: str, tokens_max: int = 0) -> list[int]:
        """A whole prompt as its author wrote it: special tokens in it are meant, and the model's beginning token is
        put before it where its tokenizer says so.

        `tokens_max`: TooLongError for a prompt of far more tokens, soon; one of few more may be encoded. 0: none.
        """
        return self._bounded(prompt, tokens_max, lambda text: self._library.encode(text).ids)

    def guard(self, texts: Sequence[str]) -> tuple[list[str], str]:
        """The texts with what looks like a special token broken by a guard, and that guard. Raises InvalidRequest."""
        guard = next((char for char in _GUARDS if not any(char in text for text in texts)), None)
        if guard is None:
            raise InvalidRequest("the messages hold every code point that is kept out of text", param="messages")
        return [self._broken(text, guard) for text in texts], guard

    def encode_guarded(self, text: str, guard: str, tokens_max: int = 0) -> list[int]:
        """A rendered template. Special tokens are those that no guard breaks. `tokens_max`: as for `encode`."""
        ids: list[int] = []
        start = 0
        for found in self._splits.finditer(text):
            ids += self._plain(text[start : found.start()].replace(guard, ""), tokens_max)
            if tokens_max and len(ids) > 2 * tokens_max:
                raise TooLongError
            mark = found[0] if found[0] in self._ids else found[0].strip()
            ids.append(self._ids[mark])
            start = found.end()
        return ids + self._plain(text[start:].replace(guard, ""), tokens_max)

    def encode_text(self, text: str, tokens_max: int = 0) -> list[int]:
        """Text alone: nothing in it is special, and no beginning token is put before it."""
        return self._plain(text, tokens_max)

    def settled(self, text: str) -> tuple[list[int], str]:
        """The ids of the beginning of a plain text that nothing behind it can change any more, and the text that is
        left: to be looked at again with what comes. At the end `encode_text` gives the rest."""
        library = self._library
        text = library.normalizer.normalize_str(text) if library.normalizer else text
        library.encode_special_tokens = True
        try:
            found = library.encode(text, add_special_tokens=False)
        finally:
            library.encode_special_tokens = False
        ids, words, offsets = (
            found.ids,
            found.word_ids,
            found.offsets,
        )  # each of them a new list whenever it is asked for
        limit, count, end = self._settled_chars(text), 0, 0
        for at, (word, (_, last)) in enumerate(zip(words, offsets, strict=True)):
            if last > limit:
                break
            if at + 1 == len(ids) or words[at + 1] != word:  # words are encoded each by itself
                count, end = at + 1, last
        return ids[:count], text[end:]

    def decode(self, ids: Sequence[int]) -> str:
        """Without special tokens."""
        return self._library.decode(list(ids), skip_special_tokens=True)

    def bytes_of(self, token_id: int) -> bytes:
        """What a token adds to the text, in UTF-8; it may be a part of a character. Nothing for a special one."""
        known = self._bytes.get(token_id)  # each is spelled out once: this is done for every token of every answer
        if known is None:
            token = None if token_id in self.special else self._library.id_to_token(token_id)
            known = self._bytes[token_id] = self._spelling.bytes_of(token) if token is not None else b""
        return known

    @property
    def strips_first_space(self) -> bool:
        """Whether a space at the very beginning is one that the tokenizer put there itself."""
        return self._spelling.strips_first_space

    def _plain(self, text: str, tokens_max: int) -> list[int]:
        if not text:
            return []
        self._library.encode_special_tokens = True  # as text
        try:
            return self._bounded(
                text, tokens_max, lambda part: self._library.encode(part, add_special_tokens=False).ids
            )
        finally:
            self._library.encode_special_tokens = False

    def _bounded(self, text: str, tokens_max: int, encode: Callable[[str], list[int]]) -> list[int]:
        """Looks at more and more of a long text. Cut anywhere, its beginning may have a few tokens more than it has in
        the whole, never twice as many."""
        if tokens_max and self._longest and len(text) > tokens_max * self._longest:
            raise TooLongError
        look = tokens_max * _FIRST_LOOK
        while 0 < look < len(text):
            if len(encode(text[:look])) > 2 * tokens_max:
                raise TooLongError
            look *= _LOOK_GROWS
        return encode(text)

    def _settled_chars(self, text: str) -> int:
        """Characters from the beginning that are surely apart from what comes: the last letter may get a mark or go on,
        space may become part of the next word, and the beginning of an added token may become the whole."""
        letter = next((at for at in range(len(text) - 1, -1, -1) if not unicodedata.combining(text[at])), 0)
        limit = min(letter, len(text.rstrip()))
        longest = max(map(len, self._words), default=0)
        for start in range(max(0, len(text) - longest + 1), limit):
            if any(word.startswith(text[start:]) for word in self._words):
                return start
        return limit

    def _length_of(self, token: str) -> int:
        return len(self._spelling.bytes_of(token))

    def _broken(self, text: str, guard: str) -> str:
        while self._marks.search(text):  # again: breaking one may leave another that overlapped it
            text = self._marks.sub(lambda found: found[0][0] + guard + found[0][1:], text)
        return text


class _ByteLevel:
    """Each character of a token stands for one byte."""

    strips_first_space = False

    def __init__(self) -> None:
        plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
        rest = [code for code in range(256) if code not in plain]
        self._bytes = {chr(code): code for code in plain} | {chr(256 + at): code for at, code in enumerate(rest)}

    def bytes_of(self, token: str) -> bytes:
        if all(char in self._bytes for char in token):
            return bytes(self._bytes[char] for char in token)
        return token.encode()  # an added token, spelled as it is


class _SentencePiece:
    """Words begin with a mark, and bytes that are in no token have tokens of their own."""

    def __init__(self, decoder: str) -> None:
        self.strips_first_space = '"Strip"' in decoder

    def bytes_of(self, token: str) -> bytes:
        byte = _BYTE.fullmatch(token)
        return bytes([int(byte[1], 16)]) if byte else token.replace("\u2581", " ").encode()


def _spelling(library: Any) -> _ByteLevel | _SentencePiece:
    decoder = json.dumps(json.loads(library.to_str()).get("decoder"))
    if '"ByteLevel"' in decoder:
        return _ByteLevel()
    if '"ByteFallback"' in decoder:
        return _SentencePiece(decoder)
    raise ConfigError(f"tokenizer.json spells its tokens in a way that is not known: decoder {decoder[:200]}")


def _with_space(token: Any) -> str:
    """The space around a special token that belongs to it. Space is looked at from where it begins only: from each of
    its characters, much of it would take for ever."""
    before = r"(?:(?<!\s)\s+)?" if token.lstrip else ""
    return before + re.escape(token.content) + (r"\s*" if token.rstrip else "")
