"""Streams on the wire: first bytes, breaks, keep-alives, leaving and stalled clients."""

import json
import socket

import numpy as np
import pytest

from omnirt.gateway.config import GatewayConfig
from omnirt.testing.scripted_service import Fail, Hold, Say, Wait, chunks_of, tone


def request_bytes(version="HTTP/1.1", **fields):
    body = json.dumps({"input": "hello", "response_format": "pcm", **fields}).encode()
    head = f"POST /v1/audio/speech {version}\r\nHost: x\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def open_stream(gateway, **fields):
    connection = gateway.connect()
    connection.sendall(request_bytes(**fields))
    return connection


def read_until(connection, marker):
    received = bytearray()
    while marker not in received:
        data = connection.recv(1 << 16)
        assert data, f"closed before {marker!r}: {bytes(received)!r}"
        received += data
    return bytes(received)


def read_rest(connection):
    received = bytearray()
    while True:
        try:
            data = connection.recv(1 << 16)
        except ConnectionResetError:
            return bytes(received), True
        if not data:
            return bytes(received), False
        received += data


def idle(gateway):
    gateway.until(lambda: gateway.service.state().running == 0 and gateway.service.state().waiting == 0)


@pytest.mark.parametrize("format", ["pcm", "wav", "mp3", "opus", "aac", "flac"])
def test_the_first_audio_arrives_while_the_rest_is_not_made(gateway, format):
    gateway.service.script = lambda _: [*chunks_of(tone(0.5)), Hold()]
    with open_stream(gateway, response_format=format) as connection:
        head = read_until(connection, b"\r\n\r\n")
        assert b"chunked" in head.lower()
        received = head.partition(b"\r\n\r\n")[2] or connection.recv(1 << 16)
        assert received
        assert gateway.service.state().running == 1
    idle(gateway)


def test_chunks_are_sent_one_by_one(make_gateway):
    gateway = make_gateway(script=lambda _: [Say(tone(0.05)), Wait(0.05), Say(tone(0.05)), Wait(0.05), Say(tone(0.05))])
    with open_stream(gateway) as connection:
        whole = read_until(connection, b"\r\n0\r\n\r\n")
    assert whole.count(b"\r\n960\r\n") == 3, "2400 bytes each, hexadecimal"


def test_a_failure_after_the_first_byte_breaks_the_audio(gateway):
    gateway.service.script = lambda _: [Say(tone(0.05)), Fail("stage_lost")]
    with open_stream(gateway) as connection:
        received, _ = read_rest(connection)
    assert tone(0.05).tobytes() in received, "what was made arrives"
    assert not received.endswith(b"\r\n0\r\n\r\n"), "and the end is not a clean one"
    idle(gateway)


def test_a_failure_on_an_event_stream_is_an_event_and_then_a_break(gateway):
    gateway.service.script = lambda _: [Say(tone(0.05)), Fail("stage_failed", "oh no", "voice")]
    with open_stream(gateway, stream_format="sse") as connection:
        received, _ = read_rest(connection)
    assert b'"type":"speech.audio.error"' in received
    assert b'"code":"stage_failed"' in received
    assert b"speech.audio.done" not in received
    assert not received.endswith(b"\r\n0\r\n\r\n")


@pytest.mark.parametrize("also", [b"", b"Connection: keep-alive\r\n"])
def test_an_old_client_gets_the_audio_without_chunks_and_then_the_end(gateway, also):
    received = gateway.exchange(request_bytes("HTTP/1.0").replace(b"\r\n\r\n", b"\r\n" + also + b"\r\n", 1))
    head, _, body = received.partition(b"\r\n\r\n")
    assert b"chunked" not in head.lower()
    assert len(body) == 2 * round(24_000 * 0.25)


def test_event_streams_are_kept_alive_with_comments(make_gateway):
    gateway = make_gateway(config=GatewayConfig(keepalive_s=0.05), script=lambda _: [Hold(), Say(tone(0.05)), Hold()])
    with open_stream(gateway, stream_format="sse") as connection:
        head = read_until(connection, b": keep-alive\n\n")
        assert b"HTTP/1.1 200" in head
        for line in (b"text/event-stream; charset=utf-8", b"no-cache", b"X-Accel-Buffering: no"):
            assert line in head
        assert b"Content-Encoding" not in head
        gateway.call(gateway.service.release)
        rest = read_until(connection, b"speech.audio.done")
    assert b'"type":"speech.audio.delta"' in rest


def test_a_failure_after_a_keepalive_is_an_event(make_gateway):
    gateway = make_gateway(config=GatewayConfig(keepalive_s=0.02), script=lambda _: [Wait(0.2), Fail("timeout")])
    with open_stream(gateway, stream_format="sse") as connection:
        received, _ = read_rest(connection)
    assert b'"code":"timeout"' in received


def test_raw_audio_waits_for_its_status_however_long_that_takes(make_gateway):
    gateway = make_gateway(config=GatewayConfig(keepalive_s=0.02), script=lambda _: [Wait(0.2), Fail("timeout")])
    assert gateway.speak().status == 504


@pytest.mark.parametrize("fields", [{}, {"stream": True}, {"stream": False}, {"response_format": "mp3"}])
@pytest.mark.parametrize("when", ["before the first byte", "mid-stream"])
def test_a_client_that_leaves_ends_its_request(gateway, fields, when):
    gateway.service.script = lambda _: [*(chunks_of(tone(0.5)) if when == "mid-stream" else []), Hold()]
    connection = open_stream(gateway, **fields)
    gateway.until(lambda: gateway.service.state().running == 1)
    if when == "mid-stream" and fields.get("stream") is not False:
        connection.recv(1)
    cancelled = gateway.service.cancelled
    connection.close()
    idle(gateway)
    assert gateway.service.cancelled == cancelled + 1


def test_many_instant_leavers_leave_nothing_behind(gateway):
    gateway.service.script = lambda _: [*chunks_of(tone(0.1)), Hold()]
    for index in range(200):
        connection = open_stream(gateway, response_format="mp3" if index % 2 else "pcm", stream=index % 3 == 0)
        if index % 5 == 0:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset
        connection.close()
    idle(gateway)
    gateway.service.script = lambda _: chunks_of(tone(0.1))
    assert gateway.speak().status == 200


def test_a_client_that_does_not_read_is_closed_and_bounded(make_gateway):
    endless = Say(np.zeros(24_000, np.int16))

    def script(_):
        while True:
            yield endless

    gateway = make_gateway(config=GatewayConfig(stall_s=0.3), script=script)
    with gateway.connect() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(request_bytes())
        gateway.until(lambda: gateway.service.submitted)
        idle(gateway)
        made = gateway.service.steps
        assert made * 48_000 < 32 << 20, "what nobody reads is not made"
        read_rest(connection)
    gateway.service.script = lambda _: chunks_of(tone(0.1))
    assert gateway.speak().status == 200


def test_a_stalled_client_does_not_slow_the_others(make_gateway):
    endless = Say(np.zeros(24_000, np.int16))
    gateway = make_gateway(config=GatewayConfig(stall_s=30.0), script=lambda _: iter(lambda: endless, None))
    with gateway.connect() as stalled:
        stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stalled.sendall(request_bytes())
        gateway.until(lambda: gateway.service.steps > 3)
        gateway.service.script = lambda _: chunks_of(tone(0.1))
        assert all(gateway.speak().status == 200 for _ in range(5))
        assert gateway.service.state().running == 1
    idle(gateway)


def test_cancel_from_outside_is_a_terminal_for_the_client(gateway):
    gateway.service.script = lambda _: [Say(tone(0.05)), Hold()]
    connection = gateway.connect()
    body = request_bytes(stream_format="sse").replace(b"Host: x", b"Host: x\r\nX-Request-Id: stop-me")
    connection.sendall(body)
    read_until(connection, b"speech.audio.delta")
    assert gateway.ask("POST", "/v1/omnirt/requests/stop-me/cancel").json()["status"] == "cancelled"
    received, _ = read_rest(connection)
    assert received.count(b"speech.audio.error") == 1
    assert b'"code":"cancelled"' in received
    connection.close()
    idle(gateway)
