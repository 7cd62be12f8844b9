"""Reading JSON bodies, over the wire."""

import gzip

import pytest

from omnirt.gateway import body
from omnirt.gateway.config import GatewayConfig

PATH = "/v1/audio/speech"
HEAD = b"POST /v1/audio/speech HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize("body", [b"{", b"", b"\xff\xfe", b"{'a': 1}", b"[" * 100_000, b'{"input": NaN}'])
def test_what_is_not_json_is_400(gateway, body):
    answer = gateway.ask("POST", PATH, body, {"Content-Type": "application/json"})
    assert (answer.status, answer.error()["code"]) == (400, "invalid_json")
    assert answer.headers["content-type"].startswith("application/json")


@pytest.mark.parametrize("kind", ["application/json", "application/json; charset=utf-8", "application/vnd.api+json"])
def test_json_content_types_are_taken(gateway, kind):
    assert gateway.ask("POST", PATH, b'{"input": "hi"}', {"Content-Type": kind}).status == 200


def test_a_missing_content_type_is_taken_for_json(gateway):
    request = (
        b'POST /v1/audio/speech HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 15\r\n\r\n{"input": "hi"}'
    )
    assert gateway.exchange(request).startswith(b"HTTP/1.1 200")


def test_other_content_types_are_415(gateway):
    answer = gateway.ask("POST", PATH, b"input=hi", {"Content-Type": "application/x-www-form-urlencoded"})
    assert (answer.status, answer.error()["code"]) == (415, "unsupported_media_type")


def test_a_body_that_says_it_is_too_long_is_refused_unread(make_gateway):
    gateway = make_gateway(config=GatewayConfig(json_bytes_max=1000))
    with gateway.connect() as connection:
        connection.sendall(HEAD + b"Content-Length: 9999999\r\n\r\n")
        received = connection.recv(1 << 16)
    assert received.startswith(b"HTTP/1.1 413")
    assert b"Connection: close" in received
    assert b"request_too_large" in received


def test_a_body_that_turns_out_too_long_is_refused_midway(make_gateway):
    gateway = make_gateway(config=GatewayConfig(json_bytes_max=1000))
    with gateway.connect() as connection:
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n800\r\n" + b"x" * 2048 + b"\r\n")
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 413")


def test_lone_surrogates_do_not_reach_the_stages(gateway):
    answer = gateway.ask("POST", PATH, b'{"input": "a\\ud800b"}', {"Content-Type": "application/json"})
    assert answer.status == 400


@pytest.mark.parametrize(
    ("coding", "sent"), [("gzip", gzip.compress(b'{"input": "hi"}')), ("gzip", b"no gzip"), ("br", b"{}"), ("x", b"{}")]
)
def test_a_compressed_body_is_refused_whatever_it_holds(gateway, coding, sent):
    answer = gateway.ask("POST", PATH, sent, {"Content-Type": "application/json", "Content-Encoding": coding})
    assert (answer.status, answer.error()["code"]) == (415, "unsupported_media_type")
    assert answer.headers["accept-encoding"] == "identity"


def test_identity_is_no_compression(gateway):
    headers = {"Content-Type": "application/json", "Content-Encoding": "identity"}
    assert gateway.ask("POST", PATH, b'{"input": "hi"}', headers).status == 200


@pytest.mark.parametrize("sent", [b"Content-Length: 100\r\n\r\n{", b"Transfer-Encoding: chunked\r\n\r\n2\r\n{ \r\n"])
def test_a_body_that_stops_is_not_waited_for_for_ever(gateway, monkeypatch, sent):
    monkeypatch.setattr(body, "SILENCE_S", 0.05)
    received = gateway.exchange(HEAD + sent)
    assert received.startswith(b"HTTP/1.1 408")
    assert b'"code":"request_timeout"' in received


def test_chunks_that_go_wrong_midway_are_the_clients_mistake(gateway, monkeypatch):
    monkeypatch.setattr(body, "SILENCE_S", 0.5)
    with gateway.connect() as connection:
        connection.sendall(HEAD + b"Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n")
        assert b"100 Continue" in connection.recv(1 << 16)  # the handler waits for the body
        connection.sendall(b"2\r\n{ \r\nnonsense\r\n")
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 4")


def test_a_whole_body_is_read_without_a_timer_and_one_in_parts_with_one(gateway, monkeypatch):
    timers = []
    timeout = body.asyncio.timeout
    monkeypatch.setattr(body.asyncio, "timeout", lambda delay: (timers.append(delay), timeout(delay))[1])
    text = b'{"input": "hi"}'
    head = HEAD + b"Connection: close\r\nContent-Length: 15\r\n\r\n"
    assert gateway.exchange(head + text).startswith(b"HTTP/1.1 200")
    assert body.SILENCE_S not in timers
    with gateway.connect() as connection:
        connection.sendall(head + text[:5])
        gateway.until(lambda: body.SILENCE_S in timers)
        connection.sendall(text[5:])
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200")
