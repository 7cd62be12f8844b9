"""Stages for a test pipeline whose answer proves the way it took: a fork, a loop with a window, a join.

    client --text--> Fork --even--> Walk <==ask/answer==> Guide         numbers by parity; the loop crosses processes
                      | |             `--walked--> Join --text--> client
                      | `--odd--> Square --squared--^
                      `--count--------------------->'

For "6 8 5" the answer is "3 of 3; walked 6:8/46 8:3/7; squared 5:25": each even number walks the Collatz sequence to 1
through the loop (steps / sum of the places visited), each odd one is squared. A branch that was not taken shows as `-`.
"""

from __future__ import annotations

import numpy as np

from omnirt.runtime.stage import Chunk, Context, Emission, Request, Stage
from omnirt.wire.payload import Payload, Text

TRAIL = 1024
"""Places a walk can remember; 8 KB, so that walks do not fit into a record."""


class Number(Payload, frozen=True):
    value: int


class Square(Payload, frozen=True):
    value: int
    square: int


class Walk(Payload, frozen=True):
    """`trail`: [TRAIL] int64, the first `steps` of it are the places visited after `start`."""

    start: int
    steps: int
    trail: np.ndarray

    def place(self) -> int:
        return int(self.trail[self.steps - 1]) if self.steps else self.start


class Fork(Stage):
    """Numbers in a text, each to the branch of its parity; the other branch gets nothing for it."""

    accepts = {"text": Text}
    emits = {"even": Number, "odd": Number, "count": Number}

    def step(self, ctx: Context, chunks: list[Chunk]) -> list[Emission]:
        for chunk in chunks:
            chunk.request.state = (chunk.request.state or "") + chunk.payload.text
        return []

    def finish(self, ctx: Context, request: Request) -> list[Emission]:
        numbers = [int(word) for word in (request.state or "").split()]
        parts = [Emission(request, "odd" if number % 2 else "even", Number(number)) for number in numbers]
        return [*parts, Emission(request, "count", Number(len(numbers)))]


class Walker(Stage):
    """Sends each number round the loop until it has come to 1."""

    accepts = {"number": Number, "answer": Walk}
    emits = {"ask": Walk, "walked": Walk}

    def step(self, ctx: Context, chunks: list[Chunk]) -> list[Emission]:
        return [self._next(chunk) for chunk in chunks]

    def _next(self, chunk: Chunk) -> Emission:
        if chunk.port == "number":
            walk = Walk(chunk.payload.value, 0, np.zeros(TRAIL, np.int64))
        else:
            walk = Walk(chunk.payload.start, chunk.payload.steps, chunk.payload.trail.copy())
        done = walk.place() <= 1 or walk.steps == TRAIL
        return chunk.reply("walked" if done else "ask", walk)


class Guide(Stage):
    """Answers each question with one more step of the walk."""

    accepts = {"ask": Walk}
    emits = {"answer": Walk}

    def step(self, ctx: Context, chunks: list[Chunk]) -> list[Emission]:
        return [chunk.reply("answer", self._step(chunk.payload)) for chunk in chunks]

    def _step(self, walk: Walk) -> Walk:
        trail = walk.trail.copy()
        place = walk.place()
        trail[walk.steps] = place * 3 + 1 if place % 2 else place // 2
        return Walk(walk.start, walk.steps + 1, trail)


class Squarer(Stage):
    accepts = {"number": Number}
    emits = {"squared": Square}

    def step(self, ctx: Context, chunks: list[Chunk]) -> list[Emission]:
        return [chunk.reply("squared", Square(chunk.payload.value, chunk.payload.value**2)) for chunk in chunks]


class Join(Stage):
    """Waits for both branches, in whatever order they come."""

    accepts = {"walked": Walk, "squared": Square, "count": Number}
    emits = {"text": Text}

    def step(self, ctx: Context, chunks: list[Chunk]) -> list[Emission]:
        for chunk in chunks:
            if chunk.request.state is None:
                chunk.request.state = {port: [] for port in self.accepts}
            payload = chunk.payload
            if chunk.port == "walked":
                total = int(payload.trail.sum())
                chunk.request.state["walked"].append((payload.start, f"{payload.start}:{payload.steps}/{total}"))
            elif chunk.port == "squared":
                chunk.request.state["squared"].append((payload.value, f"{payload.value}:{payload.square}"))
            else:
                chunk.request.state["count"].append(payload.value)
        return []

    def finish(self, ctx: Context, request: Request) -> list[Emission]:
        state = request.state or {port: [] for port in self.accepts}
        arrived = len(state["walked"]) + len(state["squared"])
        walked = " ".join(text for _, text in sorted(state["walked"])) or "-"
        squared = " ".join(text for _, text in sorted(state["squared"])) or "-"
        answer = f"{arrived} of {sum(state['count'])}; walked {walked}; squared {squared}"
        return [Emission(request, "text", Text(answer))]


def expected(text: str) -> str:
    """The answer by plain arithmetic."""
    numbers = sorted(int(word) for word in text.split())
    walked = " ".join(_walked(number) for number in numbers if number % 2 == 0) or "-"
    squared = " ".join(f"{number}:{number**2}" for number in numbers if number % 2) or "-"
    return f"{len(numbers)} of {len(numbers)}; walked {walked}; squared {squared}"


def _walked(start: int) -> str:
    place, steps, total = start, 0, 0
    while place > 1 and steps < TRAIL:
        place = place * 3 + 1 if place % 2 else place // 2
        steps, total = steps + 1, total + place
    return f"{start}:{steps}/{total}"
