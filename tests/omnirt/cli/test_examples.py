"""What a server that is ready proposes: every line is tried against one that is like it."""

import argparse
import json
import shlex
import shutil
import subprocess

import pytest

from omnirt.cli import examples, say
from omnirt.cli.examples import what_to_try
from omnirt.gateway.config import GatewayConfig
from omnirt.gateway.facts import PipelineFacts
from omnirt.gateway.speech_pipeline import speech_facts
from omnirt.pipeline.deploy import load_plan
from omnirt.testing.clone_pipeline import clone_facts, clone_plan
from omnirt.testing.live_gateway import LiveGateway
from omnirt.testing.recordings import wav
from omnirt.testing.scripted_service import RATE, ScriptedService, speech_plan

PATIENCE_S = 30
URL = "http://127.0.0.1:8091"
DESIGN = {"voice": {"sample_rate": RATE, "voice_design": True, "task_types": ["voice_design"]}}


@pytest.fixture(autouse=True)
def installed(monkeypatch):
    monkeypatch.setattr(examples, "called", lambda: "omnirt")


@pytest.mark.parametrize(
    ("pipeline", "tried"),
    [
        ("voice", ["chat/completions", "chat", "audio/speech", "say", "audio/transcriptions"]),
        ("speech", ["audio/speech", "say"]),
        ("echo", []),
    ],
)
def test_what_to_try_is_what_the_pipeline_can_do(pipeline, tried):
    lines = what_to_try(load_plan(pipeline), URL, PipelineFacts(), GatewayConfig())
    lines = [shlex.split(line) for line in lines]
    named = [line[1] if line[0] == "omnirt" else line[2].partition("/v1/")[2] for line in lines]
    assert named == tried
    for line in lines:
        assert line[line.index("--url") + 1] == URL if line[0] == "omnirt" else line[2].startswith(URL)
        if "-d" in line:
            assert json.loads(line[line.index("-d") + 1])


def shown(gateway):
    service = gateway.service
    return what_to_try(service.plan, gateway.url, speech_facts(service.plan, service.facts()), gateway._config)


def works(line):
    words = shlex.split(line)
    if words[0] == "curl":
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=PATIENCE_S, check=True)
        return "error" not in done.stdout
    assert words[:2] == ["omnirt", "say"]
    parser = argparse.ArgumentParser()
    say.add_arguments(parser)
    return say.run(parser.parse_args(words[2:])) == 0


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
@pytest.mark.parametrize("with_keys", [False, True])
@pytest.mark.parametrize(
    ("plan", "facts", "keeps", "count"),
    [
        (speech_plan(), None, False, 2),
        (speech_plan(), DESIGN, False, 2),
        (clone_plan(), clone_facts(), True, 3),
        (clone_plan(), clone_facts(), False, 1),
    ],
)
def test_every_line_works_as_it_is(tmp_path, monkeypatch, plan, facts, keeps, count, with_keys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "me.wav").write_bytes(wav(1.0, 24_000))
    keys = tmp_path / "our keys"
    keys.write_text("# ours\n\nright\n")
    keys.chmod(0o600)
    config = GatewayConfig(
        voices_dir=str(tmp_path / "voices") if keeps else "", keys_file=str(keys) if with_keys else ""
    )
    with LiveGateway(lambda: ScriptedService(plan, facts), config) as gateway:
        lines = [line for line in shown(gateway) if not line.startswith("  (")]
        assert len(lines) == count
        for line in lines:
            assert works(line)
        spoken = [line for line in lines if "audio/voices" not in line]
        assert len(gateway.service.submitted) == len(spoken)
        assert (tmp_path / "hello.wav").read_bytes().startswith(b"RIFF")
    assert "right" not in "".join(lines)


def test_who_could_keep_voices_is_told_how():
    facts = speech_facts(clone_plan(), clone_facts())
    assert "--voices DIR" in "".join(what_to_try(clone_plan(), URL, facts, GatewayConfig()))
