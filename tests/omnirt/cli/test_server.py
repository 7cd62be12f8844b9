import argparse
import asyncio

import pytest

from omnirt.cli import server
from omnirt.cli.server import ServerError


def ask(url, key_file=None):
    async def run():
        args = argparse.Namespace(url=url, key_file=key_file)
        async with server.answer(args, "/v1/chat/completions", b"{}", pipeline="voice") as response:
            return await response.read()

    return asyncio.run(run())


def test_no_server_says_how_to_start_one():
    with pytest.raises(
        ServerError, match=r"no server answers at http://127\.0\.0\.1:9; start one with: .*omnirt\S* run voice"
    ):
        ask("http://127.0.0.1:9")


@pytest.mark.parametrize("end", ["", "/", "/v1", "/v1/", "//v1//"])
def test_the_url_may_be_the_one_that_clients_of_the_api_are_given(scripted, end):
    ask(scripted.url + end)
    assert scripted.bodies[0]["path"] == "/v1/chat/completions"


def test_only_one_v1_at_the_end_is_ours():
    assert server.base("http://h/v1/v1/") == "http://h/v1"
    assert server.base("http://h/xv1") == "http://h/xv1"


@pytest.mark.parametrize("url", ["nonsense", "ftp://127.0.0.1"])
def test_what_is_no_url_is_named(url):
    with pytest.raises(ServerError, match="is not a URL"):
        ask(url)


def test_a_refusal_is_repeated_in_the_servers_words(scripted):
    scripted.script = lambda _: (400, b'{"error":{"message":"Unknown voice."}}')
    with pytest.raises(ServerError, match=r"the server refused \(400\): Unknown voice\."):
        ask(scripted.url)


@pytest.mark.parametrize("body", [b"<html>", b"{}", b'{"error":{}}', b'{"detail":"x"}'])
def test_a_refusal_of_something_else_gives_its_status(scripted, body):
    scripted.script = lambda _: (404, body)
    with pytest.raises(ServerError, match="the server answered 404; is it omnirt"):
        ask(scripted.url)


def test_the_key_of_a_file_is_sent(scripted, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("# ours\n\nfirst\nsecond\n")
    ask(scripted.url, str(keys))
    assert scripted.headers[0]["Authorization"] == "Bearer first"


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"# none\n", "holds no key"), (b"\x7fELF\xff", "something else than keys"), (None, "cannot use")],
)
def test_a_key_file_without_a_key_is_named(tmp_path, content, words):
    keys = tmp_path / "keys"
    if content is not None:
        keys.write_bytes(content)
    with pytest.raises(ServerError, match=words):
        server.key(str(keys))
