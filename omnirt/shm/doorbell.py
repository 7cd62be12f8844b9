"""An eventfd that wakes one consumer. One per direction, watched by the consumer's event loop.

    publisher                                      consumer
    publish the head                               clear the bell
    full fence                                     read until empty
    waiting set? take it, ring                     set waiting, full fence, head moved? then read on; else sleep

Invariants
* rung only by whoever took the waiting flag (`atomics.publish`), so a burst rings once, and a busy consumer costs its
  producer no system call
* no time-out anywhere: the protocol is checked over all interleavings (tests/omnirt/shm/test_park_protocol.py)
* non-blocking from birth: event loops set that flag on the shared description anyway
"""

from __future__ import annotations

import os
from typing import Self


class Doorbell:
    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        """Takes over `fd`."""
        self._fd = fd

    @classmethod
    def create(cls) -> Self:
        return cls(os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC))

    def fileno(self) -> int:
        return self._fd

    def ring(self) -> None:
        os.eventfd_write(self._fd, 1)

    def clear(self) -> bool:
        """Whether it had been rung."""
        try:
            os.eventfd_read(self._fd)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
