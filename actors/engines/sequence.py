"""A prompt and its answer while they are computed. The engine writes it, everyone else reads."""

from __future__ import annotations

from collections.abc import Sequence as Items

import msgspec

from omnirt.actors.engines.prompt_cache import START
from omnirt.actors.engines.sampling import History, Row, Sampling

WAITING, DECODING, OVER = "waiting", "decoding", "over"


class Sequence:
    """waiting (prompt not computed yet) -> decoding (a token each step) -> over"""

    __slots__ = (
        "cached_tokens",
        "chain",
        "computed",
        "finish_reason",
        "history",
        "prompt_tokens",
        "sampling",
        "slot",
        "state",
        "stop_ids",
        "tokens",
        "tokens_max",
    )

    def __init__(self, prompt_ids: Items[int], sampling: Sampling, slot: int) -> None:
        self.tokens = list(prompt_ids)
        """The prompt, then the answer; the stop token included when it ended by one."""
        self.prompt_tokens = len(self.tokens)
        self.cached_tokens = 0
        """How many tokens of the prompt came out of the prompt cache. Known once the first token is there."""
        self.sampling = sampling
        self.state = WAITING
        self.finish_reason = ""
        """Empty until over: `stop` (a stop id), `length` (max_tokens, or the context is full); stays so if removed."""

        # The engine's own.
        self.slot = slot
        self.tokens_max = 0
        self.stop_ids: frozenset[int] = frozenset()
        self.computed = 0
        """Tokens whose keys and values are in the slot: all but the last one, once it decodes."""
        self.chain = START
        """The name of the last whole block of them."""
        self.history: History | None = None

    @property
    def completion_tokens(self) -> int:
        """The stop token included."""
        return len(self.tokens) - self.prompt_tokens

    def row(self) -> Row:
        index = self.completion_tokens
        barred = self.stop_ids if index < self.sampling.min_tokens else ()
        return Row(self.sampling, index, self.history, barred)

    def note(self, token_id: int) -> None:
        """One more token; over when it is the last one."""
        self.tokens.append(token_id)
        self.state = DECODING
        if self.history is not None:
            self.history.note(token_id)
        if token_id in self.stop_ids:
            self.finish_reason = "stop"
        elif len(self.tokens) >= self.tokens_max:
            self.finish_reason = "length"
        if self.finish_reason:
            self.state = OVER


class Produced(msgspec.Struct, frozen=True):
    """One token of one sequence.

    When `finish_reason` is `stop`, `token_id` is the stop token: it counts, and is not part of the text.
    """

    sequence: Sequence
    token_id: int
    finish_reason: str = ""
    """Not empty: this is the sequence's last token, and its slot is free again."""
    logprob: float | None = None
    """Natural logarithm; None unless asked for."""
    top: tuple[tuple[int, float], ...] = ()
    """(token id, logprob) of the likeliest, likeliest first."""
