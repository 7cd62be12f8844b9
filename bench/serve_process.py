"""A server of its own for a bench: `omnirt run` as a child, on a port of its choosing."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

READY = re.compile(r" is ready after .* on (http://\S+)")
STOP_S = 20


@contextmanager
def server(pipeline: str, *arguments: str) -> Iterator[str]:
    """Its URL, once it is ready."""
    command = [sys.executable, "-m", "omnirt.cli.main", "run", pipeline, "--port", "0", "--log", "error", *arguments]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        url = _url(process)
        threading.Thread(target=_pass_on, args=(process,), daemon=True).start()
        yield url
    finally:
        process.terminate()
        process.wait(STOP_S)


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
