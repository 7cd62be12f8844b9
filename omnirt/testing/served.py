"""`omnirt run` in a process of its own, for what only a whole server can show: signals, exits, leftovers."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from omnirt.clock import NS, monotonic_ns
from omnirt.testing import processes
from omnirt.testing.aftermath import PATIENCE_S, until

_READY = re.compile(r"is ready after .* on (http://\S+)")


class Served:
    """A server on a free port. `said` is all that it has written to the file `log`."""

    def __init__(self, process: subprocess.Popen[bytes], log: str) -> None:
        self.process = process
        self._log = log
        self.url = ""

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def said(self) -> str:
        with open(self._log, encoding="utf-8") as file:
            return file.read()

    async def ready(self) -> str:
        """Its address, once every stage is up."""
        await until(lambda: _READY.search(self.said) is not None or self.process.poll() is not None, "it is ready")
        found = _READY.search(self.said)
        assert found, f"it ended with {self.process.poll()}:\n{self.said}"
        self.url = found[1]
        return self.url

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    async def ended(self) -> tuple[int, float]:
        """Its exit status, and how many seconds that took from now."""
        started_ns = monotonic_ns()
        await until(lambda: self.process.poll() is not None, "it has ended")
        return self.process.returncode, (monotonic_ns() - started_ns) / NS

    def family(self) -> set[int]:
        """What it started and what lives."""
        return processes.family(self.pid)

    async def nothing_left(self) -> float:
        """Seconds until it had left nothing: no process, no shared memory."""
        started_ns = monotonic_ns()
        await until(lambda: not self.family(), "every descendant is gone")
        took_s = (monotonic_ns() - started_ns) / NS
        assert not processes.segments(self.pid)
        return took_s


@contextmanager
def serving(pipeline: str, sets: Sequence[str] = (), options: Sequence[str] = ()) -> Generator[Served]:
    """Started, not yet ready; killed on leaving."""
    command = [sys.executable, "-P", "-m", "omnirt.cli.main", "run", pipeline, "--port", "0", *options]
    for value in sets:
        command += ["--set", value]
    with tempfile.NamedTemporaryFile(prefix="omnirt-served-") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        served = Served(process, log.name)
        try:
            yield served
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGKILL)
            process.wait(PATIENCE_S)
