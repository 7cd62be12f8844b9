"""Nobody outlives the head: not a node, not the processes an engine started, not one that is stopped.

    head --pipe--> guard        "+<group>"  a process group to kill when the head is gone
                                "-<group> <mark>"  it ended: kill what its processes left behind elsewhere
                                end of file  the head is gone, however that came: kill everything, then exit

* A node asks the kernel to be killed with its parent (`die_with_parent`); this reaches no grandchild.
* The guard, a process of its own that sleeps in `read`, kills the groups, and then whatever still carries the head's
  mark in its environment: processes that made a session of their own. A clean stop takes the same way.
* If the guard dies the head starts another and tells it all groups again.

The guard's side of this file runs as a script without site-packages, and imports as little as it can: it is ready
sooner and holds 11 MB instead of 20.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    import subprocess

MARK = "OMNIRT_RUN"  # set for children, read only from /proc: it marks processes, it configures nothing
RESTART_S = 1.0
_SWEEPS_MAX = 100
_SWEEP_S = 0.01
_PR_SET_PDEATHSIG = 1


def die_with_parent(parent_pid: int) -> None:
    """Have this process killed when the thread that started it ends. First thing a node does."""
    import ctypes

    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent_pid:  # it died before we asked
        os._exit(1)


class Guard:
    """The head's side. `run` is what every mark of this head starts with."""

    def __init__(self, loop: asyncio.AbstractEventLoop, run: str) -> None:
        self.run = run
        self._loop = loop
        self._groups: set[int] = set()
        self._again: asyncio.TimerHandle | None = None
        self._started_s = loop.time()
        self._start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def watch(self, group: int) -> None:
        self._groups.add(group)
        self._tell(f"+{group}\n")

    def done(self, group: int, mark: str) -> None:
        self._groups.discard(group)
        self._tell(f"-{group} {mark}\n")

    def close(self, timeout_s: float = 2.0) -> None:
        """Let it sweep and go. Blocking; the head calls it last."""
        if self._again is not None:
            self._again.cancel()
        if self._pidfd < 0:
            return
        self._loop.remove_reader(self._pidfd)
        os.close(self._pipe)
        if not select.select([self._pidfd], [], [], timeout_s)[0]:
            self._process.kill()
        self._reap()

    def _start(self) -> None:
        import subprocess

        reading, self._pipe = os.pipe()
        os.set_blocking(self._pipe, False)
        command = [sys.executable, "-I", "-S", __file__, str(reading), self.run]
        try:
            self._process: subprocess.Popen[bytes] = subprocess.Popen(
                command,
                pass_fds=(reading,),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
            )
        except OSError:
            os.close(self._pipe)
            raise
        finally:
            os.close(reading)
        self._pidfd = os.pidfd_open(self._process.pid)
        self._loop.add_reader(self._pidfd, self._died)

    def _died(self) -> None:
        self._loop.remove_reader(self._pidfd)
        self._reap()
        os.close(self._pipe)
        wait_s = max(0.0, self._started_s + RESTART_S - self._loop.time())
        self._again = self._loop.call_later(wait_s, self._restart)

    def _restart(self) -> None:
        self._again = None
        self._started_s = self._loop.time()
        try:
            self._start()
        except OSError:  # no descriptor or no memory left: the nodes still die with us, their children may not
            self._again = self._loop.call_later(RESTART_S, self._restart)
            return
        for group in sorted(self._groups):
            self._tell(f"+{group}\n")

    def _reap(self) -> None:
        os.close(self._pidfd)
        self._pidfd = -1
        self._process.wait()

    def _tell(self, line: str) -> None:
        if self._pidfd < 0:
            return  # between two guards; the next one is told
        try:
            os.write(self._pipe, line.encode())
        except BlockingIOError:  # it does not read: the next one will
            self._process.kill()
        except BrokenPipeError:
            pass  # it died; its pidfd says so


# ---------------------------------------------------------------- the guard's own process


def main(pipe: int, run: str) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    rest = b""
    while data := os.read(pipe, 1 << 16):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            _obey(line.decode(), groups)
    for group in groups:
        _kill_group(group)
    _sweep(f"\0{MARK}={run}/".encode())


def _obey(line: str, groups: set[int]) -> None:
    group, _, mark = line[1:].partition(" ")
    if line[0] == "+":
        groups.add(int(group))
    else:
        groups.discard(int(group))
        _sweep(f"\0{MARK}={mark}\0".encode())


def _sweep(needle: bytes) -> None:
    """Kill until none is left: one may have forked while we looked."""
    for _ in range(_SWEEPS_MAX):
        if not _kill_marked(needle):
            return
        select.select([], [], [], _SWEEP_S)


def _kill_marked(needle: bytes) -> int:
    found = 0
    for entry in os.listdir("/proc"):
        if entry.isdigit() and _is_marked(entry, needle):
            found += _kill_if_still_marked(int(entry), needle)
    return found


def _is_marked(pid: str, needle: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return needle in b"\0" + file.read() + b"\0"
    except OSError:  # another user's, or gone
        return False


def _kill_if_still_marked(pid: int, needle: bytes) -> int:
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return 0
    try:
        if not _is_marked(str(pid), needle):  # the number may have changed hands since we looked
            return 0
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        return 1
    except OSError:
        return 0
    finally:
        os.close(pidfd)


def _kill_group(group: int) -> None:
    with contextlib.suppress(OSError):  # nobody is left in it
        os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
