"""Reading a request's JSON body, bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import msgspec
from aiohttp import web

from omnirt.gateway.errors import ApiError, Refusal, invalid, too_large

SILENCE_S = 30.0
"""A client that has not sent all of its body and sends nothing for this long is refused."""


def as_object(value: object) -> Mapping[str, Any] | None:
    """`value` where it is a JSON object; its keys are strings because it came out of a JSON decoder."""
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else None


def check_encoding(request: web.Request) -> None:
    """415 for a compressed body: a few bytes could become gigabytes here, and no client of this API sends them."""
    coding = request.headers.get("Content-Encoding", "identity").strip().lower()
    if coding not in ("", "identity"):
        text = f"Content-Encoding is {coding[:100]}; send the body as it is."
        raise ApiError(Refusal(415, "unsupported_media_type", text, headers={"Accept-Encoding": "identity"}))


def check_json(request: web.Request, accepted: str = "application/json") -> None:
    """415 for a body that says that it is something else. `accepted`: what to name then."""
    if request.headers.get("Content-Type") in (None, "application/json"):  # nearly always; parsing costs more
        return
    kind = request.content_type
    if kind != "application/json" and not kind.endswith("+json"):
        text = f"Content-Type is {kind[:100]}; send {accepted}."
        raise ApiError(Refusal(415, "unsupported_media_type", text))


async def read_json(request: web.Request, bytes_max: int) -> Any:
    """The decoded body. Raises 400, 408, 413 or 415 and reads no more than `bytes_max`."""
    check_json(request)
    try:
        return msgspec.json.decode(await read_bytes(request, bytes_max))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise invalid(f"The body is not valid JSON: {error}.", None, "invalid_json") from error


async def read_bytes(request: web.Request, bytes_max: int) -> bytes:
    length = request.content_length
    if length is not None and length > bytes_max:
        raise too_large(bytes_max)
    body, content = bytearray(), request.content
    while not content.at_eof():
        # Mostly all of it came with the headers: there is nothing to wait for, so no timer either.
        body += content.read_nowait() if content.is_eof() else await _next_piece(request)
        if len(body) > bytes_max:
            raise too_large(bytes_max)
    return bytes(body)


async def _next_piece(request: web.Request) -> bytes:
    """Empty at the end."""
    try:
        async with asyncio.timeout(SILENCE_S):
            return await request.content.readany()
    except TimeoutError:
        raise stopped() from None


def stopped() -> ApiError:
    text = f"The body stopped: nothing came for {SILENCE_S:g} s."
    return ApiError(Refusal(408, "request_timeout", text, close=True))
