"""Texts to speak, and the voice without a server. What is heard of it is judged by `hearing`, which all tests have."""

from __future__ import annotations

import numpy as np
import pytest

from omnirt.actors.stages.acoustic import Acoustic
from omnirt.actors.stages.synthesis import Synthesis
from omnirt.ids import RequestId
from omnirt.runtime.stage import Chunk, Context, Emission, NoOptions, Request
from omnirt.wire.payload import Text

SENTENCES = (
    "The morning train was late again, so we waited on the platform and watched the rain.",
    "Please remember to water the plants while I am away.",
    "She opened the old wooden box and found a letter from her grandmother.",
    "Could you tell me how to get to the nearest library?",
    "The committee will publish its final report at the end of the month.",
    "What a beautiful garden you have!",
    "Scientists have discovered a new species of bird high in the mountains.",
    "If the weather stays dry, the children will play football in the park.",
    "Our neighbors are building a small house next to the river.",
    "He speaks four languages, but he has never learned to swim.",
    "The doctor said that a short walk every day would help.",
    "Nobody noticed that the front door had been open all night.",
    "Fresh bread, cold milk and ripe tomatoes are on the kitchen table.",
    "When the music stopped, the whole room became completely silent.",
    "The engineer explained why the bridge moves in strong wind.",
    "I would rather read a good book than watch television.",
    "Their flight was canceled because of heavy snow.",
    "Most people think that the answer is simple, and most people are wrong.",
    "Thank you for calling, and have a pleasant evening.",
    "The museum keeps a large collection of maps, coins and musical instruments.",
)
FIGURES = (
    "The ticket costs $45.50 and the train leaves at 9:30 PM.",
    "On March 9, 2024, about 1,250 people visited the exhibition.",
    "Dr. Smith bought 3 kg of apples and 2.5 liters of milk.",
    "The company earned $5.3 billion in 2023, which is 12% more than before.",
    "Please call 555-123-4567 before 5 p.m. on Friday.",
    "He finished 21st in a race with 350 runners.",
    "The temperature fell from 20°C to -5°C in 24 hours.",
    "Chapter 7 begins on page 103 of the second book.",
)


@pytest.fixture(scope="session")
def sentences() -> tuple[str, ...]:
    """Twenty sentences of plain words."""
    return SENTENCES


@pytest.fixture(scope="session")
def figures() -> tuple[str, ...]:
    """Sentences with money, dates, times, units and numbers."""
    return FIGURES


class Voice:
    """The two stages of the voice in this process, one after the other: no rings, no cells, no head."""

    def __init__(self) -> None:
        self.ctx = Context("voice", "cpu", 0, 1, lambda text: None)
        self.acoustic = Acoustic(NoOptions())
        self.synthesis = Synthesis(NoOptions())
        self.acoustic.start(self.ctx)
        self.synthesis.start(self.ctx)

    def chunks(self, text: str, seed: int = 1, **params: object) -> list[np.ndarray]:
        """The PCM chunks of an answer, in order."""
        first, second = (Request(RequestId(1), "r1", seed, params, 0) for _ in range(2))
        self.acoustic.admit(self.ctx, Chunk(first, "text", Text(text), 0))
        self.acoustic.close(self.ctx, first)
        emissions: list[Emission] = []
        while not (emissions and emissions[-1].end):
            emissions += self.acoustic.step(self.ctx, [first])
        heard: list[Emission] = []
        for seq, emission in enumerate(emissions):
            if emission.payload is not None:
                heard += self.synthesis.step(self.ctx, [Chunk(second, "frames", emission.payload, seq)])
        heard += self.synthesis.finish(self.ctx, second)
        return [emission.payload.samples for emission in heard]

    def say(self, text: str, seed: int = 1, **params: object) -> np.ndarray:
        return np.concatenate(self.chunks(text, seed, **params))


@pytest.fixture(scope="session")
def voice() -> Voice:
    return Voice()
