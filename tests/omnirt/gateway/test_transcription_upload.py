"""Recordings on their way in: forms and JSON, bounded, gone afterwards."""

import base64
import os
import time

import pytest

from omnirt.gateway import body
from omnirt.gateway.config import GatewayConfig
from omnirt.testing.forms import BOUNDARY, form, part
from omnirt.testing.recordings import wav
from omnirt.testing.scripted_chat import chat_facts, chat_plan, converse
from omnirt.testing.scripted_service import Hold

PATH = "/v1/audio/transcriptions"
WAV = wav(0.5)
LONG = wav(60.0)
"""1.9 MB: more than stays in memory."""


@pytest.fixture
def make(make_gateway):
    """make(config options...) -> a gateway that hears."""

    def start(script=converse, **options):
        return make_gateway(plan=chat_plan(), facts=chat_facts(), script=script, config=GatewayConfig(**options))

    return start


@pytest.fixture
def hearing(make):
    return make()


def send(gateway, *parts):
    body, headers = form(*parts)
    return gateway.ask("POST", PATH, body, headers)


def base64_of(data):
    return base64.b64encode(data).decode()


def open_files(directory):
    """Files of this process below `directory`, unlinked ones too."""
    names = []
    for number in os.listdir("/proc/self/fd"):
        try:
            names.append(os.readlink(f"/proc/self/fd/{number}"))
        except OSError:
            continue
    return [name for name in names if name.startswith(str(directory))]


def test_a_form_in_the_order_of_the_sdk_and_in_any_other(hearing):
    fields = [("model", "voice"), ("response_format", "text")]
    for parts in ([*fields, ("file", WAV, "a.wav")], [("file", WAV, "a.wav"), *fields]):
        answer = send(hearing, *parts)
        assert (answer.status, answer.body) == (200, b"0.50 seconds")


def test_json_with_the_recording_inside(hearing):
    for data in (base64_of(WAV), "data:audio/wav;base64," + base64_of(WAV), base64.urlsafe_b64encode(WAV).decode()):
        body = {"model": "voice", "language": "en", "input_audio": {"data": data, "format": "wav"}}
        answer = hearing.ask("POST", PATH, body)
        assert (answer.status, answer.json()["text"]) == (200, "0.50 seconds")
    assert hearing.service.submitted[-1].params == {"language": "en", "timestamps": "none"}


def test_fields_that_nobody_knows_are_ignored(hearing):
    answer = send(
        hearing, ("x", "1"), ("known_speaker_references[]", "A" * 200_000), ("file", WAV, "a"), ("y", b"\0", "y")
    )
    assert answer.status == 200


@pytest.mark.parametrize(
    ("parts", "param", "code"),
    [
        ([], "file", "missing_required_parameter"),
        ([("model", "voice")], "file", "missing_required_parameter"),
        ([("file", b"", "a.wav")], "file", "invalid_value"),
        ([("file", b"junk", "a.wav")], "file", "unsupported_media"),
        ([("audio", WAV, "a.wav")], "file", "missing_required_parameter"),
        ([("language", b"\xff\xfe"), ("file", WAV, "a.wav")], "language", "invalid_value"),
        ([("prompt", "a" * 100_000), ("file", WAV, "a.wav")], "prompt", "invalid_value"),
    ],
)
def test_forms_that_lack_something(hearing, parts, param, code):
    answer = send(hearing, *parts)
    assert (answer.status, answer.error()["param"], answer.error()["code"]) == (400, param, code)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input_audio": {"data": base64_of(WAV)[:-7]}}, "input_audio.data"),
        ({"input_audio": {"data": "!!!!"}}, "input_audio.data"),
        ({"input_audio": {"data": base64_of(WAV[:-400])}}, "input_audio.data"),
        ({"input_audio": {"data": base64_of(b"junk" * 9)}}, "input_audio.data"),
        ({"input_audio": "x"}, "input_audio"),
        ({}, "input_audio"),
        ([], None),
    ],
)
def test_json_that_lacks_something(hearing, body, param):
    answer = hearing.ask("POST", PATH, body)
    assert (answer.status, answer.error()["param"]) == (400, param)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nothing like a form",
        b"--" + BOUNDARY.encode() + b"\r\n",
        part("file", WAV, "a.wav"),
        part("file", WAV, "a.wav")[:200],
        b"--" + BOUNDARY.encode() + b"\r\n\r\nno headers\r\n--" + BOUNDARY.encode() + b"--\r\n",
    ],
)
def test_broken_forms_are_the_callers_mistake(hearing, body):
    answer = hearing.ask("POST", PATH, body, form()[1])
    assert answer.status == 400
    assert answer.error()["type"] == "invalid_request_error"


def test_a_form_without_its_boundary(hearing):
    assert hearing.ask("POST", PATH, b"x", {"Content-Type": "multipart/form-data"}).status == 400


@pytest.mark.parametrize("kind", ["audio/wav", "text/plain", "application/x-www-form-urlencoded"])
def test_other_bodies_are_415(hearing, kind):
    answer = hearing.ask("POST", PATH, WAV, {"Content-Type": kind})
    assert (answer.status, answer.error()["code"]) == (415, "unsupported_media_type")
    assert "multipart/form-data" in answer.error()["message"]


def test_too_many_parts(hearing):
    assert send(hearing, *[("language", "en")] * 300).status == 400


def test_a_file_over_the_limit_is_413_whether_its_length_is_told_or_not(make, tmp_path):
    gateway = make(recording_bytes_max=1 << 20, uploads_dir=str(tmp_path))
    answer = send(gateway, ("model", "voice"), ("file", bytes(32 << 20), "a.wav"))
    assert (answer.status, answer.error()["code"]) == (413, "request_too_large")
    body, headers = form(("model", "voice"), ("file", bytes(2 << 20), "a.wav"))
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: {headers['Content-Type']}\r\n"
    chunks = (
        b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in (body[:700_000], body[700_000:])) + b"0\r\n\r\n"
    )
    received = gateway.exchange(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n" + chunks)
    assert received.startswith(b"HTTP/1.1 413")
    assert b"request_too_large" in received
    assert not open_files(tmp_path)


def test_json_over_the_limit_is_413(make):
    gateway = make(recording_json_bytes_max=1000)
    assert gateway.ask("POST", PATH, {"input_audio": {"data": base64_of(WAV)}}).status == 413


def test_a_large_file_is_on_disk_and_gone_afterwards(make, tmp_path):
    gateway = make(script=lambda submit: [Hold(), *converse(submit)], uploads_dir=str(tmp_path))
    for leave in (False, True):
        body, headers = form(("model", "voice"), ("file", LONG, "a.wav"))
        head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
        head += f"Content-Type: {headers['Content-Type']}\r\n\r\n"
        with gateway.connect() as connection:
            connection.sendall(head.encode() + body[:-1000])
            gateway.until(lambda: len(open_files(tmp_path)) == 1)
            assert os.listdir(tmp_path) == []
            if not leave:
                connection.sendall(body[-1000:])
                gateway.until(lambda: gateway.service.submitted)
                gateway.until(lambda: not open_files(tmp_path))
        gateway.until(lambda: not open_files(tmp_path))
    gateway.until(lambda: gateway.service.state().running == 0)


def test_all_uploads_together_are_bounded(make):
    gateway = make(uploads_bytes_max=1000, uploads_json_bytes_max=1000)
    for answer in (
        send(gateway, ("file", WAV, "a")),
        gateway.ask("POST", PATH, {"input_audio": {"data": base64_of(WAV)}}),
    ):
        assert (answer.status, answer.error()["code"]) == (429, "queue_full")
        assert "Retry-After".lower() in answer.headers
    assert gateway.ask("POST", PATH, {"input_audio": {"data": "AAAA"}}).status == 400, "what was taken is given back"


def test_an_unknown_model_is_refused_before_the_file_is_read(hearing):
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\nConnection: close\r\n"
    head += f"Content-Type: {form()[1]['Content-Type']}\r\n\r\n"
    with hearing.connect() as connection:
        connection.sendall(head.encode() + part("model", "other") + part("file", bytes(100_000), "a.wav"))
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 404")


def test_a_body_that_stops_is_408(make, monkeypatch):
    monkeypatch.setattr(body, "SILENCE_S", 0.2)
    gateway = make()
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n"
    head += f"Content-Type: {form()[1]['Content-Type']}\r\n\r\n"
    with gateway.connect() as connection:
        started = time.monotonic()  # before: the server may count from the first byte on
        connection.sendall(head.encode() + part("file", WAV, "a.wav")[:1000])
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 408")
        assert time.monotonic() - started >= 0.2
