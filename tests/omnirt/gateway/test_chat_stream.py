"""Chat streams on the wire: what travels together, breaks, keep-alives, leaving and stalled clients, many answers."""

import asyncio
import base64
import json
import socket

import numpy as np
import pytest

from omnirt.gateway.chat_stream import all_of
from omnirt.gateway.config import GatewayConfig
from omnirt.testing.live_gateway import LiveGateway
from omnirt.testing.scripted_chat import chat_plan, chatting
from omnirt.testing.scripted_service import (
    Fail,
    Hold,
    Report,
    Say,
    SayText,
    ScriptedService,
    Wait,
    chunks_of,
    tone,
)

SPOKEN = {"modalities": ["text", "audio"], "audio": {"voice": "heart", "format": "pcm16"}}
WORDS = [SayText(word) for word in ("one", " two", " three")]


@pytest.fixture(scope="module")
def shared():
    with LiveGateway(lambda: ScriptedService(**chatting())) as gateway:
        yield gateway


@pytest.fixture
def gateway(shared):
    service = shared.service
    script, together = service.script, service.together
    yield shared
    service.script, service.together = script, together


@pytest.fixture
def make(make_gateway):
    return lambda config=None, **options: make_gateway(config=config, **chatting(**options))


def request_bytes(version="HTTP/1.1", **fields):
    body = {"messages": [{"role": "user", "content": "hello there"}], "stream": True} | fields
    body = json.dumps(body).encode()
    head = f"POST /v1/chat/completions {version}\r\nHost: x\r\nContent-Type: application/json\r\n"
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


def writes_of(received):
    """The body's chunks: each was one write."""
    body = received.partition(b"\r\n\r\n")[2]
    writes = []
    while body:
        size, _, rest = body.partition(b"\r\n")
        if int(size, 16) == 0:
            break
        writes.append(rest[: int(size, 16)])
        body = rest[int(size, 16) + 2 :]
    return writes


def events_of(body):
    lines = [line for line in body.split(b"\n") if line]
    assert all(line.startswith(b"data: ") for line in lines)
    return [line[6:] if line[6:] == b"[DONE]" else json.loads(line[6:]) for line in lines]


def chat(gateway, **fields):
    """The events of a stream, and what ended it."""
    answer = gateway.ask("POST", "/v1/chat/completions", json.loads(request_bytes(**fields).partition(b"\r\n\r\n")[2]))
    assert answer.status == 200, answer.body
    *events, last = events_of(answer.body)
    assert last == b"[DONE]"
    return events


def deltas(events, index=0):
    found = [choice for event in events for choice in event["choices"] if choice["index"] == index]
    return [choice["delta"] for choice in found]


def said(events, index=0):
    return "".join(delta.get("content", "") for delta in deltas(events, index))


def idle(gateway):
    gateway.until(lambda: gateway.service.state().running == 0 and gateway.service.state().waiting == 0)


def test_the_order_of_a_spoken_answer(gateway):
    gateway.service.script = lambda _: [WORDS[0], Say(tone(0.05)), WORDS[1], Say(tone(0.05)), WORDS[2]]
    events = chat(gateway, **SPOKEN)
    kinds = [tuple(sorted({*delta, *(delta.get("audio") or {})} - {"audio"})) for delta in deltas(events)]
    assert kinds == [
        ("content", "role"),
        ("content", "id", "transcript"),
        ("data",),
        ("content", "transcript"),
        ("data",),
        ("content", "transcript"),
        ("expires_at",),
        (),
    ]
    assert [event["choices"][0]["finish_reason"] for event in events] == [None] * 7 + ["stop"]
    data = b"".join(base64.b64decode(delta["audio"].get("data", "")) for delta in deltas(events) if "audio" in delta)
    assert data == tone(0.05).tobytes() * 2


@pytest.mark.parametrize("stop", ["stop", "length"])
def test_the_finish_reason_is_what_a_stage_said(gateway, stop):
    gateway.service.script = lambda _: [*WORDS, Report("thinker", {"finish_reason": stop})]
    assert chat(gateway)[-1]["choices"][0]["finish_reason"] == stop


def test_an_empty_answer_is_complete_too(gateway):
    gateway.service.script = lambda _: []
    assert deltas(chat(gateway)) == [{"role": "assistant", "content": ""}, {}]
    spoken = deltas(chat(gateway, **SPOKEN))
    assert spoken[0]["role"] == "assistant"
    assert spoken[1]["audio"].keys() == {"id", "expires_at"}


def test_text_that_is_not_text_yet_is_not_sent(gateway):
    gateway.service.script = lambda _: [SayText(""), SayText("ü"), SayText("")]
    assert deltas(chat(gateway)) == [{"role": "assistant", "content": ""}, {"content": "ü"}, {}]


def test_what_is_ready_travels_in_one_write(gateway):
    gateway.service.together = True
    gateway.service.script = lambda _: [*WORDS, Wait(0.01), *WORDS, Say(tone(0.05)), *WORDS]
    with open_stream(gateway, **SPOKEN) as connection:
        writes = [events_of(write) for write in writes_of(read_until(connection, b"\r\n0\r\n\r\n"))]
    texts = [[delta.get("content", "<sound>") for delta in deltas(write)] for write in writes[:2]]
    assert texts == [["", "one two three"], ["one two three", "<sound>", "one two three"]]
    assert len(writes) == 3, "and the end"


def test_each_output_is_sent_when_it_is_made(gateway):
    gateway.service.script = lambda _: [step for word in WORDS for step in (word, Wait(0.02))]
    with open_stream(gateway) as connection:
        writes = writes_of(read_until(connection, b"\r\n0\r\n\r\n"))
    assert [said(events_of(write)) for write in writes[:3]] == ["one", " two", " three"]


def test_the_first_word_arrives_while_the_rest_is_not_made(gateway):
    gateway.service.script = lambda _: [WORDS[0], Hold()]
    with open_stream(gateway) as connection:
        assert b"HTTP/1.1 200" in read_until(connection, b'"content":"one"')
        assert gateway.service.state().running == 1
    idle(gateway)


def test_a_failure_before_the_first_word_keeps_its_status(gateway):
    gateway.service.script = lambda _: [Fail("stage_failed", "oh no", "thinker")]
    body = {"messages": [{"role": "user", "content": "x"}], "stream": True}
    answer = gateway.ask("POST", "/v1/chat/completions", body)
    assert (answer.status, answer.error()["code"], answer.error()["stage"]) == (500, "stage_failed", "thinker")


@pytest.mark.parametrize("fields", [{}, SPOKEN, {"n": 3}])
def test_a_failure_after_that_is_an_event_and_then_a_break(gateway, fields):
    gateway.service.script = lambda _: [WORDS[0], Wait(0.02), Fail("stage_failed", "oh no", "thinker")]
    with open_stream(gateway, **fields) as connection:
        received, _ = read_rest(connection)
    *_, last = events_of(writes_of(received)[-1])
    assert last["error"]["code"] == "stage_failed"
    assert last["error"]["message"] == "oh no"
    assert b"[DONE]" not in received
    assert b'"finish_reason":"' not in received
    assert not received.endswith(b"\r\n0\r\n\r\n"), "the end is not a clean one"
    idle(gateway)


def test_without_chunks_a_break_is_a_reset(gateway):
    gateway.service.script = lambda _: [WORDS[0], Wait(0.1), Fail("stage_lost")]
    with gateway.connect() as connection:
        connection.sendall(request_bytes("HTTP/1.0"))
        assert read_rest(connection)[1]


def test_silence_is_filled_with_comments(make):
    gateway = make(GatewayConfig(keepalive_s=0.05), script=lambda _: [Hold(), *WORDS, Wait(0.2), *WORDS])
    with open_stream(gateway) as connection:
        head = read_until(connection, b": keep-alive\n\n")
        for line in (b"HTTP/1.1 200", b"text/event-stream; charset=utf-8", b"no-cache", b"X-Accel-Buffering: no"):
            assert line in head
        assert b"data:" not in head
        gateway.call(gateway.service.release)
        rest = read_until(connection, b"\r\n0\r\n\r\n")
    assert rest.count(b"keep-alive") >= 2, "also in the middle"
    assert rest.count(b"[DONE]") == 1


def test_a_busy_stream_has_no_comments(make):
    gateway = make(GatewayConfig(keepalive_s=1.0), script=lambda _: [SayText("x"), Wait(0.05)] * 30)
    with open_stream(gateway) as connection:
        assert b"keep-alive" not in read_until(connection, b"\r\n0\r\n\r\n")


def test_a_failure_after_a_comment_is_an_event(make):
    gateway = make(GatewayConfig(keepalive_s=0.02), script=lambda _: [Wait(0.2), Fail("timeout")])
    with open_stream(gateway) as connection:
        received, _ = read_rest(connection)
    assert b'"code":"timeout"' in received
    assert not received.endswith(b"\r\n0\r\n\r\n")


@pytest.mark.parametrize("fields", [{}, SPOKEN, {"n": 4}, {"stream": False}, {"stream": False, "n": 2}])
@pytest.mark.parametrize("when", ["before the first byte", "mid-stream"])
def test_a_client_that_leaves_ends_its_requests(gateway, fields, when):
    gateway.service.script = lambda _: [*(WORDS if when == "mid-stream" else []), Hold()]
    answers = fields.get("n", 1)
    cancelled = gateway.service.cancelled
    connection = open_stream(gateway, **fields)
    gateway.until(lambda: gateway.service.state().running == answers)
    if when == "mid-stream" and fields.get("stream") is not False:
        connection.recv(1)
    connection.close()
    idle(gateway)
    assert gateway.service.cancelled == cancelled + answers


def test_many_instant_leavers_leave_nothing_behind(gateway):
    gateway.service.script = lambda _: [*WORDS, *chunks_of(tone(0.1)), Hold()]
    for index in range(100):
        connection = open_stream(gateway, **(SPOKEN if index % 2 else {"n": 1 + index % 3}))
        if index % 5 == 0:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset
        connection.close()
    idle(gateway)
    gateway.service.script = lambda _: WORDS
    assert said(chat(gateway)) == "one two three"


def test_a_client_that_takes_nothing_is_closed_and_holds_little(make):
    loud = [Say(tone(1.0)) for _ in range(2000)]
    gateway = make(GatewayConfig(stall_s=0.3), script=lambda _: iter(loud))
    with gateway.connect() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(request_bytes(**SPOKEN))
        idle_again = lambda: len(gateway.service.submitted) == 1 and gateway.service.state().running == 0  # noqa: E731
        gateway.until(idle_again)
    assert gateway.service.steps < len(loud), "the rest was never asked for"


def test_answers_side_by_side_are_told_apart(gateway):
    gateway.service.script = lambda submit: [
        step for word in WORDS for step in (SayText(f"{word.text}{submit.seed % 1000}"), Wait(0.005))
    ]
    events = chat(gateway, n=3, seed=7)
    seeds = [submit.seed % 1000 for submit in gateway.service.submitted[-3:]]
    assert seeds[0] == 7
    assert len(set(seeds)) == 3
    for index, seed in enumerate(seeds):
        assert said(events, index) == f"one{seed} two{seed} three{seed}"
        assert deltas(events, index)[0]["role"] == "assistant"
        reasons = [event["choices"][0]["finish_reason"] for event in events if event["choices"][0]["index"] == index]
        assert reasons[-1] == "stop"
        assert not any(reasons[:-1])
    order = [event["choices"][0]["index"] for event in events]
    assert order != sorted(order), "interleaved"


def test_usage_of_several_answers_is_theirs_together(gateway):
    events = chat(gateway, n=3, stream_options={"include_usage": True})
    assert events[-1]["usage"]["completion_tokens"] == 3 * 2
    assert events[-1]["usage"]["prompt_tokens"] == 12


def test_more_answers_than_there_is_room_for_are_refused_before_the_first_byte(make):
    gateway = make(plan=chat_plan(requests_max=1, queue_max=1), script=lambda _: [Hold()])
    body = {"messages": [{"role": "user", "content": "x"}], "stream": True, "n": 3}
    assert gateway.ask("POST", "/v1/chat/completions", body).status == 429
    idle(gateway)


def test_sound_that_nobody_asked_for_is_a_failure(gateway):
    gateway.service.script = lambda _: [Say(np.zeros(10, np.int16))]
    body = {"messages": [{"role": "user", "content": "x"}]}
    for stream in (True, False):
        assert gateway.ask("POST", "/v1/chat/completions", body | {"stream": stream}).error()["code"] == "stage_failed"


def test_the_first_failure_is_raised_when_the_others_are_over():
    ended = []

    async def good():
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("good")

    async def bad():
        await asyncio.sleep(0)
        raise ValueError("bad")

    async def run():
        with pytest.raises(ValueError, match="bad"):
            await all_of([good(), bad(), good()])
        return list(ended)

    assert asyncio.run(run()) == ["good", "good"]
