"""What both sides of `bench/chat_overhead` are asked in a round: the same questions, lengths and pauses. Pure."""

from __future__ import annotations

import random

from msgspec import Struct
from serve_ask import prompts

SPREAD = 0.25
"""Of the lengths around their mean: with equal ones all askers would end, and ask, at the same step."""


class Question(Struct, frozen=True):
    """`think_ns`: from the end of the asker's last answer until this is due."""

    text: str
    tokens: int
    think_ns: int
    seed: int


class Round(Struct, frozen=True):
    questions: tuple[Question, ...]
    askers: int
    temperature: float = 0.0
    repetition_penalty: float = 1.0


def round_of(seed: int, count: int, askers: int, tokens: int, think_ms: float) -> Round:
    chance = random.Random(seed)
    texts = prompts(seed)
    questions = tuple(
        Question(
            text=texts[number % len(texts)],
            tokens=max(1, round(tokens * chance.uniform(1 - SPREAD, 1 + SPREAD))),
            think_ns=int(chance.uniform(0, think_ms) * 1e6),
            seed=number,
        )
        for number in range(count)
    )
    return Round(questions, askers)
