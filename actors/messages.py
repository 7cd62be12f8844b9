"""What the orchestrator is told and asked, and what it needs of the head around it."""

from __future__ import annotations

from random import Random
from typing import Any, Protocol

from msgspec import Struct

from omnirt.actors.session import Outlet
from omnirt.clock import Clock
from omnirt.errors import OmnirtError
from omnirt.ids import Fence
from omnirt.runtime.actor import NearRef
from omnirt.runtime.ref import Ref
from omnirt.session.service import Done, Failed, Submit


class Admit(Struct, frozen=True):
    """Question: run this. Answered with `Admitted`, or refused."""

    submit: Submit


class Admitted(Struct, frozen=True):
    request: int
    session: NearRef
    outlet: Outlet


class CancelPublic(Struct, frozen=True):
    """Question: end every request a client knows by this id. Answered `cancelled`, `finished` or `unknown`."""

    public_id: str


class NodeUp(Struct, frozen=True):
    node: str
    ref: Ref


class NodeDown(Struct, frozen=True):
    """`in_step`: the slots of the requests in the step that was running when it died."""

    node: str
    reason: str
    in_step: tuple[int, ...] = ()


class NodeClosed(Struct, frozen=True):
    """The node has given up what ran there under this fence."""

    node: str
    fence: Fence


class GiveUp(Struct, frozen=True):
    """A stage will not come back."""

    reason: str


class StopAdmitting(Struct, frozen=True):
    """The drain begins: refuse what comes, finish what runs."""


class EndAll(Struct, frozen=True):
    """There is no time left: whatever still runs or waits ends with this error."""

    error: OmnirtError


class Counts(Struct, frozen=True):
    """Answer to the question `count`."""

    running: int
    waiting: int


class OrchestratorWorld(Protocol):
    """What the orchestrator needs of the head around it."""

    clock: Clock
    random: Random

    def raise_epoch(self, slot: int) -> int: ...

    def send(self, process: str, record: Any, payload: Any) -> None: ...

    def outstanding(self, node: str, has_work: bool) -> None:
        """Called when a node gets its first open request, and when it loses its last."""
        ...

    def ended(self, submit: Submit, outcome: Done | Failed, started_ns: int, attempts: int) -> None: ...

    def drained(self) -> None:
        """Called once after StopAdmitting, when nothing runs any more."""
        ...
