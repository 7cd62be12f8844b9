"""An answer as it is generated: token ids in, text that may leave out.

    token -> detokenizer (whole characters) -> stop strings (held back while one may be beginning) -> Text

Log probabilities travel with the text of their tokens: they leave when its last character does, and never for a token
of which nothing leaves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from omnirt.actors.text.detokenizer import Detokenizer
from omnirt.actors.text.stops import StopScanner
from omnirt.actors.text.tokenizer import Tokenizer
from omnirt.wire.payload import Text, TokenLogprob


class _Entry(NamedTuple):
    begin: int
    """Where in the answer the token's text begins and ends, in characters; an incomplete one counts."""
    end: int
    logprob: TokenLogprob


class Answer:
    def __init__(self, tokenizer: Tokenizer, stops: Sequence[str] = (), min_tokens: int = 0) -> None:
        """Stop strings count in the text of the tokens behind the first `min_tokens`."""
        self._tokenizer = tokenizer
        self._detokenizer = Detokenizer(tokenizer)
        self._stops = StopScanner(stops)
        self._unscanned = min_tokens
        self._read = 0
        self._given = 0
        self._entries: deque[_Entry] = deque()

    @property
    def stopped(self) -> bool:
        """By a stop string: all that may leave has left."""
        return self._stops.stopped

    def add(self, token_id: int, logprob: float | None = None, top: Sequence[tuple[int, float]] = ()) -> Text | None:
        begin = self._read
        text = self._detokenizer.feed(token_id)
        self._read += len(text)
        if logprob is not None and self._tokenizer.bytes_of(token_id):
            alternatives = tuple(self._entry(other, value) for other, value in top)
            entry = self._entry(token_id, logprob, alternatives)
            self._entries.append(_Entry(begin, self._read + self._detokenizer.holds, entry))
        self._unscanned -= 1
        return self._leave(text if self._unscanned >= 0 else self._stops.feed(text))

    def close(self) -> Text | None:
        """No more tokens come."""
        return self._leave(self._stops.feed(self._detokenizer.close()) + self._stops.close())

    def _leave(self, text: str) -> Text | None:
        self._given += len(text)
        leaving: list[TokenLogprob] = []
        while self._entries and self._has_left(self._entries[0]):
            leaving.append(self._entries.popleft().logprob)
        return Text(text, tuple(leaving)) if text or leaving else None

    def _has_left(self, entry: _Entry) -> bool:
        return entry.end <= self._given or (self.stopped and entry.begin < self._given)

    def _entry(self, token_id: int, logprob: float, top: tuple[TokenLogprob, ...] = ()) -> TokenLogprob:
        raw = self._tokenizer.bytes_of(token_id) or self._tokenizer.special.get(token_id, "").encode()
        return TokenLogprob(raw.decode(errors="replace"), raw, logprob, top)
