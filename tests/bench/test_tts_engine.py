"""Talker and decoder of a tiny checkpoint, as `bench/tts --engine` drives them. What takes long is cut short."""

import json

import pytest

pytest.importorskip("torch")
import tts_engine
import tts_parts
from tts_engine import Work, run
from tts_engine_tables import engine_tables

from omnirt.actors.models.qwen3_tts.random_checkpoint import write


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    for name, value in {"STEADY": 2, "TIMED": 1, "WARM": 1, "CALLS": (1, 2), "CALL_FRAMES": (1, 2)}.items():
        monkeypatch.setattr(tts_parts, name, value)
    monkeypatch.setattr(tts_engine, "REQUESTS_LEAST", 2)


@pytest.mark.slow
@pytest.mark.parametrize("task", ["custom_voice", "base"])
def test_the_engine_alone_speaks_for_all_and_its_parts_are_timed(tmp_path, task):
    write(tmp_path, task)
    sets = tuple(f"stage.{stage}.options.rows=2" for stage in ("talker", "decoder"))
    work = Work(
        str(tmp_path),
        "cpu",
        3,
        (),
        (*sets, "node.speech.device=cpu", "node.speech.threads=1"),
        (1, 2),
        1,
        1,
        language="English",
    )
    part = run(work)
    assert [level["name"] for level in part["levels"]] == ["C=1", "C=2"]
    for level in part["levels"]:
        assert (level["requests"], level["errors"], level["wrong"]) == (2, 0, 0)
        assert level["loop_ms"] > 0
    assert [row["rows"] for row in part["buckets"]] == [1, 2]
    assert [(row["rows"], row["frames"]) for row in part["decoder"]] == [(1, 1), (1, 2), (2, 1), (2, 2)]
    text = engine_tables(json.loads(json.dumps(part)))
    assert "a frame of the talker" in text
    assert "floor" not in text
