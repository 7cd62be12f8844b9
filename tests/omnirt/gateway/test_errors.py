"""Every error as a status, a type, a code, and what it tells a client's retries."""

import json

import pytest
from aiohttp import web

from omnirt.errors import (
    Cancelled,
    ConfigError,
    DeadlineExceeded,
    InvalidRequest,
    NotFound,
    NotReady,
    Overloaded,
    StageFailed,
    StageLost,
    Unsupported,
)
from omnirt.gateway.errors import (
    MESSAGE_CHARS_MAX,
    Refusal,
    invalid,
    payload_of,
    refusal_of,
    response_of,
    too_large,
    unknown_route,
)

CALLER, SERVER, RATE = "invalid_request_error", "server_error", "rate_limit_error"


@pytest.mark.parametrize(
    ("error", "status", "type", "code", "retry"),
    [
        (web.RequestPayloadError("m"), 400, CALLER, "invalid_body", None),
        (InvalidRequest("m", param="voice"), 400, CALLER, "invalid_value", None),
        (NotFound("m", param="model"), 404, CALLER, "model_not_found", None),
        (NotFound("m"), 404, CALLER, "not_found", None),
        (Unsupported("m"), 501, CALLER, "unsupported_endpoint", "false"),
        (Cancelled("m"), 409, CALLER, "cancelled", "false"),
        (Overloaded("m"), 429, RATE, "queue_full", None),
        (NotReady("m", reason="model_loading"), 503, SERVER, "model_loading", None),
        (NotReady("m", reason="engine_dead"), 503, SERVER, "engine_dead", None),
        (NotReady("m", reason="shutting_down"), 503, SERVER, "shutting_down", None),
        (DeadlineExceeded("m"), 504, SERVER, "timeout", "false"),
        (StageLost("m"), 500, SERVER, "stage_lost", "false"),
        (StageFailed("m"), 500, SERVER, "stage_failed", "false"),
        (ConfigError("m"), 500, SERVER, "internal_error", "false"),
        (RuntimeError("secret"), 500, SERVER, "internal_error", "false"),
        (web.HTTPNotFound(), 404, CALLER, "not_found", None),
        (web.HTTPMethodNotAllowed("GET", ["POST"]), 405, CALLER, "method_not_allowed", None),
        (web.HTTPRequestEntityTooLarge(1, 2), 413, CALLER, "request_too_large", None),
        (web.HTTPUnsupportedMediaType(), 415, CALLER, "unsupported_media_type", None),
        (web.HTTPBadRequest(), 400, CALLER, "invalid_value", None),
        (too_large(5), 413, CALLER, "request_too_large", None),
        (invalid("m", "x"), 400, CALLER, "invalid_value", None),
    ],
)
def test_the_table(error, status, type, code, retry):
    found = refusal_of(error)
    assert (found.status, found.type, found.code) == (status, type, code)
    assert found.headers.get("x-should-retry") == retry


@pytest.mark.parametrize(
    "error", [Overloaded("m", retry_after_s=0.25), NotReady("m", reason="engine_dead", retry_after_s=0.25)]
)
def test_what_may_be_tried_again_says_when(error):
    assert refusal_of(error).headers == {"Retry-After": "1", "retry-after-ms": "250"}


def test_only_a_draining_server_closes_the_connection():
    assert refusal_of(NotReady("m", reason="shutting_down")).close
    assert not refusal_of(NotReady("m", reason="model_loading")).close


def test_a_wrong_method_names_the_right_ones():
    assert refusal_of(web.HTTPMethodNotAllowed("GET", ["POST", "DELETE"])).headers["Allow"] == "DELETE, POST"


def test_the_inside_of_the_server_stays_inside():
    assert "secret" not in refusal_of(RuntimeError("secret")).message
    assert refusal_of(StageFailed("bad\n  File /x/y.py")).message == "bad"


def test_the_envelope_has_its_four_keys_and_two_more():
    payload = payload_of(Refusal(500, "c", "m", stage="voice"), "req_1")
    assert payload == {
        "message": "m",
        "type": CALLER,
        "param": None,
        "code": "c",
        "request_id": "req_1",
        "stage": "voice",
    }
    assert "stage" not in payload_of(Refusal(500, "c", "m"), "req_1")


def test_messages_are_bounded():
    assert len(str(payload_of(Refusal(400, "c", "m" * 10_000), "")["message"])) == MESSAGE_CHARS_MAX


def test_the_answer_is_json():
    response = response_of(Refusal(404, "c", "m", headers={"Allow": "GET"}, close=True), "req_1")
    assert (response.status, response.content_type, response.headers["Allow"]) == (404, "application/json", "GET")
    assert json.loads(response.body)["error"]["code"] == "c"
    assert response.keep_alive is False


@pytest.mark.parametrize("path", ["/v1/v1/models", "/v1//v1/models", "/v1/v1"])
def test_an_unknown_route_is_named_and_so_is_a_doubled_version(path):
    assert unknown_route("GET", path).message == f"There is no GET {path} here. The base URL may contain /v1 twice."


@pytest.mark.parametrize("path", ["/v1/nope", "/v1/v10", "/a/v1/v1"])
def test_another_unknown_route_is_only_named(path):
    assert unknown_route("GET", path).message == f"There is no GET {path} here."
    assert len(unknown_route("GET", path * 1000).message) < MESSAGE_CHARS_MAX
