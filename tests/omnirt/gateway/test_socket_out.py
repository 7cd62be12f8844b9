"""Sending on a socket whose other end reads when it likes."""

import asyncio
from types import SimpleNamespace

import pytest
from aiohttp import WSMsgType

from omnirt.gateway.outlet import ClientStalledError
from omnirt.gateway.socket_out import SocketOut


class Transport:
    def __init__(self, waiting=0, closing=False):
        self.waiting, self.closing, self.aborted = waiting, closing, False

    def get_write_buffer_size(self):
        return self.waiting

    def is_closing(self):
        return self.closing

    def get_extra_info(self, name):
        return SimpleNamespace(setsockopt=lambda *args: None)

    def abort(self):
        self.aborted = True


class Socket:
    def __init__(self, stuck=False):
        self.frames, self.stuck = [], stuck

    async def send_frame(self, data, kind):
        if self.stuck:
            await asyncio.Event().wait()
        self.frames.append((kind, data))


def out_of(transport, socket, stall_s=0.05):
    request = SimpleNamespace(transport=transport, protocol=SimpleNamespace(writing_paused=False), version=(1, 1))
    return SocketOut(request, socket, stall_s)


def test_events_are_text_and_audio_is_bytes():
    socket = Socket()

    async def send():
        out = out_of(Transport(), socket)
        await out.event({"type": "error"})
        await out.audio(b"\x01\x02")

    asyncio.run(send())
    assert socket.frames == [(WSMsgType.TEXT, b'{"type":"error"}'), (WSMsgType.BINARY, b"\x01\x02")]


def test_a_client_that_takes_nothing_is_closed():
    transport = Transport(waiting=1 << 20)

    async def send():
        await out_of(transport, Socket(stuck=True)).audio(b"x")

    with pytest.raises(ClientStalledError):
        asyncio.run(send())
    assert transport.aborted


@pytest.mark.parametrize("transport", [None, Transport(closing=True)])
def test_a_client_that_is_gone_is_told_nothing(transport):
    socket = Socket()

    async def send():
        await out_of(transport, socket).audio(b"x")

    with pytest.raises(ConnectionError):
        asyncio.run(send())
    assert socket.frames == []
