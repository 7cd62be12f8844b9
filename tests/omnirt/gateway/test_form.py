"""Forms on the wire: what their parts may be."""

import asyncio

import pytest
from aiohttp import ClientSession, web

from omnirt.errors import OmnirtError
from omnirt.gateway import body
from omnirt.gateway.errors import ApiError
from omnirt.gateway.form import parts_of, piece_of, text_of
from omnirt.gateway.serve import bind, serve
from omnirt.testing.forms import BOUNDARY, form, part

PARTS_MAX = 3
TEXT_BYTES_MAX = 20
TYPE = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}


def taken(data, headers=TYPE):
    """What came in the form that `data` is: (name, text or bytes) of each part, or the refusal."""
    outcome = []

    async def handler(request):
        found = []
        try:
            async for each in parts_of(request, PARTS_MAX):
                read = piece_of(each) if each.filename else text_of(each, TEXT_BYTES_MAX)
                found.append((each.name, await read))
            outcome.append(found)
        except (ApiError, OmnirtError) as error:
            outcome.append(error.refusal)
        return web.Response()

    async def run():
        app = web.Application()
        app.router.add_post("/", handler)
        listener = bind("127.0.0.1", 0)
        runner = await serve(app, listener, shutdown_s=0.2)
        try:
            url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
            async with ClientSession() as session, session.post(url, data=data, headers=headers):
                pass
        finally:
            await runner.cleanup()

    asyncio.run(run())
    return outcome[0]


def test_texts_and_files_come_in_order():
    data, headers = form(("a", "é"), ("file", b"\xff\x00", "f.bin"), ("b", ""))
    assert taken(data, headers) == [("a", "é"), ("file", b"\xff\x00"), ("b", "")]


@pytest.mark.parametrize(
    ("data", "param", "message"),
    [
        (form(("a", "x" * 21))[0], "a", "a is over 20 bytes."),
        (form(("a", b"\xff"))[0], "a", "a is not UTF-8."),
        (form(*[("a", "x")] * 4)[0], None, "The form has more than 3 parts."),
        (part("a", "x"), None, "The form is malformed"),
        (b"nothing of the kind", None, "The form is malformed"),
        (
            f"--{BOUNDARY}\r\nContent-Type: multipart/mixed; boundary=inner\r\n\r\n--inner--\r\n".encode() + form()[0],
            None,
            "Nested forms are not supported.",
        ),
    ],
)
def test_what_is_wrong_is_a_400_that_says_so(data, param, message):
    refusal = taken(data)
    assert (refusal.status, refusal.param) == (400, param)
    assert message in refusal.message


def test_a_form_without_a_boundary_is_malformed():
    assert taken(b"x", {"Content-Type": "multipart/form-data"}).status == 400


def test_a_form_that_stops_is_408(monkeypatch):
    monkeypatch.setattr(body, "SILENCE_S", 0.1)

    async def stopping():
        yield part("a", "x")[:-4]
        await asyncio.sleep(0.5)

    assert taken(stopping()).status == 408
