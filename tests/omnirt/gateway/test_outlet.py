"""Responses under way: who does not read, and breaks that cannot be taken for an end."""

import asyncio
import socket

import pytest
from aiohttp import web

from omnirt.gateway.outlet import ClientStalledError, Outlet, break_off
from omnirt.gateway.serve import bind, serve

REQUEST = b"GET / HTTP/1.%d\r\nHost: x\r\n\r\n"


async def served(handler, use):
    app = web.Application()
    app.router.add_get("/", handler)
    listener = bind("127.0.0.1", 0)
    runner = await serve(app, listener, shutdown_s=0.2)
    try:
        return await use(listener.getsockname()[1])
    finally:
        await runner.cleanup()


def received(handler, minor=1):
    """All that comes, and whether it ended with a reset."""

    async def use(port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(REQUEST % minor)
        data = bytearray()
        try:
            while piece := await reader.read(1 << 16):
                data += piece
                if data.endswith(b"0\r\n\r\n"):
                    return bytes(data), False
        except ConnectionResetError:
            return bytes(data), True
        finally:
            writer.close()
        return bytes(data), False

    return asyncio.run(served(handler, use))


async def whole(request):
    outlet = await Outlet.open(request, {"Content-Type": "text/plain"}, 5.0)
    await outlet.write(b"hello")
    return outlet.response


async def broken(request):
    response = await whole(request)
    break_off(request, 1.0)
    return response


@pytest.mark.parametrize("minor", [0, 1])
def test_a_whole_answer_has_an_end(minor):
    data, reset = received(whole, minor)
    assert b"hello" in data
    assert data.endswith(b"0\r\n\r\n") == (minor == 1)
    assert not reset


def test_a_broken_answer_has_what_was_written_and_no_end():
    data, _ = received(broken)
    assert b"hello" in data
    assert not data.endswith(b"0\r\n\r\n")


def test_without_chunks_a_break_is_a_reset():
    assert received(broken, minor=0)[1], "an orderly close would look like the end"


def test_a_client_that_takes_nothing_is_closed():
    caught = []

    async def endless(request):
        outlet = await Outlet.open(request, {}, 0.1)
        try:
            while True:
                await outlet.write(bytes(1 << 16))
        except ClientStalledError as error:
            caught.append(error)
            raise

    async def use(port):
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.sendall(REQUEST % 1)
            async with asyncio.timeout(30):
                while not caught:  # noqa: ASYNC110 - nothing announces it
                    await asyncio.sleep(0.01)

    asyncio.run(served(endless, use))
    assert "took nothing for 0.1 s" in str(caught[0])
