"""Keys: the file, the forms in which clients send them, and which routes are open."""

import os

import pytest
from aiohttp.test_utils import make_mocked_request

from omnirt.errors import ConfigError
from omnirt.gateway.auth import Keys, caller_of, load_keys
from omnirt.gateway.config import GatewayConfig
from omnirt.gateway.errors import ApiError

KEYS = Keys(["right", "other"])
CONFIG = GatewayConfig()


def caller(path="/v1/models", method="GET", config=CONFIG, keys=KEYS, **headers):
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return caller_of(make_mocked_request(method, path, headers=sent), keys, config)


def write_keys(tmp_path, text, mode=0o600):
    path = tmp_path / "keys"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer right"},
        {"Authorization": "bearer  right "},
        {"Authorization": "Api-Key right"},
        {"api_key": "right"},
        {"Sec_WebSocket_Protocol": "realtime, openai-insecure-api-key.right"},
    ],
)
def test_every_form_of_a_right_key_is_taken(headers):
    assert caller(**headers) == KEYS.label_of("right")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Basic right"},
        {"Authorization": "right"},
        {"Authorization": "Bearer "},
        {"Authorization": "Bearer right "[:-3]},
        {"api_key": ""},
        {"Sec_WebSocket_Protocol": "realtime"},
    ],
)
def test_anything_else_is_401_and_repeats_no_key(headers):
    with pytest.raises(ApiError) as caught:
        caller(**headers)
    refusal = caught.value.refusal
    assert (refusal.status, refusal.code) == (401, "invalid_api_key")
    assert refusal.headers == {"WWW-Authenticate": "Bearer"}
    assert "wrong" not in refusal.message
    assert "right" not in refusal.message


def test_without_keys_anyone_may_call():
    assert caller(keys=Keys(())) == ""
    assert caller(keys=Keys(()), Authorization="Bearer dummy") == ""


@pytest.mark.parametrize("path", ["/health", "/healthz", "/ping", "/ready", "/version", "/metrics", "/", "/nope"])
def test_operations_are_open(path):
    assert caller(path) == ""


@pytest.mark.parametrize(
    "path", ["/v1/models", "/v1//models", "/v1", "/v1/nope", "/v1/realtime", "/v1/omnirt/requests/x/cancel"]
)
def test_everything_under_v1_is_closed(path):
    with pytest.raises(ApiError):
        caller(path)
    assert caller(path, "OPTIONS") == ""


def test_metrics_can_be_closed():
    with pytest.raises(ApiError):
        caller("/metrics", config=GatewayConfig(public_metrics=False))


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/a/b", "/v1/audio/models", "/v1/audio/voices"])
def test_discovery_can_be_opened_for_reading_only(path):
    config = GatewayConfig(public_discovery=True)
    assert caller(path, config=config) == ""
    with pytest.raises(ApiError):
        caller(path, "POST", config=config)
    with pytest.raises(ApiError):
        caller("/v1/audio/speech", config=config)


def test_a_label_names_a_key_without_giving_it_away():
    assert KEYS.label_of("right") != KEYS.label_of("other")
    assert "right" not in (KEYS.label_of("right") or "")
    assert KEYS.label_of("wrong") is None
    assert KEYS.label_of("k\udce9y") is None


def test_the_file_holds_a_key_a_line(tmp_path):
    keys = load_keys(write_keys(tmp_path, "# ours\n\n  one \ntwo\n"))
    assert keys.label_of("one")
    assert keys.label_of("two")
    assert not keys.label_of("# ours")
    assert not load_keys("")


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o606])
def test_a_file_that_others_can_open_is_refused_with_the_fix(tmp_path, mode):
    with pytest.raises(ConfigError, match="chmod 600"):
        load_keys(write_keys(tmp_path, "one\n", mode))


def test_a_missing_or_empty_file_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=os.strerror(2)):
        load_keys(str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="no key"):
        load_keys(write_keys(tmp_path, "# nothing\n"))
