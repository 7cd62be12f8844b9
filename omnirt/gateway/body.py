"""Reading a request's JSON body, bounded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec
from aiohttp import web

from omnirt.gateway.errors import ApiError, Refusal, invalid, too_large


def as_object(value: object) -> Mapping[str, Any] | None:
    """`value` where it is a JSON object; its keys are strings because it came out of a JSON decoder."""
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else None


async def read_json(request: web.Request, bytes_max: int) -> Any:
    """The decoded body. Raises 400, 413 or 415 and reads no more than `bytes_max`."""
    kind = request.content_type
    if "Content-Type" in request.headers and kind != "application/json" and not kind.endswith("+json"):
        text = f"Content-Type is {kind}; send application/json."
        raise ApiError(Refusal(415, "unsupported_media_type", text))
    try:
        return msgspec.json.decode(await read_bytes(request, bytes_max))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise invalid(f"The body is not valid JSON: {error}.", None, "invalid_json") from error


async def read_bytes(request: web.Request, bytes_max: int) -> bytes:
    length = request.content_length
    if length is not None and length > bytes_max:
        raise too_large(bytes_max)
    body = bytearray()
    async for piece in request.content.iter_any():
        body += piece
        if len(body) > bytes_max:
            raise too_large(bytes_max)
    return bytes(body)
