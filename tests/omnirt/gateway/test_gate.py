"""What surrounds every handler, over the wire."""

import logging

import pytest

from omnirt.gateway.config import GatewayConfig
from omnirt.log import KeyValueFormatter
from omnirt.testing.scripted_service import Hold, chunks_of, tone

PAGE = {"Origin": "https://page.example"}
PREFLIGHT = PAGE | {
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization,x-stainless-lang",
}


@pytest.fixture
def keys_file(tmp_path):
    path = tmp_path / "keys"
    path.write_text("right\n")
    path.chmod(0o600)
    return str(path)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/models", 200),
        ("GET", "/health", 200),
        ("GET", "/nope", 404),
        ("GET", "/v1/audio/speech", 405),
        ("POST", "/v1/audio/speech", 400),
        ("POST", "/v1/chat/completions", 400),
        ("OPTIONS", "/v1/audio/speech", 405),
    ],
)
def test_every_answer_has_the_callers_name_for_it(gateway, method, path, status):
    body = b"{" if method == "POST" else None
    headers = {"X-Request-Id": "mine", "Content-Type": "application/json"} | PAGE
    answer = gateway.ask(method, path, body, headers)
    assert answer.status == status
    assert answer.headers["x-request-id"] == "mine"
    assert answer.headers["access-control-allow-origin"] == "*"
    if status >= 400:
        assert set(answer.error()) >= {"message", "type", "param", "code"}
        assert answer.error()["request_id"] == "mine"
    if status == 405:
        assert answer.headers["allow"] == "POST"


@pytest.mark.parametrize("stream", [None, True, False])
def test_streams_have_it_too(gateway, stream):
    answer = gateway.speak(stream=stream, headers={"X-Request-Id": "mine"} | PAGE)
    assert answer.headers["x-request-id"] == "mine"
    assert answer.headers["access-control-allow-origin"] == "*"
    assert "x-sample-rate" in answer.headers["access-control-expose-headers"]
    assert int(answer.headers["openai-processing-ms"]) >= 0


@pytest.mark.parametrize("name", [b"", b"x" * 10_000, "é".encode(), b"a\tb"])
def test_odd_names_are_replaced_and_never_grow_the_answer(gateway, name):
    request = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Request-Id: " + name + b"\r\n\r\n"
    received = gateway.exchange(request)
    assert received.startswith(b"HTTP/1.1 200")
    assert b"x-request-id: req_" in received
    assert len(received) < 1000


def test_a_name_cannot_smuggle_a_header(gateway):
    received = gateway.exchange(
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Request-Id: a\r\n Evil: b\r\n\r\n"
    )
    assert b"\r\nEvil:" not in received


def test_preflight_is_answered_for_any_route_also_with_keys(make_gateway, keys_file):
    gateway = make_gateway(config=GatewayConfig(keys_file=keys_file))
    for path in ("/v1/audio/speech", "/v1/chat/completions", "/v1/not/there"):
        answer = gateway.ask("OPTIONS", path, headers=PREFLIGHT)
        assert answer.status == 204
        assert answer.headers["access-control-allow-headers"] == "authorization,x-stainless-lang"
        assert answer.headers["access-control-allow-origin"] == "*"


def test_configured_origins_are_let_in_and_others_are_not(make_gateway):
    gateway = make_gateway(config=GatewayConfig(cors_origins=("https://page.example",)))
    assert gateway.ask("OPTIONS", "/v1/models", headers=PREFLIGHT).status == 204
    stranger = PREFLIGHT | {"Origin": "https://other.example"}
    answer = gateway.ask("OPTIONS", "/v1/models", headers=stranger)
    assert answer.status == 403
    assert "access-control-allow-origin" not in answer.headers
    assert "access-control-allow-origin" not in gateway.ask("GET", "/v1/models", headers=stranger).headers
    assert gateway.ask("GET", "/v1/models", headers=PAGE).headers["access-control-allow-origin"] == PAGE["Origin"]


def test_keys_are_asked_for_before_any_work(make_gateway, keys_file):
    gateway = make_gateway(config=GatewayConfig(keys_file=keys_file))
    assert gateway.speak().status == 401
    wrong = gateway.speak(headers={"Authorization": "Bearer wrong"} | PAGE)
    assert (wrong.status, wrong.error()["code"]) == (401, "invalid_api_key")
    assert wrong.headers["access-control-allow-origin"] == "*"
    assert gateway.service.submitted == []
    assert gateway.speak(headers={"Authorization": "Bearer right"}).status == 200
    assert gateway.service.submitted[0].key.startswith("key_")
    assert gateway.ask("GET", "/health").status == 200
    assert gateway.ask("GET", "/v1/models").status == 401


def test_a_websocket_without_a_key_is_never_upgraded(make_gateway, keys_file):
    gateway = make_gateway(config=GatewayConfig(keys_file=keys_file))
    upgrade = (
        b"GET /v1/realtime HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    )
    with gateway.connect() as connection:
        connection.sendall(upgrade + b"\r\n")
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 401")
    with gateway.connect() as connection:
        connection.sendall(upgrade + b"Sec-WebSocket-Protocol: realtime, openai-insecure-api-key.right\r\n\r\n")
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 501"), "the key is right, the pipeline has no such thing"


@pytest.fixture
def written():
    """Lines of the gateway's log, as an operator sees them."""
    lines = []

    class Lines(logging.Handler):
        def emit(self, record):
            lines.append(KeyValueFormatter("head").format(record))

    handler, logger = Lines(), logging.getLogger("omnirt.gateway")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield lines
    logger.removeHandler(handler)
    logger.setLevel(level)


def test_keys_never_reach_the_log(make_gateway, keys_file, written):
    gateway = make_gateway(config=GatewayConfig(keys_file=keys_file))
    gateway.speak(headers={"Authorization": "Bearer right"})
    gateway.speak(headers={"Authorization": "Bearer nearly-right"})
    gateway.until(lambda: len(written) == 2)
    assert not any("right" in line for line in written)


def test_the_log_names_each_request_as_the_client_does(gateway, written):
    gateway.speak(headers={"X-Request-Id": "find-me"})
    gateway.until(lambda: any('msg="POST speech" request=find-me status=200 took_ms=' in line for line in written))


def test_a_bug_is_a_plain_500_and_the_log_has_the_rest(gateway, written):
    def broken(_):
        raise RuntimeError("secret detail")

    gateway.service.script = broken
    answer = gateway.speak()
    assert (answer.status, answer.error()["code"]) == (500, "internal_error")
    assert b"secret" not in answer.body
    assert any("secret detail" in line and "trace=" in line for line in written)


def test_a_draining_server_takes_nothing_new_and_finishes_what_it_has(make_gateway):
    gateway = make_gateway(script=lambda _: [*chunks_of(tone(0.1)), Hold(), *chunks_of(tone(0.1))])
    with gateway.connect() as connection:
        body = b'{"input": "hi", "response_format": "pcm"}'
        head = b"POST /v1/audio/speech HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
        connection.sendall(head % len(body) + body)
        received = connection.recv(1 << 16)
        gateway.service.state_name = "draining"
        for method, path in (("GET", "/v1/models"), ("POST", "/v1/audio/speech"), ("GET", "/v1/realtime")):
            answer = gateway.ask(method, path)
            assert (answer.status, answer.error()["code"]) == (503, "shutting_down")
            assert answer.headers["connection"] == "close"
            assert int(answer.headers["retry-after"]) > 0
        assert gateway.ask("GET", "/health").status == 503
        assert gateway.ask("GET", "/healthz").status == 200
        assert gateway.ask("GET", "/metrics").status == 200
        gateway.call(gateway.service.release)
        while b"\r\n0\r\n\r\n" not in received:
            received += connection.recv(1 << 16)


def test_a_loading_server_says_what_it_waits_for(gateway):
    gateway.service.state_name = "loading"
    answer = gateway.speak()
    assert (answer.status, answer.error()["code"]) == (503, "model_loading")
    assert "voice" in answer.error()["message"]
    assert answer.headers["retry-after"] == "2"
    assert "connection" not in answer.headers
    assert gateway.ask("GET", "/v1/models").status == 200
    assert gateway.ask("GET", "/v1/audio/voices").status == 503


def test_a_dead_engine_is_named(gateway):
    gateway.service.state_name = "unavailable"
    answer = gateway.speak()
    assert (answer.status, answer.error()["code"], answer.error()["stage"]) == (503, "engine_dead", "voice")
    assert "retry-after" in answer.headers


def test_an_expectation_that_nobody_knows_is_417_with_a_name(gateway):
    head = b"POST /v1/audio/speech HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Request-Id: mine\r\n"
    received = gateway.exchange(head + b"Expect: 200-maybe\r\nContent-Length: 2\r\n\r\n{}")
    assert received.startswith(b"HTTP/1.1 417")
    assert b"x-request-id: mine" in received


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x16\x03\x01\x02\x00\x01\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer sk-secret\x00\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\nX: sk-secret" + b"x" * 70_000 + b"\r\n\r\n",
    ],
)
def test_what_is_not_http_is_at_most_a_line_of_news(gateway, caplog, request_bytes):
    caplog.set_level(logging.INFO, "omnirt.gateway.http")
    assert b" 400 " in gateway.exchange(request_bytes).partition(b"\r\n")[0]
    for record in caplog.records:
        line = KeyValueFormatter("head").format(record)
        assert record.levelno == logging.INFO
        assert "trace" not in line
        assert "secret" not in line


@pytest.mark.parametrize("path", ["/health", "/metrics", "/v1/models", "/v1/audio/voices", "/v1/models/speech"])
def test_what_can_be_got_can_be_asked_for_its_head(gateway, path):
    answer = gateway.ask("HEAD", path)
    assert (answer.status, answer.body) == (200, b"")


def test_an_unknown_route_is_logged_by_its_path_and_counted_without(gateway, caplog):
    caplog.set_level(logging.INFO, "omnirt.gateway")
    answer = gateway.ask("GET", "/v1/v1/nope?key=secret")
    assert (answer.status, answer.error()["message"]) == (
        404, "There is no GET /v1/v1/nope here. The base URL may contain /v1 twice.",
    )  # fmt: skip
    said = [record.getMessage() for record in caplog.records if record.name == "omnirt.gateway"]
    assert said == ["GET /v1/v1/nope"]
    figures = gateway.ask("GET", "/metrics").body.decode()
    assert 'omnirt_http_requests_total{route="none",status="404"}' in figures
    assert "nope" not in figures
