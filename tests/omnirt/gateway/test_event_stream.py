"""Events on the wire: when the headers leave, comments in silence, and failures before and after."""

import asyncio

import pytest
from aiohttp import ClientSession, web

from omnirt.errors import StageFailed
from omnirt.gateway.config import GatewayConfig
from omnirt.gateway.event_stream import EventStream, event_bytes
from omnirt.gateway.identity import REQUEST_ID
from omnirt.gateway.outlet import break_off
from omnirt.gateway.serve import bind, serve

COMMENT = b": keep-alive\n\n"


def failed(payload):
    return event_bytes({"failed": payload["code"], "of": payload["request_id"]})


def streamed(work, keepalive_s=60.0, begun=True):
    """(status, headers, body, whether it broke) of a stream that `work(events)` writes. `begun`: before it fails."""

    async def handler(request):
        request[REQUEST_ID] = "mine"
        stream = EventStream(request, GatewayConfig(keepalive_s=keepalive_s), failed)
        try:
            async with stream as events:
                return await work(events)
        except StageFailed as error:
            if begun:
                break_off(request, 1.0)
            return web.Response(status=500, text=error.message)

    async def run():
        app = web.Application()
        app.router.add_get("/", handler)
        listener = bind("127.0.0.1", 0)
        runner = await serve(app, listener, shutdown_s=0.2)
        try:
            return await read(listener.getsockname()[1])
        finally:
            await runner.cleanup()

    async def read(port):
        body = bytearray()
        async with ClientSession() as session, session.get(f"http://127.0.0.1:{port}/") as answer:
            try:
                async for piece in answer.content.iter_any():
                    body += piece
            except Exception:  # noqa: BLE001 - however the library says that it broke
                return answer.status, answer.headers, bytes(body), True
            return answer.status, answer.headers, bytes(body), False

    return asyncio.run(run())


def test_events_are_json_on_one_line():
    assert event_bytes({"a": "b\nc", "d": b"e"}) == b'data: {"a":"b\\nc","d":"ZQ=="}\n\n'


def test_events_arrive_in_order_and_end():
    async def work(events):
        await events.write(b"one")
        await events.write(b"two")
        return await events.end(b"three")

    status, headers, body, broke = streamed(work)
    assert (status, body, broke) == (200, b"onetwothree", False)
    assert headers["Content-Type"] == "text/event-stream; charset=utf-8"
    assert (headers["Cache-Control"], headers["X-Accel-Buffering"]) == ("no-cache", "no")


def test_more_than_a_buffer_holds_arrives_whole():
    async def work(events):
        for number in range(64):
            await events.write(bytes([number]) * (32 << 10))
        return await events.end(b"")

    assert streamed(work)[2] == b"".join(bytes([number]) * (32 << 10) for number in range(64))


@pytest.mark.parametrize("first", [b"", b"one"])
def test_silence_is_filled_with_comments(first):
    async def work(events):
        if first:
            await events.write(first)
        await asyncio.sleep(0.3)
        return await events.end(b"two")

    status, _, body, _ = streamed(work, keepalive_s=0.05)
    assert status == 200
    assert body.startswith(first + COMMENT)
    assert body.endswith(COMMENT + b"two")


def test_a_failure_after_the_headers_is_an_event_and_a_break():
    async def work(events):
        await events.write(b"one")
        await asyncio.sleep(0.02)
        raise StageFailed("oh no")

    _, _, body, broke = streamed(work)
    assert body == b"one" + event_bytes({"failed": "stage_failed", "of": "mine"})
    assert broke


def test_a_failure_before_the_headers_is_left_to_the_status():
    async def work(events):
        raise StageFailed("oh no")

    status, _, body, broke = streamed(work, begun=False)
    assert (status, body, broke) == (500, b"oh no", False)
