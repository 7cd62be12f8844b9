"""Node processes: started with the right environment, their end told once, killed with all they started."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
from collections.abc import Iterator

import pytest
import uvloop

from omnirt.errors import ConfigError
from omnirt.runtime.children import Child, Children, child_environment
from omnirt.runtime.exits import ExitReason
from omnirt.wire.plan import NodePlan

PATIENCE_S = 20
NODE = NodePlan("llm.0", "llm", 0, ("llm",), threads=3)

# argv: <descriptor> <head pid>; each tells "here" when it is where the test wants it
PRELUDE = """
import os, signal, socket, subprocess, sys
sock = socket.socket(fileno=int(sys.argv[1]))
def tell(text): sock.send(text.encode())
"""
REST = PRELUDE + "tell('here')\nsock.recv(10)\n"
STOPPED = PRELUDE + "tell('here')\nos.kill(os.getpid(), signal.SIGSTOP)\n"
FAMILY = PRELUDE + (
    "sleeper = [sys.executable, '-c', 'import os, signal; os.kill(os.getpid(), signal.SIGSTOP)']\n"
    "near = subprocess.Popen(sleeper, env={})\n"
    "far = subprocess.Popen(sleeper, start_new_session=True)\n"
    "tell(f'{near.pid} {far.pid}')\n"
    "sock.recv(10)\n"
)


class Home:
    """Children of a script, and the notices of their ends."""

    def __init__(self) -> None:
        self.loop = uvloop.new_event_loop()
        self.notices: list[tuple[str, int, int, ExitReason]] = []
        self._came = asyncio.Event()
        self.children: Children | None = None

    def run(self, script: str) -> Children:
        self.children = Children(self.loop, self._on_exit, entry=("-c", script))
        return self.children

    def _on_exit(self, name: str, rank: int, incarnation: int, reason: ExitReason) -> None:
        self.notices.append((name, rank, incarnation, reason))
        self._came.set()

    def until(self, notices: int) -> None:
        async def wait() -> None:
            while len(self.notices) < notices:
                self._came.clear()
                await asyncio.wait_for(self._came.wait(), PATIENCE_S)

        self.loop.run_until_complete(wait())

    def settle(self) -> None:
        self.loop.run_until_complete(asyncio.sleep(0.05))

    def close(self) -> None:
        if self.children is not None:
            self.children.terminate_all(PATIENCE_S)
        self.loop.close()


@pytest.fixture
def home() -> Iterator[Home]:
    home = Home()
    yield home
    home.close()


def heard(child: Child) -> str:
    child.sock.settimeout(PATIENCE_S)
    return child.sock.recv(1 << 16).decode()


def gone(pid: int) -> bool:
    """True once the process has ended; a zombie nobody of ours can reap counts as ended."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([pidfd], [], [], PATIENCE_S)[0])
    finally:
        os.close(pidfd)


def spawned(home: Home, script: str, node: NodePlan = NODE) -> Child:
    child = home.run(script).spawn(node, 0, 1)
    assert child is not None
    return child


def test_the_end_of_a_child_is_told_once_with_its_status(home: Home) -> None:
    child = spawned(home, PRELUDE + "sys.exit(7)")
    home.until(notices=1)
    home.settle()
    assert home.notices == [("llm.0", 0, 1, ExitReason("exit", 7))]
    assert child.sock.recv(10) == b""
    assert home.children is not None
    assert home.children.alive() == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_the_signal_that_ended_a_child_is_told(home: Home, number: signal.Signals) -> None:
    spawned(home, PRELUDE + f"os.kill(os.getpid(), {int(number)})")
    home.until(notices=1)
    reason = home.notices[0][3]
    assert (reason.kind, reason.code) == ("signal", number)
    assert number.name in reason.describe()


@pytest.mark.parametrize("script", [REST, STOPPED])
def test_kill_ends_a_child_even_a_stopped_one(home: Home, script: str) -> None:
    child = spawned(home, script)
    assert heard(child) == "here"
    assert home.children is not None
    home.children.kill("llm.0", 0, 2)  # another incarnation: nothing
    home.children.kill("llm.0", 0, 1)
    home.children.kill("llm.0", 0, 1)
    home.until(notices=1)
    home.children.kill("llm.0", 0, 1)
    assert home.notices == [("llm.0", 0, 1, ExitReason("signal", signal.SIGKILL))]


@pytest.mark.parametrize("how", ["it is killed", "it exits"])
def test_what_a_child_started_ends_with_it(home: Home, how: str) -> None:
    child = spawned(home, FAMILY)
    near, far = (int(pid) for pid in heard(child).split())
    if how == "it is killed":
        os.kill(child.pid, signal.SIGKILL)
    else:
        child.sock.close()
    home.until(notices=1)
    assert gone(near)  # by its group: it carries no mark
    assert gone(far)  # by its mark: it had made a session of its own


def test_an_interpreter_that_is_not_there_is_told_like_an_exit(home: Home) -> None:
    node = NodePlan("llm.0", "llm", 0, ("llm",), python="/nowhere/python")
    assert home.run(REST).spawn(node, 0, 1) is None
    assert home.notices == []  # never from inside spawn
    home.until(notices=1)
    (_, _, _, reason) = home.notices[0]
    assert reason.kind == "spawn"
    assert "/nowhere/python" in reason.describe()


def test_terminate_all_ends_everything_without_notices(home: Home) -> None:
    children = home.run(FAMILY)
    family: list[int] = []
    for rank in range(2):
        child = children.spawn(NODE, rank, 1)
        assert child is not None
        family += [child.pid, *(int(pid) for pid in heard(child).split())]
    guard = children.guard.pid
    assert children.terminate_all(PATIENCE_S) == []
    assert all(gone(pid) for pid in [*family, guard])
    home.children = None
    home.settle()
    assert home.notices == []


def test_nothing_is_left_open_after_many_children(home: Home) -> None:
    children = home.run("pass")
    before = set(os.listdir("/proc/self/fd"))
    for incarnation in range(5):
        child = children.spawn(NODE, 0, incarnation)
        assert child is not None
        home.until(notices=incarnation + 1)
        child.sock.close()
    assert set(os.listdir("/proc/self/fd")) == before


def test_a_child_gets_only_its_own_descriptor_and_its_own_session(home: Home) -> None:
    held, other = os.pipe()
    os.set_inheritable(held, True)
    script = PRELUDE + "tell(f'{os.listdir(\"/proc/self/fd\")} {os.getsid(0) == os.getpid()} {sys.argv[2]}')"
    said = heard(spawned(home, script))
    os.close(held)
    os.close(other)
    home.until(notices=1)
    assert f"'{held}'" not in said or said.startswith(f"['0', '1', '2', '{held}'")  # same number, its own socket
    assert said.endswith(f"True {os.getpid()}")


def test_the_environment_divides_threads_and_stops_spinning() -> None:
    made = child_environment(NODE, 0, {"PATH": "/bin", "OMP_NUM_THREADS": "64"})
    assert made["OMP_NUM_THREADS"] == made["OPENBLAS_NUM_THREADS"] == "3"
    assert made["OMP_WAIT_POLICY"] == "PASSIVE"
    assert made["PATH"] == "/bin"


@pytest.mark.parametrize(
    ("device", "rank", "visible", "given"),
    [
        ("cpu", 0, None, ""),
        ("cpu", 0, "0,1", ""),
        ("cuda:0", 0, None, "0"),
        ("cuda:3", 0, None, "3"),
        ("cuda:2", 1, None, "3"),
        ("cuda:1", 0, "2,3", "3"),
        ("cuda:0", 1, "2, 3", "3"),
        ("cuda:1", 0, "GPU-aa,GPU-bb", "GPU-bb"),
    ],
)
def test_a_device_is_counted_within_what_the_head_may_see(
    device: str, rank: int, visible: str | None, given: str
) -> None:
    inherited = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    node = NodePlan("llm.0", "llm", 0, ("llm",), device=device)
    assert child_environment(node, rank, inherited)["CUDA_VISIBLE_DEVICES"] == given


def test_a_device_outside_the_visible_ones_names_the_stage_and_the_list() -> None:
    node = NodePlan("llm.0", "llm", 0, ("thinker", "talker"), device="cuda:2")
    with pytest.raises(ConfigError, match=r"thinker, talker.*cuda:2.*'2,3'"):
        child_environment(node, 0, {"CUDA_VISIBLE_DEVICES": "2,3"})


def test_many_children_started_together_get_their_own_devices_and_leave_ours_alone(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    before = dict(os.environ)
    script = PRELUDE + "tell(os.environ['CUDA_VISIBLE_DEVICES'])"
    children = home.run(script)
    for incarnation in range(3):
        started = [
            children.spawn(NodePlan(f"s.{k}", "s", k, ("s",), device=f"cuda:{k}"), 0, incarnation) for k in range(4)
        ]
        assert [heard(child) for child in started if child] == ["4", "5", "6", "7"]
    home.until(notices=12)
    assert dict(os.environ) == before
    assert sys.executable
