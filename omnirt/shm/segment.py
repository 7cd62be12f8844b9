# posix_ipc carries no type information.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""A piece of shared memory without a name, reached only through its descriptor.

    shm_open(O_CREX, 0600) -> unlink -> fallocate -> map on first use
                          ^ a kill here leaves one empty name, which `sweep` removes

Invariants
* the name is gone before the segment has a size: whatever dies, the kernel frees the memory with the last descriptor
  and mapping. Nobody can attach by name, so nobody can alter, pre-create, or unlink it either.
* all pages are allocated by `create`: a full /dev/shm is an error there, never a SIGBUS in a writer later
* each process prefaults its own mapping, so no page fault is left for the records
* `close` never raises: views keep the mapping alive, the last of them unmaps it
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import secrets
import stat
from typing import ClassVar, Self

import numpy as np
import posix_ipc

from omnirt.errors import OmnirtError

DIRECTORY = "/dev/shm"
PREFIX = "omnirt-"
_NAME = re.compile(rf"{PREFIX}(\d+)-[0-9a-f]+")
_MADV_POPULATE_WRITE = 23  # Linux 5.14; the mmap module has no name for it


class SharedMemoryFull(OmnirtError):
    """/dev/shm has no room. Containers get 64 MB by default."""

    code: ClassVar[str] = "shared_memory_full"

    def __init__(self, needed_bytes: int, available_bytes: int) -> None:
        super().__init__(
            f"{DIRECTORY} has {_mb(available_bytes)} free and this needs {_mb(needed_bytes)} more; "
            f"in a container, start it with --shm-size={_next_size(needed_bytes)} or larger"
        )
        self.needed_bytes = needed_bytes
        self.available_bytes = available_bytes


class SegmentRefused(OmnirtError):
    """A descriptor that is not the segment it should be: another size, owner or mode."""

    code: ClassVar[str] = "segment_refused"


class Segment:
    def __init__(self, fd: int, nbytes: int) -> None:
        """Takes over `fd`. Use `create` or `attach`."""
        self.fd = fd
        self.nbytes = nbytes
        self._array: np.ndarray | None = None

    @classmethod
    def create(cls, nbytes: int) -> Self:
        """A new segment of zeroes. Raises SharedMemoryFull."""
        memory = posix_ipc.SharedMemory(f"/{PREFIX}{os.getpid()}-{secrets.token_hex(8)}", posix_ipc.O_CREX, mode=0o600)
        with contextlib.suppress(posix_ipc.ExistentialError):  # something outside removed it: as good
            memory.unlink()
        try:
            os.posix_fallocate(memory.fd, 0, nbytes)
        except OSError as error:
            memory.close_fd()
            raise SharedMemoryFull(nbytes, free_bytes()) from error
        return cls(memory.fd, nbytes)

    @classmethod
    def attach(cls, fd: int, nbytes: int) -> Self:
        """The segment behind a received descriptor, which it takes over. Raises SegmentRefused."""
        status = os.fstat(fd)
        if status.st_size != nbytes:
            raise SegmentRefused(f"the shared segment has {status.st_size} bytes, expected {nbytes}")
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077 or not stat.S_ISREG(status.st_mode):
            raise SegmentRefused(
                f"the shared segment belongs to user {status.st_uid} with mode {stat.S_IMODE(status.st_mode):o}, "
                f"expected user {os.geteuid()} and mode 600"
            )
        return cls(fd, nbytes)

    @property
    def array(self) -> np.ndarray:
        """The whole segment, [nbytes] uint8. Mapped and prefaulted on first use."""
        if self._array is None:
            if self.fd < 0:
                raise ValueError("the segment is closed")
            pages = mmap.mmap(self.fd, self.nbytes, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
            with contextlib.suppress(OSError):  # older kernels: MAP_POPULATE has done what it can
                pages.madvise(_MADV_POPULATE_WRITE)
            self._array = np.frombuffer(pages, np.uint8)
        return self._array

    @property
    def address(self) -> int:
        return self.array.ctypes.data

    def close(self) -> None:
        """Give up the descriptor and this object's view. Views taken earlier stay valid."""
        self._array = None
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def free_bytes() -> int:
    """What /dev/shm can still hold."""
    status = os.statvfs(DIRECTORY)
    return status.f_bavail * status.f_frsize


def sweep() -> list[str]:
    """Remove names left by processes that were killed between the two calls of `create`; returns them.

    Only empty ones of this user whose process is gone: a segment with a size never has a name of ours.
    """
    removed: list[str] = []
    for entry in os.scandir(DIRECTORY):
        match = _NAME.fullmatch(entry.name)
        if match is None or _alive(int(match[1])):
            continue
        with contextlib.suppress(FileNotFoundError, posix_ipc.ExistentialError):
            status = entry.stat(follow_symlinks=False)
            if status.st_size == 0 and status.st_uid == os.geteuid():
                posix_ipc.unlink_shared_memory(f"/{entry.name}")
                removed.append(entry.name)
    return sorted(removed)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _mb(nbytes: int) -> str:
    return f"{nbytes / (1 << 20):.1f} MB"


def _next_size(nbytes: int) -> str:
    """A round --shm-size that holds `nbytes` and leaves as much again."""
    size_mb = 64
    while size_mb << 20 < 2 * nbytes:
        size_mb *= 2
    return f"{size_mb}m" if size_mb < 1024 else f"{size_mb // 1024}g"
