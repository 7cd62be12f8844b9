"""Continuous batching of a language model: sequences join and leave between steps.

What always holds:
    a sequence's tokens depend on its prompt, its sampling and the weights, never on batch mates, on when it joined, or
    on what the prompt cache held (bit for bit on CPU);
    a step prefills at most `prefill_tokens`, so running rows wait for one chunk at most;
    a sequence that was added holds a slot until it is over or removed;
    a step that raises has moved nothing: the same step may be made again, with all or fewer of its sequences.

Not thread-safe; everything happens in the caller's thread (the computation may use `threads`).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from collections.abc import Sequence as Items
from pathlib import Path

import numpy as np

from omnirt.actors.engines.loading import Loaded, Settings, load_decoder
from omnirt.actors.engines.prompt_cache import chained
from omnirt.actors.engines.sampling import Chosen, History, Sampling, choose
from omnirt.actors.engines.sequence import DECODING, OVER, Produced, Sequence
from omnirt.actors.engines.shares import shares
from omnirt.actors.models.decoder.pieces import BLOCK, Piece
from omnirt.errors import InvalidRequest, Overloaded

__all__ = ["LanguageEngine", "Produced", "Sampling", "Sequence"]


class LanguageEngine:
    def __init__(self, loaded: Loaded, rows_max: int, prefill_tokens: int) -> None:
        self._decoder, self._rows, self._prompts = loaded.decoder, loaded.rows, loaded.prompts
        self._prefill_tokens = prefill_tokens
        self.plan = loaded.plan
        """The memory it was planned with."""
        self.context = loaded.plan.context
        """Tokens that a prompt and its answer may have together."""
        self.rows_max = rows_max
        self.vocab_size = loaded.config.vocab_size
        self.eos_ids = loaded.config.eos_ids
        """The model's own, from generation_config.json or config.json."""
        self.dtype = loaded.dtype
        self._free_slots = list(range(rows_max))  # a heap: low ones first, so that few pages are ever touched
        self._joined: dict[Sequence, None] = {}  # in order of arrival
        self._logits = np.empty((rows_max, self.vocab_size), np.float32)

    @classmethod
    def load(
        cls,
        folder: Path,
        *,
        device: str = "cpu",
        dtype: str = "auto",
        rows_max: int = 8,
        context_max: int = 0,
        prefill_tokens: int = 96,
        cache_blocks: int = 256,
        threads: int = 1,
        report: Callable[[str], None] = lambda _: None,
    ) -> LanguageEngine:
        """Load and warm up a folder with config.json and safetensors. Raises ConfigError: what is unsupported by key,
        which weights are missing, or by how much the memory falls short.

        dtype: `auto` (bfloat16 for a checkpoint of that kind, else float32), `float32`, `bfloat16`, `int8`.
        context_max: 0 for the model's own, less where memory is short.
        cache_blocks: of 16 tokens each; 0 switches the prompt cache off.
        """
        settings = Settings(
            device=device,
            dtype=dtype,
            rows_max=rows_max,
            context_max=context_max,
            prefill_tokens=prefill_tokens,
            cache_blocks=cache_blocks,
            threads=threads,
        )
        engine = cls(load_decoder(folder, settings, report), rows_max, prefill_tokens)
        report("warming up")
        engine._warm_up()
        return engine

    @property
    def rows_free(self) -> int:
        return len(self._free_slots)

    def add(self, prompt_ids: Items[int], sampling: Sampling) -> Sequence:
        """Take a slot. Raises InvalidRequest (param `prompt`) when the prompt is empty, has ids that the model does not
        know, or leaves no room for a token; Overloaded when no slot is free."""
        self._refuse(prompt_ids, sampling)
        if not self._free_slots:
            raise Overloaded(f"all {self.rows_max} rows are taken")
        sequence = Sequence(prompt_ids, sampling, heapq.heappop(self._free_slots))
        wanted = sequence.prompt_tokens + sampling.max_tokens if sampling.max_tokens else self.context
        sequence.tokens_max = min(wanted, self.context)
        sequence.stop_ids = frozenset(sampling.stop_ids) | frozenset(() if sampling.ignore_eos else self.eos_ids)
        if sampling.penalises:
            sequence.history = History(self.vocab_size, sequence.tokens)
        self._joined[sequence] = None
        return sequence

    def step(self, sequences: Iterable[Sequence]) -> list[Produced]:
        """Advance exactly these: a token for each one that is decoding or whose prompt is complete after this step's
        share of prefill. Those that are over are passed over."""
        asked = set(sequences)
        rows = [sequence for sequence in self._joined if sequence in asked]
        shares = {sequence: 1 for sequence in rows if sequence.state == DECODING}
        shares |= self._shares([sequence for sequence in rows if sequence.state != DECODING])
        if not shares:
            return []
        pieces = [_piece(sequence, count) for sequence, count in shares.items()]
        self._decoder.run(pieces, self._logits)
        drawn = [sequence for sequence, piece in zip(shares, pieces, strict=True) if piece.wanted]
        chosen = choose(self._logits[: len(drawn)], [sequence.row() for sequence in drawn]) if drawn else []
        for sequence, count in shares.items():
            self._keep(sequence, count)
        return [self._produced(sequence, one) for sequence, one in zip(drawn, chosen, strict=True)]

    def remove(self, sequence: Sequence) -> None:
        """Give its slot back, at any time and as often as one likes. A sequence that was not over becomes over, without
        a finish reason."""
        if sequence in self._joined:
            del self._joined[sequence]
            sequence.state = OVER
            heapq.heappush(self._free_slots, sequence.slot)
            self._rows.give_back(sequence.slot, len(sequence.tokens))

    def _refuse(self, prompt_ids: Items[int], sampling: Sampling) -> None:
        if not len(prompt_ids):
            raise InvalidRequest("the prompt is empty", param="prompt")
        if len(prompt_ids) + 1 > self.context:
            raise InvalidRequest(
                f"the prompt has {len(prompt_ids)} tokens, the context holds {self.context} with the answer",
                param="prompt",
            )
        if min(prompt_ids) < 0 or max(prompt_ids) >= self.vocab_size:
            raise InvalidRequest(f"token ids must be below {self.vocab_size}", param="prompt")
        for stop_id in sampling.stop_ids:
            if not 0 <= stop_id < self.vocab_size:
                raise InvalidRequest(f"{stop_id} is no token id", param="stop_token_ids")

    def _shares(self, waiting: list[Sequence]) -> dict[Sequence, int]:
        """How many prompt tokens of whom."""
        for sequence in waiting:
            self._reuse(sequence)
        return shares(waiting, lambda sequence: sequence.prompt_tokens - sequence.computed, self._prefill_tokens)

    def _reuse(self, sequence: Sequence) -> None:
        """Blocks from the cache, as far as they go; the prompt's last token is always computed, for its logits."""
        while sequence.computed % BLOCK == 0 and sequence.computed + BLOCK < sequence.prompt_tokens:
            at = sequence.computed
            name = chained(sequence.chain, sequence.tokens[at : at + BLOCK])
            if not self._prompts.fetch(name, self._rows.block(sequence.slot, at)):
                return
            sequence.chain = name
            sequence.computed += BLOCK
            sequence.cached_tokens += BLOCK

    def _keep(self, sequence: Sequence, count: int) -> None:
        """`count` more tokens are computed; blocks that became whole go into the cache."""
        first = sequence.computed // BLOCK * BLOCK
        sequence.computed += count
        for at in range(first, sequence.computed - BLOCK + 1, BLOCK):
            sequence.chain = chained(sequence.chain, sequence.tokens[at : at + BLOCK])
            self._prompts.store(sequence.chain, self._rows.block(sequence.slot, at))

    def _produced(self, sequence: Sequence, chosen: Chosen) -> Produced:
        sequence.note(chosen.token_id)
        if sequence.state == OVER:
            self.remove(sequence)
        return Produced(sequence, chosen.token_id, sequence.finish_reason, chosen.logprob, chosen.top)

    def _warm_up(self) -> None:
        """One prompt and two tokens, through every library that a request will meet; nothing of it stays."""
        sequence = self.add([0] * max(1, min(BLOCK - 1, self.context - 2)), Sampling(max_tokens=2, ignore_eos=True))
        while sequence.state != OVER:
            self.step([sequence])


def _piece(sequence: Sequence, count: int) -> Piece:
    """The next `count` tokens whose keys and values are not there. A token is drawn from the last one there is."""
    end = sequence.computed + count
    return Piece(
        sequence.slot, sequence.computed, sequence.tokens[sequence.computed : end], end == len(sequence.tokens)
    )
