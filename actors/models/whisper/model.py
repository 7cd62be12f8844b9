"""The model itself, by CTranslate2 through faster-whisper. The only file that imports them.

What is heard is a window: the sound, then silence up to the window's length. Whisper was made for windows of 30 s; its
encoder takes shorter ones, which cost less than in proportion: 84 ms for 10 s, 555 ms for 30 s (tiny, one core, int8).
Windows that end soon behind the speech make the decoder repeat itself; see `hearing`.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from omnirt.actors.models.whisper.stretches import Reading, read
from omnirt.actors.models.whisper.words import without_pauses
from omnirt.errors import ConfigError
from omnirt.wire.payload import Word

RATE = 16_000
FULL_S = 30.0
FRAMES_PER_S = 100
LENGTH_MAX = 448
"""Tokens of prompt and text together."""
TOKENS_MAX = LENGTH_MAX // 2
BEST_OF = 5
"""Samples drawn at a temperature above 0."""
FILES = ("config.json", "model.bin", "tokenizer.json")
_FLOOR = 2.0
"""Silence in a spectrum lies that far below its loudest place."""


class Wish(NamedTuple):
    """How a request wants to be heard."""

    language: str = ""
    """Empty: to be found out."""
    task: str = "transcribe"
    prompt: str = ""
    words: bool = False
    beam: int = 1
    temperatures: tuple[float, ...] = (0.0,)


class Encoded(NamedTuple):
    """A window as the decoder sees it."""

    states: Any
    length_s: float
    """Of the sound in it."""
    window_s: float


class Decoded(NamedTuple):
    tokens: tuple[int, ...]
    reading: Reading
    temperature: float
    avg_logprob: float
    no_speech_prob: float
    compression_ratio: float
    is_cut: bool
    """Whether it had more to say than was allowed."""


class Whisper:
    def __init__(self, folder: Path, device: str, compute_type: str, threads: int) -> None:
        """Raises ConfigError."""
        for name in FILES:
            if not (folder / name).is_file():
                raise ConfigError(f"{folder} is no Whisper model in CTranslate2's layout: it holds no {name}")
        try:
            from faster_whisper import WhisperModel
        except ImportError as error:
            raise ConfigError(f"the recogniser needs the package faster-whisper: {error}") from error
        kind, _, index = device.partition(":")
        try:
            self._model: Any = WhisperModel(
                str(folder),
                device=kind,
                device_index=int(index or 0),
                compute_type=compute_type,
                cpu_threads=threads,
                num_workers=1,
            )
        except (ValueError, RuntimeError) as error:
            raise ConfigError(f"{folder} cannot be loaded: {error}") from error
        self._tokenizers: dict[tuple[str, str], tuple[Any, list[int]]] = {}

    @property
    def is_multilingual(self) -> bool:
        return bool(self._model.model.is_multilingual)

    @property
    def languages(self) -> tuple[str, ...]:
        """Codes."""
        return tuple(self._model.supported_languages)

    def encode(self, samples: np.ndarray, window_s: float) -> Encoded:
        """`samples`: [T] int16 at RATE, as long as the window at most."""
        length_s = len(samples) / RATE
        frames = round(window_s * FRAMES_PER_S)
        sound = np.zeros(max(len(samples), FRAMES_PER_S * 4), np.float32)
        sound[: len(samples)] = samples.astype(np.float32) / 32768.0
        spectrum = self._model.feature_extractor(sound)[:, :frames]
        window = np.full((len(spectrum), frames), spectrum.max() - _FLOOR, np.float32)
        window[:, : spectrum.shape[1]] = spectrum
        return Encoded(self._model.encode(window), length_s, window_s)

    def language(self, encoded: Encoded) -> str:
        """What is most likely spoken."""
        if not self.is_multilingual:
            return "en"
        (token, _), *_ = self._model.model.detect_language(encoded.states)[0]
        return str(token).strip("<|>")

    def decode(self, encoded: Encoded, wish: Wish, temperature: float, tokens_max: int) -> Decoded:
        """One attempt. `wish.language` is known by now."""
        tokenizer, suppressed = self._tokenizer(wish)
        prompt = self._prompt(tokenizer, wish)
        limit = min(tokens_max, TOKENS_MAX)
        search: dict[str, Any] = {"beam_size": wish.beam}
        if temperature > 0.0:
            search = {
                "beam_size": 1,
                "num_hypotheses": BEST_OF,
                "sampling_topk": 0,
                "sampling_temperature": temperature,
            }
        result = self._model.model.generate(
            encoded.states,
            [prompt],
            max_length=max(2 * limit, limit + len(prompt) - 1),  # half of it, and what the prompt leaves, may be text
            return_scores=True,
            return_no_speech_prob=True,
            suppress_tokens=suppressed,
            **search,
        )[0]
        tokens = tuple(result.sequences_ids[0])
        text = self.text(tokens, wish)
        return Decoded(
            tokens,
            read(tokens, tokenizer.eot, tokenizer.timestamp_begin, encoded.length_s),
            temperature,
            _avg_logprob(result.scores[0], len(tokens)),
            float(result.no_speech_prob),
            _compression(text),
            len(tokens) >= limit,
        )

    def text(self, tokens: Sequence[int], wish: Wish) -> str:
        return str(self._tokenizer(wish)[0].decode(list(tokens)))

    def words(self, encoded: Encoded, texts: Sequence[Sequence[int]], wish: Wish) -> list[list[Word]]:
        """The words of each text, in seconds from the beginning of the window."""
        from faster_whisper.transcribe import merge_punctuations

        tokenizer, _ = self._tokenizer(wish)
        together = [token for text in texts for token in text]
        frames = max(math.ceil(encoded.length_s * FRAMES_PER_S), 1)
        aligned: Any = self._model.find_alignment(tokenizer, [together], encoded.states, frames)[0]
        merge_punctuations(aligned, "\"'\u201c\u00bf([{-", "\"'.\u3002,\uff0c!\uff01?\uff1f:\uff1a\u201d)]}\u3001")
        found: list[list[Word]] = [[] for _ in texts]
        ends = np.cumsum([len(text) for text in texts])
        at = 0
        for word in aligned:
            if word["word"]:
                place = int(np.searchsorted(ends, at, side="right"))
                times = float(word["start"]), float(word["end"])
                found[min(place, len(found) - 1)].append(Word(word["word"], *times, float(word["probability"])))
            at += len(word["tokens"])
        return [without_pauses(words) for words in found]

    def _prompt(self, tokenizer: Any, wish: Wish) -> list[int]:
        before = tokenizer.encode(f" {wish.prompt.strip()}")[-(TOKENS_MAX - 1) :] if wish.prompt.strip() else []
        start = list(tokenizer.sot_sequence)
        return [tokenizer.sot_prev, *before, *start] if before else start

    def _tokenizer(self, wish: Wish) -> tuple[Any, list[int]]:
        """And the tokens that are never text: signs that stand for sounds, marks of the model's own."""
        key = wish.language, wish.task
        if key not in self._tokenizers:
            from faster_whisper.tokenizer import Tokenizer
            from faster_whisper.transcribe import get_suppressed_tokens

            made = Tokenizer(self._model.hf_tokenizer, self.is_multilingual, task=wish.task, language=wish.language)
            never: Any = [-1]
            self._tokenizers[key] = made, list(get_suppressed_tokens(made, never) or ())
        return self._tokenizers[key]


def _avg_logprob(score: float, count: int) -> float:
    """The score is the sum over all tokens, divided by their number without the one that ends the text."""
    return score * count / (count + 1) if count else 0.0


def _compression(text: str) -> float:
    """How much a packer finds to save: text that repeats itself is above 2.4."""
    raw = text.strip().encode()
    return len(raw) / len(zlib.compress(raw))
