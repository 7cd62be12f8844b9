"""How a process ended, as its parent saw it."""

from __future__ import annotations

import signal
from typing import Literal

from msgspec import Struct


class ExitReason(Struct, frozen=True):
    """`exit`: it ended with status `code`. `signal`: signal `code` ended it. `spawn`: it never ran; `code` is errno.

    `oom` is a guess: the kernel's out-of-memory killer leaves no other trace than a SIGKILL nobody of ours sent.
    """

    kind: Literal["exit", "signal", "spawn"]
    code: int
    oom: bool = False
    text: str = ""

    def describe(self) -> str:
        if self.kind == "spawn":
            said = "could not be started"
        elif self.kind == "exit":
            said = f"exited with status {self.code}"
        else:
            said = f"was ended by {_signal_name(self.code)}"
            if self.oom:
                said += ", probably because the machine ran out of memory"
        return f"{said}: {self.text}" if self.text else said


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"
