"""What a head has of the machine, as /proc shows it: processes, descriptors, shared memory, wake-ups, memory.

A head's children carry its mark in their environment and its guard has it in its command line; its segments were
named after its process id (the kernel still shows the name of an unlinked one). So what belongs to which head is exact,
whatever else runs on the machine.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from omnirt.runtime.guard import MARK
from omnirt.shm.segment import DIRECTORY, PREFIX

_PROC = Path("/proc")


def pids() -> list[int]:
    return [int(entry) for entry in os.listdir(_PROC) if entry.isdigit()]


def family(head_pid: int, run: str = "") -> set[int]:
    """Every process that this head (or only the run of it, for several in one process) ever started and that lives."""
    wanted = (run or f"{head_pid}.").encode()
    return {pid for pid in pids() if _is_of(pid, wanted) and not _is_zombie(pid)}


def _is_of(pid: int, run: bytes) -> bool:
    if b"\0" + MARK.encode() + b"=" + run in b"\0" + _read(pid, "environ"):
        return True
    return is_guard(pid, run)


def node_pid(head_pid: int, node: str) -> int:
    """The process of that node (its rank 0); 0 when there is none now."""
    mark = f"/{node}.0/".encode()
    roots = (pid for pid in family(head_pid) if parent(pid) == head_pid)
    return next((pid for pid in roots if mark in _read(pid, "environ")), 0)


def is_guard(pid: int, run: bytes = b"") -> bool:
    """Whether it is a guard (of that run)."""
    line = _read(pid, "cmdline").split(b"\0")  # ..., guard.py, descriptor, run, and the empty end
    return len(line) > 4 and line[-4].endswith(b"guard.py") and line[-2].startswith(run)


def _is_zombie(pid: int) -> bool:
    stat = _stat(pid)
    return not stat or stat[0] in (b"Z", b"X")


def exists(pid: int) -> bool:
    return not _is_zombie(pid)


def parent(pid: int) -> int:
    """0 when it is gone."""
    stat = _stat(pid)
    return int(stat[1]) if stat else 0


def _stat(pid: int) -> list[bytes]:
    """From the state on: the name before it may hold anything."""
    return _read(pid, "stat").rpartition(b")")[2].split()


def segments(head_pid: int, among: Iterable[int] | None = None) -> dict[int, int]:
    """Inode -> bytes of the head's shared memory that some process (or one of `among`) still maps or holds open."""
    shown = f"{DIRECTORY}/{PREFIX}{head_pid}-"
    found: dict[int, int] = {}
    for pid in pids() if among is None else among:
        for line in _read(pid, "maps").decode(errors="replace").splitlines():
            if shown in line:
                span, _, _, _, inode, _ = line.split(maxsplit=5)
                start, _, end = span.partition("-")
                found[int(inode)] = int(end, 16) - int(start, 16)
        with contextlib.suppress(OSError):
            for entry in (_PROC / str(pid) / "fd").iterdir():
                with contextlib.suppress(OSError):
                    if os.readlink(entry).startswith(shown):
                        status = entry.stat()
                        found[status.st_ino] = status.st_size
    return found


def segment_names(head_pid: int) -> list[str]:
    """Names of this head's in /dev/shm; there are none but between two system calls."""
    return [name for name in os.listdir(DIRECTORY) if name.startswith(f"{PREFIX}{head_pid}-")]


def descriptors(pid: int | str = "self") -> int:
    return len(os.listdir(_PROC / str(pid) / "fd"))


def voluntary_switches(of: Iterable[int], *, loops_only: bool = False) -> dict[int, int]:
    """Times each process went to sleep: an idle one has no reason to wake for the next. All its threads together, or
    only the one that runs its loop."""
    threads = {pid: [_PROC / str(pid)] if loops_only else _tasks(pid) for pid in of}
    return {pid: sum(_field(task / "status", "voluntary_ctxt_switches") for task in threads[pid]) for pid in of}


def heap_bytes(pid: int) -> int:
    """Memory of its own: neither files nor shared memory."""
    return _field(_PROC / str(pid) / "status", "RssAnon") * 1024


def _tasks(pid: int) -> list[Path]:
    return list((_PROC / str(pid) / "task").iterdir())


def _field(file: Path, name: str) -> int:
    for line in file.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise KeyError(name)


def _read(pid: int, what: str) -> bytes:
    try:
        return (_PROC / str(pid) / what).read_bytes()
    except OSError:  # gone, or another user's
        return b""
