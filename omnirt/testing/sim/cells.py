"""The production cells of a simulated node, watched."""

from __future__ import annotations

from omnirt.runtime.cells import Cells, NodeWorld
from omnirt.testing.sim.observer import Observer
from omnirt.wire.messages import Boot, Record
from omnirt.wire.payload import Payload


class Died(BaseException):
    """Raised where a process ends itself; ends the callback it is in."""


class SimCells(Cells):
    """The production cells; what they send is watched."""

    def __init__(self, boot: Boot, node: NodeWorld, observer: Observer) -> None:
        super().__init__(boot, node)
        self._observer = observer

    def send(self, process: str, record: Record, payload: Payload | None) -> None:
        self._observer.leaves(self.process, record)
        super().send(process, record, payload)
