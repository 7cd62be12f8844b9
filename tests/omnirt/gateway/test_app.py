"""The routes as a whole."""

import pytest

from omnirt.gateway.app import build
from omnirt.gateway.config import GatewayConfig
from omnirt.testing.scripted_service import ScriptedService


def routes():
    app = build(ScriptedService(), GatewayConfig())
    return [(route.method, route.resource.canonical.replace("{slash}", "/")) for route in app.router.routes()]


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
    assert answer.status in (200, 501)
    assert "x-request-id" in answer.headers
