"""A server of its own for a bench: `omnirt run` as a child, on a port of its choosing, and what it costs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

READY = re.compile(r" is ready after .* on (http://\S+)")
STOP_S = 20


class Server(NamedTuple):
    url: str
    pid: int

    def used_s(self) -> dict[str, float]:
        """Processor seconds so far of the `head` and of all its `nodes`."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        nodes = [
            int(child) for child in children if b"omnirt.runtime.node" in Path(f"/proc/{child}/cmdline").read_bytes()
        ]
        return {"head": used_s(self.pid), "nodes": sum(used_s(pid) for pid in nodes)}


@contextmanager
def server(pipeline: str, *arguments: str) -> Iterator[Server]:
    """Ready when it is given."""
    command = [sys.executable, "-m", "omnirt.cli.main", "run", pipeline, "--port", "0", "--log", "error", *arguments]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        url = _url(process)
        threading.Thread(target=_pass_on, args=(process,), daemon=True).start()
        yield Server(url, process.pid)
    finally:
        process.terminate()
        process.wait(STOP_S)


def used_s(pid: int) -> float:
    """Processor seconds of all threads of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _pass_on(process: subprocess.Popen[str]) -> None:
    """Errors of the server are seen, and never fill its pipe."""
    assert process.stderr is not None
    for line in process.stderr:
        if not line.startswith(("draining", " ")):  # our own doing, and hints for who tries the server by hand
            sys.stderr.write(line)


def _url(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    lines: list[str] = []
    for line in process.stderr:
        found = READY.search(line)
        if found:
            return found[1]
        lines.append(line)
    raise SystemExit("the server did not start:\n" + "".join(lines[-20:]))
