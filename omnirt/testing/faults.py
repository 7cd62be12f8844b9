"""What can go wrong with a process, by name, and when: the vocabulary of simulations and kill tests."""

from __future__ import annotations

import enum

from msgspec import Struct


class FaultKind(enum.Enum):
    CRASH = "crash"
    """SIGKILL."""
    HANG = "hang"
    """SIGSTOP: it does nothing more until it is killed."""
    PAUSE = "pause"
    """SIGSTOP, and SIGCONT before anybody may call it hung."""
    DEAF = "deaf"
    """It works on, but answers no ping."""


class FaultPoint(enum.Enum):
    NOW = "now"
    STEP = "step"
    """In the middle of the next step."""


class LoadFault(enum.Enum):
    FAIL = "fail"
    """A stage refuses to start."""
    CRASH = "crash"
    HANG = "hang"
    SPAWN = "spawn"
    """The process cannot even be started."""


class Fault(Struct, frozen=True):
    at_ns: int
    node: str
    kind: FaultKind
    point: FaultPoint = FaultPoint.NOW
    for_ns: int = 0
    """How long a pause lasts."""


class BadLoad(Struct, frozen=True):
    """The load of one incarnation goes wrong."""

    node: str
    incarnation: int
    fault: LoadFault
