"""The client against a server of raw bytes: every cut, every end."""

import asyncio

import pytest
from serve_ask import Ask
from serve_client import Client

ASK = Ask("/v1/chat/completions", "application/json", b"{}", "events")
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENTS = b'data: {"choices":[{"delta":{"content":"hi"}}]}\n\ndata: [DONE]\n\n'
PATIENCE_S = 30.0


def chunked(*pieces):
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def exchanged(answers, ask=ASK, asks=1, timeout_s=PATIENCE_S, path=""):
    """What `asks` requests in turn become, and how many connections there were. An answer is a list of pieces, each a
    write of its own; None closes the connection there."""
    connections = 0
    remaining = iter(answers)

    async def serve(reader, writer):
        nonlocal connections
        connections += 1
        while head := await _head(reader):
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
            await reader.readexactly(length)
            for piece in next(remaining):
                if piece is None:
                    writer.close()
                    return
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)

    async def run():
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        client = Client(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{path}", timeout_s)
        records = []
        for _ in range(asks):
            records.append(await client.ask(ask))
            await asyncio.sleep(0.001)  # a close arrives
        client.close()
        server.close()
        return records, connections

    return asyncio.run(run())


async def _head(reader):
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""


def test_an_answer_is_the_same_wherever_it_is_cut():
    whole = HEAD + chunked(EVENTS[:20], EVENTS[20:])
    cuts = range(1, len(whole))
    records, connections = exchanged([[whole[:cut], whole[cut:]] for cut in cuts], asks=len(cuts))
    assert {(record.text, record.code, len(record.text_ns)) for record in records} == {("hi", "", 1)}
    assert connections == 1


def test_an_answer_of_stated_length_is_read():
    body = b'{"error":{"code":"queue_full"}}'
    answer = b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    records, _ = exchanged([[answer]] * 2, asks=2)
    assert [record.code for record in records] == ["429 queue_full"] * 2


def test_an_answer_may_end_with_its_connection():
    ask = Ask("/v1/audio/speech", "application/json", b"{}", "samples")
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: audio/pcm\r\n\r\n" + bytes(8)
    records, connections = exchanged([[answer, None]] * 2, ask, asks=2)
    assert [(record.code, sum(samples for _, samples in record.sound)) for record in records] == [("", 4)] * 2
    assert connections == 2


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ([HEAD + chunked(EVENTS)[:30], None], "broken"),
        ([HEAD + chunked(EVENTS[:-14])], "no_end"),
        ([HEAD + b"nonsense\r\n"], "unreadable"),
        ([HEAD + chunked(b"data: nonsense\n\n")], "unreadable"),
        ([b"nonsense\r\n\r\n"], "unreadable"),
    ],
)
def test_an_answer_that_is_not_whole_is_an_error(answer, code):
    assert exchanged([answer])[0][0].code == code


def test_a_server_that_says_nothing_is_a_timeout():
    (record,), _ = exchanged([[]], timeout_s=0.05)
    assert record.code == "timeout"
    assert record.ended_ns > record.began_ns


def test_a_connection_the_server_closed_meanwhile_is_made_again():
    whole = HEAD + chunked(EVENTS)
    records, connections = exchanged([[whole, None], [whole]], asks=2)
    assert [record.code for record in records] == ["", ""]
    assert connections == 2


def test_no_server_is_an_error_of_the_request():
    record = asyncio.run(Client("http://127.0.0.1:9").ask(ASK))
    assert record.code == "connect"


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/"])
def test_a_base_address_may_name_the_version(path):
    assert exchanged([[HEAD + chunked(EVENTS)]], path=path)[0][0].code == ""


@pytest.mark.parametrize("url", ["ftp://host", "http://"])
def test_what_is_no_url_is_refused(url):
    with pytest.raises(ValueError, match="is not a URL"):
        Client(url)
