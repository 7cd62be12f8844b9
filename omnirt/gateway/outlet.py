"""A response under way, and how one ends that cannot be finished.

Invariant: a client that takes nothing for `stall_s` is closed; until then at most the transport's buffer waits for it.
A write that cannot have to wait costs no timer: under many streams that is 15 us of every 110 (bench/head.py).
"""

from __future__ import annotations

import asyncio
import socket
import struct

from aiohttp import HttpVersion11, web

RESET = struct.pack("ii", 1, 0)
"""Linger for no time: what closes then is a reset."""


CALM_BYTES = 60 << 10
"""A write that leaves fewer bytes than this in the transport cannot have to wait: it pauses at 64 KiB."""


class ClientStalledError(ConnectionError):
    """The client takes no bytes."""


class Outlet:
    """A response under way."""

    def __init__(self, request: web.Request, response: web.StreamResponse, stall_s: float) -> None:
        self._request = request
        self._stall_s = stall_s
        self.response = response

    @classmethod
    async def open(cls, request: web.Request, headers: dict[str, str], stall_s: float) -> Outlet:
        response = web.StreamResponse(headers=headers)
        if request.version < HttpVersion11:
            response.force_close()  # without chunks the end of the connection is the end of the answer
        await response.prepare(request)
        return cls(request, response, stall_s)

    async def write(self, data: bytes) -> None:
        if is_calm(self._request, len(data)):
            await self.response.write(data)
            return
        try:
            async with asyncio.timeout(self._stall_s):
                await self.response.write(data)
        except TimeoutError:
            break_off(self._request, 0.0)
            raise ClientStalledError(f"the client took nothing for {self._stall_s} s") from None


def is_calm(request: web.BaseRequest, nbytes: int) -> bool:
    """Whether so many bytes can be written without waiting for the client."""
    transport = request.transport
    return (
        transport is not None
        and not request.protocol.writing_paused
        and transport.get_write_buffer_size() + nbytes < CALM_BYTES
    )


def break_off(request: web.BaseRequest, flush_s: float) -> None:
    """End the connection so that the client sees a broken answer, not a short one.

    What was written still arrives if the client takes it within `flush_s`; the last chunk is never sent.
    """
    transport = request.transport
    if transport is None or transport.is_closing():
        return
    if flush_s and request.version >= HttpVersion11:
        transport.close()
        asyncio.get_running_loop().call_later(flush_s, transport.abort)
    else:  # without chunks only a reset tells a broken answer from a whole one
        connection = transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        transport.abort()
