"""A stage that cannot be started: the command ends by itself, with status, stage and reason, and leaves nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

STAGES = """
from omnirt.runtime.stage import Stage
from omnirt.wire.payload import Text

class Shaky(Stage):
    accepts = {"text": Text}
    emits = {"text": Text}

class BadInit(Shaky):
    def __init__(self, options): raise ValueError("bad weights")

class BadStart(Shaky):
    def start(self, ctx): raise RuntimeError("no driver")

class Quits(Shaky):
    def start(self, ctx): raise SystemExit("usage: wrong")

class BadFacts(Shaky):
    def facts(self): raise KeyError("rate")

class Lacking(Shaky):
    def start(self, ctx): import no_such_package.part

class Misled(Shaky):
    def start(self, ctx):
        from omnirt.errors import ConfigError
        raise ConfigError("no weights; name some")

class UnsentFacts(Shaky):
    def facts(self): return {"rate": object()}
"""
PIPELINE = """
name = "shaky"
inputs = ["text"]
outputs = ["text"]

[[stage]]
name = "shaky"
actor = "{actor}"
final = "text"
"""
PATIENCE_S = 60.0
pytestmark = pytest.mark.kill


def run(folder: Path, actor: str) -> tuple[int, str]:
    (folder / "stages_of_theirs.py").write_text(STAGES)
    (folder / "breaks_at_import.py").write_text("raise RuntimeError('no driver\\nnone at all')\n")
    (folder / "shaky.toml").write_text(PIPELINE.format(actor=actor))
    done = subprocess.run(
        [sys.executable, "-m", "omnirt.cli.main", "run", "shaky.toml", "--port", "0"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(folder), os.getcwd()))},
        stderr=subprocess.PIPE,
        timeout=PATIENCE_S,
        check=False,
    )
    return done.returncode, done.stderr.decode()


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("BadInit", "ValueError: bad weights"),
        ("BadStart", "RuntimeError: no driver"),
        ("Quits", "SystemExit: usage: wrong"),
        ("BadFacts", "KeyError: 'rate'"),
        ("UnsentFacts", "TypeError"),
        ("Lacking", "it needs the package that brings 'no_such_package', which is not installed: install it"),
        ("Misled", "no weights; name some"),
    ],
)
def test_what_goes_wrong_at_the_start_is_said_once_and_not_tried_again(tmp_path: Path, kind: str, reason: str) -> None:
    status, said = run(tmp_path, f"stages_of_theirs:{kind}")
    assert status == 1
    *before, last = said.splitlines()
    assert last.startswith(f"error: shaky: {reason}")
    assert sum("did not start" in line for line in before) == 1
    assert sum("giving up" in line for line in before) == 1
    assert "killed:" not in said
    assert said.count("msg=starting") <= 1
    assert ("Traceback" in said) == (kind not in ("Lacking", "Misled"))
    assert "\\n" not in said
    assert not any(line.startswith("Traceback") for line in said.splitlines())


def test_a_module_that_breaks_at_import_is_a_finding_at_its_line(tmp_path: Path) -> None:
    status, said = run(tmp_path, "breaks_at_import:Stage")
    assert status == 2
    assert said.startswith("shaky.toml:8: error: stage shaky: actor = 'breaks_at_import:Stage': importing")
    assert "RuntimeError: no driver" in said
    assert "breaks_at_import.py:1" in said
    assert "Traceback" not in said
