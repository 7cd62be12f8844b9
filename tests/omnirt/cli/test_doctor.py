import os
import socket
import sys
from pathlib import Path

import pytest

import omnirt
from omnirt.cli import doctor, doctor_stages
from omnirt.cli.doctor import Result
from omnirt.cli.main import main
from omnirt.errors import OmnirtError
from omnirt.extras import extra
from omnirt.pipeline.deploy import load_plan

ROOT = Path(omnirt.__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def path_of_a_console_script(monkeypatch):
    """`python -m pytest` puts the folder it runs in on the path; a console script does not."""
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if Path(entry or ".").resolve() != ROOT])


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(doctor, "ring", lambda: Result("ok", "not measured"))


def test_every_line_has_a_level_a_name_and_a_value_and_the_worst_is_the_status(quick, monkeypatch, capsys):
    monkeypatch.setattr(doctor, "leftovers", lambda: Result("warn", "some", "remove them"))
    assert main(["doctor", "echo", "--port", "0"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "warn  leftovers      some" in lines
    assert "                     fix: remove them" in lines
    assert "ok    echo           no mistakes" in lines


def lines_of(capsys, *arguments):
    """name of a line -> its level"""
    main(["doctor", *arguments, "--port", "0"])
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    return {words[1]: words[0] for words in shown if words[0] in ("ok", "warn", "fail")}


@pytest.mark.parametrize(
    ("arguments", "shown", "not_shown"),
    [
        ((), {"voice"}, {"qwen3-tts", "weights"}),
        (("echo",), set(), {"voice", "qwen3-tts", "weights"}),
        (("speech",), {"voice"}, {"qwen3-tts", "weights"}),
        (("qwen3_tts",), {"qwen3-tts"}, {"voice", "weights"}),
    ],
)
def test_packages_are_those_of_the_stages_that_are_used(quick, monkeypatch, capsys, arguments, shown, not_shown):
    monkeypatch.setattr(doctor, "devices", lambda plan: Result("ok", "not asked"))
    lines = lines_of(capsys, *arguments)
    assert shown <= lines.keys()
    assert not not_shown & lines.keys()


def test_what_a_stage_cannot_do_without_fails_with_the_extra_that_brings_it(monkeypatch):
    monkeypatch.setattr(doctor_stages, "versions", lambda names: ([], list(names)))
    found = dict(doctor.stages(load_plan("qwen3_tts_clone", cores=2)))
    assert found["qwen3-tts"] == Result("fail", "missing: torch, transformers, av, tokenizers", extra("qwen3-tts"))


def test_a_broken_pipeline_fails_with_its_findings(quick, capsys):
    assert main(["doctor", "echo", "--port", "0", "--set", "stage.echo.batch=0"]) == 2
    assert "batch = 0: Expected int >= 1" in capsys.readouterr().out


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setattr(doctor, "CORE", ("msgspec", "no-such-package-of-ours"))
    result = doctor.packages()
    assert result.level == "fail"
    assert result.fix == f"{sys.executable} -m pip install no-such-package-of-ours"


def test_speech_without_its_packages_is_a_warning(monkeypatch):
    monkeypatch.setattr(doctor, "VOICE", ("no-such-package-of-ours",))
    assert doctor.voice().level == "warn"


def test_a_busy_port_fails():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        result = doctor.port_free("127.0.0.1", taken.getsockname()[1])
    assert result.level == "fail"
    assert result.fix == "choose another with --port"


def test_too_few_descriptors_fail(monkeypatch):
    monkeypatch.setattr(doctor.resource, "getrlimit", lambda which: (64, 4096))
    result = doctor.descriptors(load_plan("maze"))
    assert (result.level, result.fix[:10]) == ("fail", "ulimit -n ")


def test_a_node_with_more_threads_than_cores_is_a_warning():
    asked = doctor.cores(load_plan("maze", (), ["node.hub.threads=10000"]))
    assert (asked.level, asked.fix) == ("warn", f"--set node.hub.threads={len(os.sched_getaffinity(0))}")
    assert doctor.cores(load_plan("maze")).level == "ok"


def test_nodes_may_have_more_threads_in_all_than_there_are_cores(monkeypatch):
    monkeypatch.setattr(doctor.os, "sched_getaffinity", lambda pid: {0, 1})
    assert doctor.cores(load_plan("voice")) == Result("ok", "2 to use, 6 threads in all")


def test_help_says_what_the_status_means(capsys):
    with pytest.raises(SystemExit):
        main(["doctor", "--help"])
    assert "Exit status: 0 all ok, 1 a warning" in capsys.readouterr().out


def test_our_folders_are_not_importable_by_their_bare_names(monkeypatch):
    assert doctor.import_names().level == "ok"
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    assert doctor.import_names().level == "fail"


def test_what_breaks_while_it_is_tried_is_a_failure():
    def broken():
        raise OmnirtError("no room")

    assert doctor.attempted(broken) == Result(
        "fail", "OmnirtError: no room", "see the lines above; packages and memory first"
    )


def test_the_remaining_lines_are_right_on_this_machine():
    assert doctor.python().level == "ok"
    assert doctor.shared_memory(load_plan("maze")).level == "ok"
    assert doctor.leftovers().level == "ok"
    assert doctor.native_code().level == "ok"


def test_a_gpu_that_is_not_there_fails_with_what_to_do(monkeypatch):
    plan = load_plan("qwen3_tts", cores=2)
    monkeypatch.setattr(doctor, "versions", lambda names: (["torch 1"], []))
    monkeypatch.setattr(doctor.subprocess, "run", lambda *a, **k: doctor.subprocess.CompletedProcess(a, 0, "\n", ""))
    result = doctor.devices(plan)
    assert result.level == "fail"
    assert "cuda:0" in result.value
    assert "--set node.speech.device=cpu" in result.fix
    twice = doctor.devices(load_plan("qwen3_tts", ["qwen3-tts-replicas"], cores=2))
    assert twice.fix.count("--set") == 1


def test_without_torch_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(doctor, "versions", lambda names: ([], ["torch"]))
    assert "pip install '.[qwen3-tts]'" in doctor.devices(load_plan("qwen3_tts", cores=2)).fix
