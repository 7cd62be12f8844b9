"""What is sent on a WebSocket, by whichever task: whole frames, in the order of the calls.

Invariant: a client that takes nothing for `stall_s` is closed; until then at most the transport's buffer waits for it.
A frame that cannot have to wait costs no timer.
"""

from __future__ import annotations

import asyncio

import msgspec
from aiohttp import WSMsgType, web

from omnirt.gateway.outlet import ClientStalledError, break_off, is_calm


class SocketOut:
    def __init__(self, request: web.Request, socket: web.WebSocketResponse, stall_s: float) -> None:
        self._request = request
        self._socket = socket
        self._stall_s = stall_s
        self._loop = asyncio.get_running_loop()
        self.said_s = self._loop.time()
        """When the last frame was sent."""

    async def event(self, value: object) -> None:
        await self._send(msgspec.json.encode(value), WSMsgType.TEXT)

    async def audio(self, data: bytes) -> None:
        await self._send(data, WSMsgType.BINARY)

    async def _send(self, data: bytes, kind: WSMsgType) -> None:
        transport = self._request.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client is gone")
        self.said_s = self._loop.time()
        if is_calm(self._request, len(data)):
            await self._socket.send_frame(data, kind)
            return
        try:
            async with asyncio.timeout(self._stall_s):
                await self._socket.send_frame(data, kind)
        except TimeoutError:
            break_off(self._request, 0.0)
            raise ClientStalledError(f"the client took nothing for {self._stall_s} s") from None
