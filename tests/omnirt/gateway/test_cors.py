"""What browsers are told."""

import pytest
from aiohttp.test_utils import make_mocked_request

from omnirt.gateway.cors import is_preflight, origin_headers, preflight
from omnirt.gateway.errors import ApiError

ASKED = {"Origin": "https://a.example", "Access-Control-Request-Method": "POST"}


def test_a_star_lets_every_page_in_without_credentials():
    headers = origin_headers("https://a.example", ("*",))
    assert headers["Access-Control-Allow-Origin"] == "*"
    assert "Access-Control-Allow-Credentials" not in headers
    for name in ("x-request-id", "retry-after", "retry-after-ms", "x-sample-rate", "x-channels", "content-disposition"):
        assert name in headers["Access-Control-Expose-Headers"]


def test_listed_origins_are_let_in_by_name_and_others_are_not():
    allowed = ("https://a.example",)
    assert origin_headers("https://a.example", allowed)["Access-Control-Allow-Origin"] == "https://a.example"
    assert origin_headers("https://b.example", allowed) == {"Vary": "Origin"}
    assert origin_headers("https://a.example", ()) == {"Vary": "Origin"}
    assert origin_headers(None, ("*",)) == {}


def test_a_preflight_is_an_options_that_asks():
    assert is_preflight(make_mocked_request("OPTIONS", "/", headers=ASKED))
    assert not is_preflight(make_mocked_request("OPTIONS", "/"))
    assert not is_preflight(make_mocked_request("POST", "/", headers=ASKED))


def test_a_preflight_gets_back_the_headers_it_asked_for():
    wanted = "authorization, x-stainless-lang, x-stainless-retry-count"
    answer = preflight(ASKED | {"Access-Control-Request-Headers": wanted}, ("*",))
    assert answer.status == 204
    assert answer.headers["Access-Control-Allow-Headers"] == wanted
    assert answer.headers["Access-Control-Allow-Methods"] == "GET, POST, DELETE, OPTIONS"


def test_a_preflight_of_another_origin_is_refused():
    with pytest.raises(ApiError) as caught:
        preflight(ASKED, ("https://b.example",))
    assert caught.value.refusal.status == 403
