"""A response of server-sent events under way, for every surface that streams them.

    |<- headers with the first event, or with the first comment after `keepalive_s` of silence
    |   events ...
    |<- what failed, as an event, then a broken connection; or the end

Invariants: whatever fails before the headers keeps its status; what fails after is said in an event and never a clean
end. An event costs no task, no future and no timer: silence is watched by one timer per response, and a write is timed
only when it may have to wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Self

import msgspec
from aiohttp import web

from omnirt.gateway.config import GatewayConfig
from omnirt.gateway.errors import payload_of, refusal_of
from omnirt.gateway.identity import REQUEST_ID
from omnirt.gateway.outlet import Outlet

KEEPALIVE = b": keep-alive\n\n"
HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",
}


def event_bytes(value: object) -> bytes:
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


class EventStream:
    """Use as a context manager. `failed`: the event that says what failed, from the value of an envelope's `error`."""

    def __init__(
        self, request: web.Request, config: GatewayConfig, failed: Callable[[dict[str, object]], bytes]
    ) -> None:
        self._request = request
        self._config = config
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._outlet: Outlet | None = None
        self._opening = asyncio.Lock()
        self._quiet_since = self._loop.time()
        self._timer = self._loop.call_later(config.keepalive_s, self._watch)
        self._comment: asyncio.Task[None] | None = None

    async def write(self, data: bytes) -> None:
        outlet = self._outlet or await self._open()
        self._quiet_since = self._loop.time()
        await outlet.write(data)

    async def end(self, data: bytes) -> web.StreamResponse:
        """Write the last events."""
        await self.write(data)
        assert self._outlet is not None
        return self._outlet.response

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            has_begun = self._outlet is not None
            if has_begun and isinstance(error, Exception) and not isinstance(error, ConnectionError):
                await self.write(self._failed(payload_of(refusal_of(error), self._request[REQUEST_ID])))
        finally:
            self._stop()

    def _stop(self) -> None:
        self._timer.cancel()
        if self._comment is not None:
            self._comment.cancel()

    async def _open(self) -> Outlet:
        async with self._opening:  # a comment may be about to do the same
            if self._outlet is None:
                self._outlet = await Outlet.open(self._request, HEADERS, self._config.stall_s)
            return self._outlet

    def _watch(self) -> None:
        """Runs once in a while, not once per event: it looks when the last one was."""
        quiet_s = self._loop.time() - self._quiet_since
        if quiet_s >= self._config.keepalive_s:
            quiet_s = 0.0
            if not self._request.protocol.writing_paused:  # else bytes are waiting anyhow
                self._comment = self._loop.create_task(self._say_nothing())
        self._timer = self._loop.call_later(self._config.keepalive_s - quiet_s, self._watch)

    async def _say_nothing(self) -> None:
        try:
            await self.write(KEEPALIVE)
        except ConnectionError:  # the handler hears of it too
            return
