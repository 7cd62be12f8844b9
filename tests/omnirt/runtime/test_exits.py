"""How the end of a process reads to people."""

from __future__ import annotations

import pytest

from omnirt.runtime.exits import ExitReason


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (ExitReason("exit", 0), "exited with status 0"),
        (ExitReason("exit", 3, text="no weights"), "exited with status 3: no weights"),
        (ExitReason("signal", 11), "was ended by SIGSEGV"),
        (ExitReason("signal", 40), "was ended by signal 40"),
        (ExitReason("signal", 9, oom=True), "was ended by SIGKILL, probably because the machine ran out of memory"),
        (ExitReason("spawn", 2, text="no such file"), "could not be started: no such file"),
    ],
)
def test_an_exit_reason_describes_itself(reason: ExitReason, text: str) -> None:
    assert reason.describe() == text
