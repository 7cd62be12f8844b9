"""Node processes: start one, learn of its end exactly once, kill one with everything it started.

* A node is the leader of its own session and process group; whatever ends the node, its group is killed before it is
  reaped (while its number cannot belong to anybody else), and what left the group is swept by the guard.
* Death is noticed through a pidfd in the loop: no signal handler, no polling.
* This is the one file that reads the environment, and only to build a child's; ours is never changed.

`Children` must be used on the main thread: the kernel ties a child's life to the thread that started it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping

from omnirt.clock import NS, monotonic_ns
from omnirt.errors import ConfigError
from omnirt.runtime import channel
from omnirt.runtime.exits import ExitReason
from omnirt.runtime.guard import MARK, Guard
from omnirt.wire.plan import NodePlan

ENTRY = ("-P", "-m", "omnirt.runtime.node")
"""Interpreter arguments; the socket's descriptor and the head's pid follow. -P: we import nothing from where we run."""

_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "RAYON_NUM_THREADS",
)
# Threads of numerical libraries wait by spinning unless told otherwise; nodes share the cores.
_NO_SPINNING = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0", "KMP_BLOCKTIME": "0"}

OnExit = Callable[[str, int, int, ExitReason], None]
_Key = tuple[str, int, int]


class Child:
    """A running node process. `sock` is the head's end of its channel."""

    __slots__ = ("incarnation", "name", "pid", "rank", "sock")

    def __init__(self, name: str, rank: int, incarnation: int, pid: int, sock: socket.socket) -> None:
        self.name = name
        self.rank = rank
        self.incarnation = incarnation
        self.pid = pid
        self.sock = sock


class _Process:
    __slots__ = ("killed", "mark", "pidfd", "popen")

    def __init__(self, popen: subprocess.Popen[bytes], pidfd: int, mark: str) -> None:
        self.popen = popen
        self.pidfd = pidfd
        self.mark = mark
        self.killed = False  # by us


class Children:
    """`on_exit(name, rank, incarnation, reason)` runs once for each spawn, from the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_exit: OnExit, entry: tuple[str, ...] = ENTRY) -> None:
        self._loop = loop
        self._on_exit = on_exit
        self._entry = entry
        self._processes: dict[_Key, _Process] = {}
        self._oom_kills = _oom_kills()
        self.guard = Guard(loop, f"{os.getpid()}.{monotonic_ns()}")

    def spawn(self, node: NodePlan, rank: int, incarnation: int) -> Child | None:
        """Start the process. None when that is not possible; `on_exit` then tells why, soon."""
        key = (node.name, rank, incarnation)
        mark = f"{self.guard.run}/{node.name}.{rank}/{incarnation}"
        try:
            environment = child_environment(node, rank, os.environ)
            process, ours = self._start(node.python or sys.executable, environment, mark)
        except (OSError, ConfigError) as error:
            number = error.errno or 0 if isinstance(error, OSError) else 0
            self._loop.call_soon(self._on_exit, *key, ExitReason("spawn", number, text=str(error)))
            return None
        self._processes[key] = process
        self.guard.watch(process.popen.pid)
        self._loop.add_reader(process.pidfd, self._ended, key)
        return Child(*key, process.popen.pid, ours)

    def kill(self, name: str, rank: int, incarnation: int) -> None:
        """SIGKILL the process and its group; works on stopped ones. Unknown or ended: nothing."""
        process = self._processes.get((name, rank, incarnation))
        if process is not None:
            process.killed = True
            _kill_group(process.popen.pid)

    def alive(self) -> int:
        return len(self._processes)

    def terminate_all(self, timeout_s: float) -> list[str]:
        """Kill everything and wait for its end, without the loop: the last thing a head does. `on_exit` is not called.

        Returns the names of nodes that were still there after `timeout_s`.
        """
        deadline_ns = monotonic_ns() + int(timeout_s * NS)
        poller = select.poll()
        left = {process.pidfd: key for key, process in self._processes.items()}
        for key, process in self._processes.items():
            self.kill(*key)
            self._loop.remove_reader(process.pidfd)
            poller.register(process.pidfd, select.POLLIN)
        while left and (left_ns := deadline_ns - monotonic_ns()) > 0:
            for pidfd, _ in poller.poll(left_ns / 1e6):
                poller.unregister(pidfd)
                self._reap(left.pop(pidfd))
        self.guard.close()
        return sorted({name for name, _, _ in left.values()})

    def _start(self, python: str, environment: dict[str, str], mark: str) -> tuple[_Process, socket.socket]:
        ours, theirs = channel.pair()
        try:
            popen = subprocess.Popen(
                [python, *self._entry, str(theirs.fileno()), str(os.getpid())],
                env={**environment, MARK: mark},
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=2,  # what libraries print must not mix with the head's own output
                start_new_session=True,
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        return _Process(popen, os.pidfd_open(popen.pid), mark), ours

    def _ended(self, key: _Key) -> None:
        self._loop.remove_reader(self._processes[key].pidfd)
        self._on_exit(*key, self._reap(key))

    def _reap(self, key: _Key) -> ExitReason:
        process = self._processes.pop(key)
        _kill_group(process.popen.pid)
        status = process.popen.wait()
        os.close(process.pidfd)
        self.guard.done(process.popen.pid, process.mark)
        if status >= 0:
            return ExitReason("exit", status)
        return ExitReason("signal", -status, oom=-status == signal.SIGKILL and self._is_oom(process))

    def _is_oom(self, process: _Process) -> bool:
        before, self._oom_kills = self._oom_kills, _oom_kills()
        return not process.killed and self._oom_kills > before


def child_environment(node: NodePlan, rank: int, inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment of one process: what we inherited, its share of threads, and its device alone."""
    environment = dict(inherited)
    environment.update(dict.fromkeys(_THREAD_VARIABLES, str(node.threads)))
    environment.update(_NO_SPINNING)
    environment["CUDA_VISIBLE_DEVICES"] = _visible_device(node, rank, inherited.get("CUDA_VISIBLE_DEVICES"))
    return environment


def _visible_device(node: NodePlan, rank: int, visible: str | None) -> str:
    """`cuda:N` counts within what we may see; inside the process it is the only one and so `cuda:0`.

    Rank r of a node placed on `cuda:N` runs on `cuda:<N + r>`.
    """
    kind, _, number = node.device.partition(":")
    if kind != "cuda":
        return ""
    index = int(number or 0) + rank
    if visible is None:
        return str(index)
    devices = [device.strip() for device in visible.split(",") if device.strip()]
    if index >= len(devices):
        placed = f"stage {', '.join(node.stages)} is placed on cuda:{index}"
        raise ConfigError(f"{placed}, but CUDA_VISIBLE_DEVICES={visible!r} shows {len(devices)} devices")
    return devices[index]


def _kill_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # nobody is left in it that we may kill
        os.killpg(group, signal.SIGKILL)


def _oom_kills() -> int:
    """How many processes the kernel has killed for memory since it started; 0 where it does not say."""
    try:
        with open("/proc/vmstat") as file:
            return next((int(line.split()[1]) for line in file if line.startswith("oom_kill ")), 0)
    except OSError:
        return 0
