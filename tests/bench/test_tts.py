"""`bench/tts` whole, against a gateway over a scripted service."""

import json
import os
import subprocess
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
import tts
from serve_process import Server

from omnirt.testing.live_gateway import LiveGateway
from omnirt.testing.scripted_service import Say, ScriptedService, speech_facts, speech_plan, tone

QUICK = ("--frames", "5", "--open-frames", "3", "--concurrency", "1,2", "--rates", "40", "--repetitions", "2")
QUICK += ("--each", "2", "--seconds", "0.2", "--seconds-max", "0.2", "--clients", "1", "--unread-frames", "50")


def speak(submit):
    return [Say(tone(tts.FRAME_S)) for _ in range(submit.params["max_new_tokens"])]


@pytest.fixture(scope="module")
def gateway():
    with LiveGateway(lambda: ScriptedService(speech_plan(), speech_facts(), speak)) as gateway:
        yield gateway


@pytest.fixture(autouse=True)
def started(gateway, monkeypatch):
    """What was to be started."""
    calls = []

    @contextmanager
    def serving(pipeline, options):
        calls.append((pipeline, options))
        yield Server(gateway.url, os.getpid()), 1.5

    monkeypatch.setattr(tts, "serving", serving)
    return calls


def test_every_part_has_its_table_and_its_figures(started, tmp_path, capsys):
    file = tmp_path / "out.json"
    arguments = ("--starts", "2", "--device", "cpu", "--set", "stage.tone.batch=8", "--json", str(file))
    assert tts.main(["tone", *QUICK, *arguments]) == 0
    assert started == [("tone", ["--set", "stage.tone.batch=8", "--set", "node.tone.device=cpu"])] * 2
    out = capsys.readouterr().out
    assert "closed loop, 5 frames each" in out
    assert "one unread listener" in out
    assert "open loop, 3 frames each" in out
    document = json.loads(file.read_text())
    assert [level["name"] for level in document["closed"]["levels"]] == ["C=1", "C=2"]
    assert document["server"]["starts_s"] == [1.5, 1.5]
    assert document["settings"]["arguments"]["frames"] == 5
    assert document["settings"]["stages"]["tone"]["batch"] == 8
    assert document["server"]["asking"]["voice"] == "heart"


def test_the_engine_alone_is_measured_in_a_process_of_its_own(started, monkeypatch, tmp_path, capsys):
    jobs = []

    def ran(command, **given):
        jobs.append((Path(command[-1]).name, json.loads(given["input"])))
        part = {"start_s": 2.0, "levels": [], "buckets": [], "prefill": [], "decoder": []}
        return SimpleNamespace(returncode=0, stdout="loading\n" + json.dumps(part) + "\n")

    pytest.importorskip("torch")
    from tts_engine import Work

    monkeypatch.setattr(tts, "subprocess", SimpleNamespace(run=ran, PIPE=subprocess.PIPE))
    file = tmp_path / "out.json"
    assert tts.main(["tone", *QUICK, "--engine", "--device", "cpu", "--json", str(file)]) == 0
    ((script, job),) = jobs
    assert script == "tts_engine.py"
    work = msgspec.convert(job, Work)
    assert (work.device, work.frames, work.concurrency) == ("cpu", 5, (1, 2))
    assert work.sets == ("node.tone.device=cpu",)
    assert "loaded in 2.0 s" in capsys.readouterr().out
    assert json.loads(file.read_text())["engine"]["start_s"] == 2.0
    assert not started


def test_parts_may_be_left_out(tmp_path):
    file = tmp_path / "out.json"
    assert tts.main(["tone", *QUICK, "--concurrency", "0", "--rates", "0", "--json", str(file)]) == 0
    assert not {"closed", "open", "unread", "cold", "engine"} & set(json.loads(file.read_text()))


def test_answers_of_another_length_are_a_failure(gateway):
    gateway.service.script = lambda submit: [Say(tone(0.5))]
    assert tts.main(["tone", *QUICK, "--rates", "0", "--unread", "0"]) == 1
    gateway.service.script = speak


def test_a_pipeline_that_is_not_there_is_a_sentence(capsys):
    assert tts.main(["no-such-pipeline"]) == 2
    assert "error: " in capsys.readouterr().err
