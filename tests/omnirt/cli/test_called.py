import sys

import pytest

from omnirt.cli import called


@pytest.mark.parametrize(
    ("found", "as_called", "again"),
    [
        ("/usr/bin/omnirt", "/else/omnirt", "omnirt"),
        (None, ".venv/bin/omnirt", ".venv/bin/omnirt"),
        (None, "/a b/omnirt", "'/a b/omnirt'"),
        (None, "/x/omnirt/cli/main.py", "/x/python -m omnirt.cli.main"),
    ],
)
def test_the_command_is_repeated_as_it_was_called_unless_its_name_will_do(monkeypatch, found, as_called, again):
    monkeypatch.setattr(called.shutil, "which", lambda name: found)
    monkeypatch.setattr(sys, "argv", [as_called, "run"])
    monkeypatch.setattr(sys, "executable", "/x/python")
    assert called.called() == again
