"""The routes as a whole."""

import pytest

from omnirt.gateway.app import build
from omnirt.gateway.config import GatewayConfig
from omnirt.testing.live_gateway import LiveGateway
from omnirt.testing.scripted_chat import chatting
from omnirt.testing.scripted_service import ScriptedService

PAGE = {"Origin": "https://page.example"}
PREFLIGHT = PAGE | {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,x-mine"}
KEY = {"Authorization": "Bearer right"}
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
ENVELOPE = {"message", "type", "param", "code", "request_id"}


def routes():
    app = build(ScriptedService(), GatewayConfig())
    return [(route.method, route.resource.canonical.replace("{slash}", "/")) for route in app.router.routes()]


def paths():
    """Path -> the methods that it takes."""
    found = {}
    for method, path in routes():
        found.setdefault(path.replace("{id}", "mine"), set()).add(method)
    return found


@pytest.fixture(scope="module")
def open_gateway():
    with LiveGateway(lambda: ScriptedService(**chatting())) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def closed_gateway(tmp_path_factory):
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text("right\n")
    keys.chmod(0o600)
    config = GatewayConfig(keys_file=str(keys), public_metrics=False)
    with LiveGateway(lambda: ScriptedService(**chatting()), config) as gateway:
        yield gateway


def test_every_route_is_named_for_logs_and_metrics():
    app = build(ScriptedService(), GatewayConfig())
    assert all(resource.name for resource in app.router.resources())


def test_everything_that_is_not_operations_lies_under_v1():
    others = {path for _, path in routes() if not path.startswith("/v1/")}
    assert others == {"/health", "/ping", "/ready", "/healthz", "/version", "/metrics"}


@pytest.mark.parametrize("path", [path for method, path in routes() if method == "GET"])
def test_every_advertised_page_answers(gateway, path):
    gateway.speak(headers={"X-Request-Id": "speech"})  # there is a trace of it
    answer = gateway.ask("GET", path.replace("{id}", "speech"))
    assert answer.status in (200, 426, 501)
    assert "x-request-id" in answer.headers


@pytest.mark.parametrize("path", paths())
def test_every_path_answers_a_preflight_without_a_key(closed_gateway, path):
    answer = closed_gateway.ask("OPTIONS", path, headers=PREFLIGHT)
    assert (answer.status, answer.body) == (204, b"")
    assert answer.headers["access-control-allow-origin"] == "*"
    assert answer.headers["access-control-allow-headers"] == "authorization,x-mine"
    assert answer.headers["x-request-id"]


@pytest.mark.parametrize(("method", "path"), [(m, p) for p, methods in paths().items() for m in sorted(methods)])
def test_every_route_but_those_for_probes_wants_a_key(closed_gateway, method, path):
    headers = {"X-Request-Id": "asked-for"} | PAGE
    answer = closed_gateway.ask(method, path, b"{" if method == "POST" else None, headers)
    assert answer.headers["x-request-id"] == "asked-for"
    assert answer.headers["access-control-allow-origin"] == "*"
    if not path.startswith("/v1/") and path != "/metrics":
        assert answer.status == 200
        return
    assert answer.status == 401
    assert method == "HEAD" or answer.error().keys() >= ENVELOPE
    assert closed_gateway.ask(method, path, b"{" if method == "POST" else None, headers | KEY).status != 401


@pytest.mark.parametrize(("path", "methods"), paths().items())
def test_every_other_method_is_405_and_told_which_are_allowed(open_gateway, path, methods):
    for method in set(METHODS) - methods:
        answer = open_gateway.ask(method, path, headers={"X-Request-Id": "asked-for"} | PAGE)
        assert answer.status == 405, method
        assert set(answer.headers["allow"].split(", ")) == methods
        assert answer.headers["x-request-id"] == "asked-for"
        assert answer.headers["access-control-allow-origin"] == "*"
        if method != "HEAD":
            assert answer.error()["code"] == "method_not_allowed"
            assert answer.error()["request_id"] == "asked-for"


@pytest.mark.parametrize("path", [path for path, methods in paths().items() if "POST" in methods])
def test_every_refusal_of_a_body_has_a_name_and_may_be_read_by_pages(open_gateway, path):
    answer = open_gateway.ask("POST", path, b"{", {"Content-Type": "application/json", "X-Request-Id": "mine"} | PAGE)
    assert answer.status in (400, 404, 501)
    assert answer.error().keys() >= ENVELOPE
    assert (answer.headers["x-request-id"], answer.error()["request_id"]) == ("mine", "mine")
    assert answer.headers["access-control-allow-origin"] == "*"


STREAMS = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}]},
    "/v1/completions": {"prompt": "hi"},
    "/v1/audio/speech": {"input": "hi"},
}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("path", "body"), STREAMS.items())
def test_every_answer_has_a_name_and_may_be_read_by_pages(open_gateway, path, body, stream):
    answer = open_gateway.ask("POST", path, body | {"stream": stream}, {"X-Request-Id": "mine"} | PAGE)
    assert answer.status == 200
    assert answer.headers["x-request-id"] == "mine"
    assert answer.headers["access-control-allow-origin"] == "*"
    assert answer.headers["content-type"].startswith("text/event-stream") == stream
    assert int(answer.headers["openai-processing-ms"]) >= 0
