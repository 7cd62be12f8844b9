"""The client's hold on a live request: what the gateway awaits, on top of the session's outlet."""

from __future__ import annotations

import asyncio

from omnirt.actors.session import Cancel, EndInput, Extend, Outlet, Read
from omnirt.errors import Cancelled, StageLost
from omnirt.runtime.actor import NearRef, System
from omnirt.session.service import Done, Event, Failed, Output
from omnirt.wire.payload import MODALITIES, Payload


class LiveRequest:
    """Implements `Live`. An output's arrays are the client's own: a slow client holds no slot of a link."""

    def __init__(
        self, public_id: str, session: NearRef, outlet: Outlet, modalities: dict[int, str], system: System
    ) -> None:
        """`modalities`: edge index -> modality."""
        self.public_id = public_id
        self._session = session
        self._outlet = outlet
        self._modalities = modalities
        self._system = system
        self._taken: int | None = None
        """The edge of the output the client works on: its credit goes back with the next call."""
        self._waiter: asyncio.Future[None] | None = None
        self._over = False
        outlet.wake = self._wake

    async def next(self) -> Event:
        assert not self._over, "the request has ended: there is no next event"
        self._give_back()
        while not self._outlet.events:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        edge, event = self._outlet.events.popleft()
        if isinstance(event, Done | Failed):
            self._over = True
            return event
        self._taken = edge
        event.own()
        modality = self._modalities[edge]
        return Output(modality, event.unpack(MODALITIES[modality]))

    def has_output(self) -> bool:
        events = self._outlet.events
        return bool(events) and events[0][0] >= 0

    def extend(self, modality: str, payload: Payload) -> None:
        self._ask(Extend(modality, payload))

    def end_input(self) -> None:
        self._ask(EndInput())

    def cancel(self, reason: str) -> None:
        self._session.tell(Cancel(reason))

    async def __aenter__(self) -> LiveRequest:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._give_back()
        self._outlet.abandon()
        if not self._over:
            self._over = True
            self.cancel("the client went away")

    def _ask(self, question: Extend | EndInput) -> None:
        try:
            self._system.call(self._session, question)
        except StageLost as error:
            raise Cancelled("the request is over") from error

    def _give_back(self) -> None:
        if self._taken is not None:
            edge, self._taken = self._taken, None
            self._session.tell(Read(edge))

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
