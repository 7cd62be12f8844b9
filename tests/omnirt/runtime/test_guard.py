"""The head dies by SIGKILL: everything it ever started is gone, stopped or not, session of its own or not."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import uvloop

from omnirt.runtime import guard as guard_module
from omnirt.runtime.guard import MARK, Guard

PATIENCE_S = 20

# A head with two nodes, each with three processes of its own: one in its group that carries no mark, one in a session
# of its own, and a fork of a fork whose parent is gone.
HEAD = """
import asyncio, os, signal, subprocess, sys
import uvloop
from omnirt.runtime.children import Children
from omnirt.wire.plan import NodePlan

NODE = '''
import os, signal, socket, subprocess, sys
from omnirt.runtime.guard import die_with_parent
die_with_parent(int(sys.argv[2]))
sock = socket.socket(fileno=int(sys.argv[1]))
stopped = [sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"]
near = subprocess.Popen(stopped, env={})
far = subprocess.Popen(stopped, start_new_session=True)
daemon = "import os, time; os.fork() and os._exit(0); os.setsid(); print(os.getpid(), flush=True); time.sleep(1000)"
again = subprocess.Popen([sys.executable, "-c", daemon], stdout=subprocess.PIPE)
lost = int(again.stdout.readline())
sock.send(f"{os.getpid()} {near.pid} {far.pid} {lost}".encode())
if NODES_STOPPED: os.kill(os.getpid(), signal.SIGSTOP)
sock.recv(10)
'''
loop = uvloop.new_event_loop()
children = Children(loop, lambda *args: None, entry=("-c", NODE.replace("NODES_STOPPED", sys.argv[1])))
said, kept = [], []
for k in range(2):
    child = children.spawn(NodePlan(f"n.{k}", "n", k, ("n",)), 0, 1)
    child.sock.settimeout(20)
    kept.append(child)
    said.append(child.sock.recv(1000).decode())
print(children.guard.pid, *said, flush=True)
loop.run_forever()
"""


class Head:
    def __init__(self, *, nodes_stopped: bool) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", HEAD, str(nodes_stopped)], stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        self.pidfds: dict[int, int] = {}
        try:
            pids = [int(pid) for pid in self.process.stdout.readline().split()]
            self.guard, self.family = pids[0], pids[1:]
            for pid in pids:
                self.pidfds[pid] = os.pidfd_open(pid)
        except BaseException:
            self.close()
            raise

    def left(self) -> list[int]:
        """Those still there after a generous while."""
        return [pid for pid, pidfd in self.pidfds.items() if not select.select([pidfd], [], [], PATIENCE_S)[0]]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        for pidfd in self.pidfds.values():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            os.close(pidfd)


@pytest.mark.kill
@pytest.mark.parametrize("nodes_stopped", [False, True])
def test_sigkill_of_the_head_ends_every_descendant(nodes_stopped: bool) -> None:
    head = Head(nodes_stopped=nodes_stopped)
    try:
        assert len(head.family) == 8
        os.kill(head.process.pid, signal.SIGKILL)
        assert head.left() == []
    finally:
        head.close()


@pytest.mark.kill
def test_the_guard_survives_the_signals_a_terminal_sends() -> None:
    head = Head(nodes_stopped=False)
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            os.kill(head.guard, number)
        os.kill(head.process.pid, signal.SIGKILL)
        assert head.left() == []
    finally:
        head.close()


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = uvloop.new_event_loop()
    yield loop
    loop.close()


Sleeper = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def sleeper() -> Iterator[Sleeper]:
    """Starts processes that carry a mark, or none, and do nothing."""
    started: list[subprocess.Popen[bytes]] = []

    def start(mark: str = "", *, own_session: bool = False) -> subprocess.Popen[bytes]:
        script = "import time; print(flush=True); time.sleep(1000)"
        env = {**os.environ, MARK: mark} if mark else None
        command = [sys.executable, "-c", script]
        process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, start_new_session=own_session)
        started.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def reaped(process: subprocess.Popen[bytes]) -> int:
    return process.wait(timeout=PATIENCE_S)


@pytest.mark.kill
def test_another_guard_takes_over_and_knows_all_groups(
    loop: asyncio.AbstractEventLoop, sleeper: Sleeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard_module, "RESTART_S", 0.05)
    restarted = asyncio.Event()

    class Told(Guard):
        def _restart(self) -> None:
            super()._restart()
            restarted.set()

    guard = Told(loop, "run-takeover")
    group = sleeper(own_session=True)
    guard.watch(group.pid)
    first = guard.pid
    os.kill(first, signal.SIGKILL)
    loop.run_until_complete(asyncio.wait_for(restarted.wait(), PATIENCE_S))
    assert guard.pid != first
    guard.close(PATIENCE_S)
    assert reaped(group) == -signal.SIGKILL


def test_a_clean_stop_takes_the_guard_along_and_spares_strangers(
    loop: asyncio.AbstractEventLoop, sleeper: Sleeper
) -> None:
    stranger, similar, ours = sleeper(), sleeper("run-cleaner/x.0/1"), sleeper("run-clean/x.0/1")
    before = set(os.listdir("/proc/self/fd"))
    guard = Guard(loop, "run-clean")
    guard.close(PATIENCE_S)
    assert reaped(ours) == -signal.SIGKILL
    assert stranger.poll() is None
    assert similar.poll() is None
    assert not Path(f"/proc/{guard.pid}").exists()
    assert set(os.listdir("/proc/self/fd")) == before


def test_the_end_of_one_node_sweeps_its_own_mark_only(loop: asyncio.AbstractEventLoop, sleeper: Sleeper) -> None:
    guard = Guard(loop, "run-one")
    group = sleeper("run-one/a.0/1", own_session=True)
    astray, next_one = sleeper("run-one/a.0/1", own_session=True), sleeper("run-one/a.0/11")
    guard.watch(group.pid)
    group.kill()
    group.wait()
    guard.done(group.pid, "run-one/a.0/1")
    assert reaped(astray) == -signal.SIGKILL
    assert next_one.poll() is None
    guard.close(PATIENCE_S)
    assert reaped(next_one) == -signal.SIGKILL


def test_a_guard_that_does_not_read_is_replaced(loop: asyncio.AbstractEventLoop) -> None:
    guard = Guard(loop, "run-stuck")
    first = guard.pid
    os.kill(first, signal.SIGSTOP)
    pidfd = os.pidfd_open(first)
    for number in range(20_000):  # more than its pipe holds; groups that no process has
        guard.watch(1 << 30 | number)
    assert select.select([pidfd], [], [], PATIENCE_S)[0]
    os.close(pidfd)
    guard.close(PATIENCE_S)


def test_a_node_whose_head_is_already_gone_ends_at_once() -> None:
    script = f"from omnirt.runtime.guard import die_with_parent; die_with_parent({os.getpid()} + 1); print('alive')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stdout) == (1, b"")
