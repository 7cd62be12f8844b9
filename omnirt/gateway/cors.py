"""Which web pages may call (browsers ask first, with OPTIONS)."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web

from omnirt.gateway.errors import ApiError, Refusal

EXPOSED = (
    "x-request-id, retry-after, retry-after-ms, x-should-retry, openai-processing-ms, content-disposition, "
    "x-sample-rate, x-channels"
)
METHODS = "GET, POST, DELETE, OPTIONS"


def origin_headers(origin: str | None, allowed: tuple[str, ...]) -> dict[str, str]:
    """What every answer to a page carries; nothing when there is no page or it may not call."""
    if not origin:
        return {}
    if "*" in allowed:
        return {"Access-Control-Allow-Origin": "*", "Access-Control-Expose-Headers": EXPOSED}
    if origin in allowed:
        headers = {"Access-Control-Allow-Origin": origin, "Vary": "Origin"}
        return headers | {"Access-Control-Expose-Headers": EXPOSED}
    return {"Vary": "Origin"}


def is_preflight(request: web.BaseRequest) -> bool:
    return request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers


def preflight(headers: Mapping[str, str], allowed: tuple[str, ...]) -> web.Response:
    """The answer to a browser's question. Whatever headers it asks for are allowed."""
    if "Access-Control-Allow-Origin" not in origin_headers(headers.get("Origin"), allowed):
        raise ApiError(Refusal(403, "forbidden", "This origin may not call this server.", type="permission_error"))
    answer = {"Access-Control-Allow-Methods": METHODS, "Access-Control-Max-Age": "600"}
    asked = headers.get("Access-Control-Request-Headers")
    if asked:
        answer["Access-Control-Allow-Headers"] = asked
    return web.Response(status=204, headers=answer)
