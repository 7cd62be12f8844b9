"""Stages and a way to write pipeline files for the tests of this folder."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from omnirt.runtime.stage import Stage
from omnirt.wire.payload import CodecFrames, Pcm, Text


class ThinkerOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    temperature: float = 1.0
    weights: str = ""


class Thinker(Stage):
    accepts = {"text": Text, "audio": Pcm}
    emits = {"text": Text, "codes": CodecFrames}
    Options = ThinkerOptions


class Talker(Stage):
    accepts = {"codes": CodecFrames, "text": Text}
    emits = {"codes": CodecFrames, "audio": Pcm}


class Listener(Stage):
    accepts = {"audio": Pcm}
    emits = {"text": Text}


class Policy(Stage):
    accepts = {"text": Text}
    emits = {"text": Text}
    pure = False


class OddOptions(Stage):
    Options = dict  # type: ignore[assignment]


class OddPorts(Stage):
    accepts = {"text": str}  # type: ignore[dict-item]


@pytest.fixture(autouse=True)
def stage_module(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("omnirt_test_stages")
    for kind in (Thinker, Talker, Listener, Policy, OddOptions, OddPorts):
        setattr(module, kind.__name__, kind)
    module.NOT_A_STAGE = 5  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "omnirt_test_stages", module)


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    def write_file(text: str, name: str = "p.toml") -> str:
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return write_file


TALK = """
name = "talk"
inputs = ["text"]
outputs = ["text", "audio"]
weights = "some/model"

[[stage]]
name = "llm"
actor = "omnirt_test_stages:Thinker"
final = "text"

[[stage]]
name = "tts"
actor = "omnirt_test_stages:Talker"
node = "speech"
final = "audio"

[[edge]]
from = "llm.codes"
to = "tts.codes"
chunk_bytes_max = 65536
"""


@pytest.fixture
def talk() -> str:
    return TALK
