"""`bench/serve` whole, against a gateway over a scripted service."""

import json

import pytest
import serve
from serve_ask import WORKLOADS, Recording
from serve_figures import MEASURED

from omnirt.gateway.media import wav_header
from omnirt.testing.live_gateway import LiveGateway
from omnirt.testing.scripted_chat import chat_facts, chat_plan, converse
from omnirt.testing.scripted_service import Fail, SayText, ScriptedService, Wait


@pytest.fixture(scope="module")
def gateway():
    with LiveGateway(lambda: ScriptedService(chat_plan(), chat_facts(), converse)) as gateway:
        yield gateway


@pytest.fixture(autouse=True)
def silence(monkeypatch):
    """Recordings without the voice."""
    recording = Recording(wav_header(24_000, 24_000) + bytes(24_000), 0.5)
    monkeypatch.setattr(serve, "recordings_for", lambda args: [recording])


def run(gateway, workload, *arguments):
    return serve.main([workload, "--url", gateway.url, "--requests", "6", *arguments])


@pytest.mark.parametrize("workload", WORKLOADS)
def test_every_workload_is_answered_and_measured(gateway, workload, tmp_path, capsys):
    gateway.service.script = converse
    assert run(gateway, workload, "--concurrency", "1,3", "--json", str(tmp_path / "out.json")) == 0
    assert "errors" in capsys.readouterr().out
    written = json.loads((tmp_path / "out.json").read_text())
    assert list(written["levels"]) == ["1 at a time", "3 at a time"]
    for level in written["levels"].values():
        assert (level["requests"], level["whole"], level["errors"]) == (6, 6, {})
        assert set(MEASURED[workload]) - {"tpot_ms", "ttft_ms"} <= set(level["spread"])
    assert (written["settings"]["workload"], written["settings"]["seed"]) == (workload, 1)
    assert all(len(requests) == 6 for requests in written["requests"].values())


def test_an_open_loop_is_measured(gateway, capsys):
    gateway.service.script = converse
    assert run(gateway, "chat-audio", "--rate", "200", "--slo", "ttfp_ms=10000") == 0
    out = capsys.readouterr().out
    assert "200 requests/s" in out
    assert "(100.0 %)" in out


def test_errors_are_counted_by_their_code(gateway, capsys, tmp_path):
    answers = iter(range(1000))

    def script(submit):
        if next(answers) % 2:
            return [SayText("x"), Wait(0.001), Fail("stage_lost")]
        return converse(submit)

    gateway.service.script = script
    assert run(gateway, "chat-text", "--concurrency", "1", "--json", str(tmp_path / "out.json")) == 0
    level = json.loads((tmp_path / "out.json").read_text())["levels"]["1 at a time"]
    assert level["errors"] == {"stage_lost": 3}


def test_a_server_that_refuses_everything_is_one_sentence(gateway, capsys):
    assert run(gateway, "chat-text", "--model", "nobody") == 1
    assert "is answered: 404 model_not_found" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("chat-text", "--slo", "ttfp_ms=1"), "there is no goal 'ttfp_ms' for chat-text; there are: ttft_ms"),
        (("speech", "--url", "nonsense://x"), "is not a URL"),
        (("speech", "--key-file", "/does/not/exist"), "cannot use /does/not/exist"),
    ],
)
def test_a_mistake_in_the_call_is_a_sentence(capsys, arguments, words):
    assert serve.main(list(arguments)) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [("--concurrency", "0"), ("--rate", "0"), ("--rate", "1", "--concurrency", "1")])
def test_a_load_that_makes_no_sense_is_refused(arguments):
    with pytest.raises(SystemExit):
        serve.parsed(["speech", *arguments])
