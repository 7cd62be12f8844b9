"""Media by reference: what arrives, and what is never asked."""

import asyncio
import base64
import gzip
import http.server
import ipaddress
import socket
import threading
from collections import Counter
from contextlib import contextmanager

import pytest

from omnirt.gateway import fetch as module
from omnirt.gateway.config import GatewayConfig
from omnirt.gateway.core import Core
from omnirt.gateway.errors import ApiError
from omnirt.gateway.fetch import fetch, is_public
from omnirt.testing.scripted_service import ScriptedService

PARAM = "messages[0].content[0].audio_url.url"
PUBLIC = "127.0.0.2"
"""Stands for an address of the open internet; 127.0.0.1 is inside."""
CONTENT = b"sound" * 1000


class Site(http.server.BaseHTTPRequestHandler):
    """/ok, /302?to=URL, /status/N, /chunked, /gzip, /stall"""

    asked = []

    def do_GET(self):
        self.asked.append((self.path, self.headers.get("Host"), self.headers.get("Cookie")))
        path, _, target = self.path.partition("?to=")
        if path == "/stall":
            self.server.released.wait(20.0)
        elif path == "/chunked":
            self._chunked()
        elif path[1:4] == "302":
            self._answer(int(path[1:4]), b"", Location=target, **{"Set-Cookie": "a=b"})
        elif path == "/nowhere":
            self._answer(302, b"")
        elif path == "/circle":
            self._answer(302, b"", Location="/circle")
        elif path == "/gzip":
            self._answer(200, gzip.compress(bytes(1 << 20)), **{"Content-Encoding": "gzip"})
        elif path.startswith("/status/"):
            self._answer(int(path.rpartition("/")[2]), b"")
        else:
            self._answer(200, CONTENT)

    def _answer(self, status, body, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _chunked(self):
        """A body without an end and without a length."""
        self.send_response(200)
        self.end_headers()
        try:
            while True:
                self.wfile.write(bytes(65536))
        except OSError:
            return

    def log_message(self, *args):
        return


@contextmanager
def serving(host):
    server = http.server.ThreadingHTTPServer((host, 0), Site)
    server.released = threading.Event()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.released.set()
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(scope="module")
def outside():
    with serving(PUBLIC) as port:
        yield port


@pytest.fixture(scope="module")
def inside():
    with serving("127.0.0.1") as port:
        yield port


@pytest.fixture
def world(monkeypatch):
    """ask(url, names={name: addresses...}, config options...): in a world where 127.0.0.2 is public."""
    real = module.is_public
    monkeypatch.setattr(module, "is_public", lambda address: str(address) == PUBLIC or real(address))
    Site.asked.clear()
    looked_up = Counter()

    def ask(url, names=None, **options):
        async def look_up(host, port):
            looked_up[host] += 1
            answers = (names or {}).get(host)
            if answers is None:
                raise socket.gaierror(-2, "no such name")
            return answers[min(looked_up[host], len(answers)) - 1]

        core = Core(ScriptedService(), GatewayConfig(**options))
        try:
            return asyncio.run(fetch(core, url, PARAM, look_up))
        finally:
            core.close()

    ask.looked_up = looked_up
    return ask


def refusal(ask, *args, **options):
    with pytest.raises(ApiError) as caught:
        ask(*args, **options)
    assert caught.value.refusal.param == PARAM
    assert PARAM in caught.value.refusal.message
    return caught.value.refusal


def forbidden(ask, *args, **options):
    found = refusal(ask, *args, **options)
    assert (found.status, found.code, found.type) == (403, "forbidden", "permission_error")
    return found


def invalid(ask, *args, **options):
    found = refusal(ask, *args, **options)
    assert found.status == 400
    return found.message


# ------------------------------------------------------------------ what arrives


def test_a_public_url_is_fetched_with_one_lookup(world, outside):
    assert world(f"http://cdn.example:{outside}/ok", {"cdn.example": [[PUBLIC]]}) == CONTENT
    assert world.looked_up == {"cdn.example": 1}
    assert Site.asked == [("/ok", f"cdn.example:{outside}", None)]


def test_a_literal_address_is_asked_of_nobody(world, outside):
    assert world(f"http://{PUBLIC}:{outside}/ok") == CONTENT
    assert not world.looked_up


def test_redirects_are_followed_and_carry_nothing_along(world, outside):
    names = {"cdn.example": [[PUBLIC]], "other.example": [[PUBLIC]]}
    target = f"http://other.example:{outside}/302?to=/ok"
    assert world(f"http://cdn.example:{outside}/302?to={target}", names) == CONTENT
    assert [path for path, _, _ in Site.asked] == [f"/302?to={target}", "/302?to=/ok", "/ok"]
    assert all(cookie is None for _, _, cookie in Site.asked)


def test_private_addresses_may_be_allowed(world, inside):
    assert world(f"http://127.0.0.1:{inside}/ok", allow_private_media=True) == CONTENT


@pytest.mark.parametrize(
    ("url", "content"),
    [
        ("data:audio/wav;base64," + base64.b64encode(CONTENT).decode(), CONTENT),
        (
            "data:audio/ogg;codecs=opus;base64," + base64.urlsafe_b64encode(b"\xfb\xff").decode().rstrip("="),
            b"\xfb\xff",
        ),
        ("data:;base64,AAAA", bytes(3)),
        ("data:;base64,AAA%3D", bytes(2)),
        ("data:text/plain,a%20b", b"a b"),
        ("DATA:,x", b"x"),
    ],
)
def test_data_urls_hold_what_they_say(world, url, content):
    assert world(url) == content


def test_files_below_an_allowed_directory(world, tmp_path):
    (tmp_path / "a b.wav").write_bytes(CONTENT)
    for host in ("", "localhost"):
        assert world(f"file://{host}{tmp_path}/a%20b.wav", media_roots=(str(tmp_path),)) == CONTENT


# ------------------------------------------------------------------ what is never asked


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.1.2.3",
        "0.0.0.0",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "192.0.0.8",
        "198.18.0.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "[::1]",
        "[::]",
        "[fe80::1]",
        "[fe80::1%25eth0]",
        "[fc00::1]",
        "[ff02::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "[2001:0:4136:e378:8000:63bf:80ff:fffe]",
        "[2001:db8::1]",
    ],
)
def test_addresses_inside_are_refused_as_literals_and_behind_names(world, host):
    forbidden(world, f"http://{host}:9/secret")
    bare = host.strip("[]").replace("%25", "%")
    forbidden(world, "http://innocent.example:9/secret", {"innocent.example": [[bare]]})
    assert not Site.asked


@pytest.mark.parametrize("host", ["2130706433", "0x7f000001", "0177.0.0.1", "127.1", "localhost"])
def test_other_spellings_of_loopback_are_refused_too(host):
    """With the system's own lookup: it knows them all."""
    core = Core(ScriptedService(), GatewayConfig())
    try:
        with pytest.raises(ApiError) as caught:
            asyncio.run(fetch(core, f"http://{host}:9/secret", PARAM))
    finally:
        core.close()
    assert caught.value.refusal.status in (403, 400)
    assert caught.value.refusal.code in ("forbidden", "invalid_value")
    assert caught.value.refusal.code == "forbidden" or "cannot be found" in caught.value.refusal.message


def test_what_is_refused_could_be_allowed_and_the_refusal_says_how(world):
    assert "`omnirt run --private-media`" in forbidden(world, "http://127.0.0.1:9/x").message
    assert "`omnirt run --media DIR`" in forbidden(world, "file:///etc/hostname").message


def test_one_private_address_among_public_ones_is_enough_to_refuse(world, outside):
    forbidden(world, f"http://mixed.example:{outside}/ok", {"mixed.example": [[PUBLIC, "10.0.0.1"]]})
    assert not Site.asked


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_inside_is_refused_and_not_followed(world, outside, inside, status):
    url = f"http://cdn.example:{outside}/302?to=http://127.0.0.1:{inside}/secret"
    forbidden(world, url, {"cdn.example": [[PUBLIC]]})
    assert [path for path, _, _ in Site.asked] == [url.partition(str(outside))[2]]


def test_a_name_that_turns_inside_on_its_second_lookup_is_refused(world, outside, inside):
    names = {"turning.example": [[PUBLIC], ["127.0.0.1"]]}
    url = f"http://turning.example:{outside}/302?to=http://turning.example:{inside}/secret"
    forbidden(world, url, names)
    assert len(Site.asked) == 1


def test_a_name_that_would_turn_inside_is_not_looked_up_again(world, outside):
    names = {"turning.example": [[PUBLIC], ["127.0.0.1"]]}
    assert world(f"http://turning.example:{outside}/ok", names) == CONTENT
    assert world.looked_up == {"turning.example": 1}


@pytest.mark.parametrize("target", ["file:///etc/hostname", "ftp://cdn.example/x", "data:,x", "javascript:1"])
def test_a_redirect_to_another_scheme_is_refused(world, outside, target):
    assert "not a http" in invalid(world, f"http://cdn.example:{outside}/302?to={target}", {"cdn.example": [[PUBLIC]]})


def test_too_many_redirects(world, outside):
    assert "more than 5" in invalid(world, f"http://{PUBLIC}:{outside}/circle")
    assert len(Site.asked) == 6


def test_a_redirect_to_nowhere(world, outside):
    assert "not a http" in invalid(world, f"http://{PUBLIC}:{outside}/nowhere")


@pytest.mark.parametrize(
    "url", ["ftp://x/y", "javascript:1", "x", "", "gopher://x", "//host/x", "http://", "http:///x", "http://[1/"]
)
def test_what_is_no_url_that_is_known_here(world, url):
    invalid(world, url)
    assert not world.looked_up


def test_files_are_refused_alike_whether_they_exist_or_not(world, tmp_path):
    (tmp_path / "within").mkdir()
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "within" / "link").symlink_to(tmp_path / "secret")
    roots = (str(tmp_path / "within"),)
    messages = {
        forbidden(world, f"file://{tmp_path}/{name}", media_roots=allowed).message
        for name, allowed in [
            ("secret", ()),
            ("secret", roots),
            ("missing", roots),
            ("within/../secret", roots),
            ("within/%2e%2e/secret", roots),
            ("within/link", roots),
            ("within", roots),
            ("within/missing", roots),
            ("within/a%00b", roots),
        ]
    }
    assert len(messages) == 1
    forbidden(world, f"file://elsewhere{tmp_path}/within/x", media_roots=roots)


# ------------------------------------------------------------------ bounds


def test_a_body_over_the_limit_is_not_read_to_its_end(world, outside):
    for path in ("ok", "chunked"):
        assert "over the limit of 100 bytes" in invalid(world, f"http://{PUBLIC}:{outside}/{path}", media_bytes_max=100)


def test_a_data_url_over_the_limit(world):
    assert "over the limit" in invalid(world, "data:;base64," + "AAAA" * 100, media_bytes_max=100)


def test_a_file_over_the_limit(world, tmp_path):
    (tmp_path / "a").write_bytes(CONTENT)
    message = invalid(world, f"file://{tmp_path}/a", media_roots=(str(tmp_path),), media_bytes_max=100)
    assert "over the limit of 100 bytes" in message


def test_a_compressed_answer_is_not_unpacked(world, outside):
    assert "compressed" in invalid(world, f"http://{PUBLIC}:{outside}/gzip")


def test_a_host_that_says_nothing_is_given_up(world, outside):
    assert "within 0.2 s" in invalid(world, f"http://{PUBLIC}:{outside}/stall", media_fetch_s=0.2)


@pytest.mark.parametrize("status", [204, 206, 304, 401, 404, 500])
def test_only_200_is_an_answer(world, outside, status):
    assert f"status {status}" in invalid(world, f"http://{PUBLIC}:{outside}/status/{status}")


def test_a_host_that_is_not_there(world):
    with socket.create_server((PUBLIC, 0)) as listener:
        port = listener.getsockname()[1]
    assert "cannot be reached" in invalid(world, f"http://{PUBLIC}:{port}/")
    assert "cannot be found" in invalid(world, "http://nobody.example/")


def test_a_long_url(world):
    assert "the limit is" in invalid(world, "http://x/" + "a" * 10_000)


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "2606:4700::1111", "64:ff9b::808:808", "::ffff:8.8.8.8"])
def test_public_addresses_are_public(address):
    assert is_public(ipaddress.ip_address(address))
