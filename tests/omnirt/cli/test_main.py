import argparse

import pytest

import omnirt
from omnirt.cli import main as cli
from omnirt.cli.main import COMMANDS, main
from omnirt.errors import NotReady


def test_the_version_is_printed(capsys):
    with pytest.raises(SystemExit) as done:
        main(["--version"])
    assert done.value.code == 0
    assert capsys.readouterr().out == f"omnirt {omnirt.__version__}\n"


def test_help_names_every_command(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    out = capsys.readouterr().out
    assert all(f"\n    {name} " in out for name in COMMANDS)


def test_an_unknown_command_is_refused_with_the_valid_ones(capsys):
    with pytest.raises(SystemExit) as done:
        main(["serve"])
    assert done.value.code == 2
    assert "choose from" in capsys.readouterr().err


def test_an_error_is_one_line_and_status_2(capsys):
    assert main(["check", "ecko"]) == 2
    err = capsys.readouterr().err
    assert err == "error: there is no pipeline 'ecko', neither a file nor packaged (did you mean 'echo'?)\n"


def test_findings_are_printed_a_line_each(capsys):
    assert main(["plan", "echo", "--set", "limits.request_max=1", "--set", "stage.echo.batch=0"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[1] == "--set stage.echo.batch=0: error: stage echo: batch = 0: Expected int >= 1"


def test_other_errors_of_ours_are_printed_without_a_trace(capsys, monkeypatch):
    module = argparse.Namespace(add_arguments=lambda parser: None, run=_raise)
    monkeypatch.setattr(cli.importlib, "import_module", lambda name: module)
    assert main(["run"]) == 2
    assert capsys.readouterr().err == "error: still loading\n"


def test_an_interrupt_is_quiet_also_while_a_command_is_imported(capsys, monkeypatch):
    monkeypatch.setattr(cli.importlib, "import_module", _interrupt)
    assert main(["run"]) == 130
    assert capsys.readouterr().err == ""


def _interrupt(name):
    raise KeyboardInterrupt


def _raise(args):
    raise NotReady("still loading", reason="model_loading")
