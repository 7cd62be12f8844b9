"""How an error looks over HTTP: status, the OpenAI envelope, and the headers that steer a client's retries.

    {"error": {"message": str, "type": str, "param": str | null, "code": str, "request_id": str, "stage"?: str}}

Invariant: a 5xx that may have started work says `x-should-retry: false`, because clients repeat 5xx on their own.
"""

from __future__ import annotations

import math
import re

import msgspec
from aiohttp import web
from msgspec import Struct

from omnirt.errors import (
    Cancelled,
    DeadlineExceeded,
    InvalidRequest,
    NotFound,
    NotReady,
    OmnirtError,
    Overloaded,
    StageFailed,
    StageLost,
    Unsupported,
)

CALLER = "invalid_request_error"
SERVER = "server_error"
NO_RETRY = {"x-should-retry": "false"}
MESSAGE_CHARS_MAX = 2000
_V1_TWICE = re.compile("/+v1/+v1(/|$)")


class Refusal(Struct, frozen=True):
    """An error, ready to be answered."""

    status: int
    code: str
    message: str
    type: str = CALLER
    param: str | None = None
    stage: str = ""
    headers: dict[str, str] = {}
    close: bool = False
    """Close the connection after the answer."""


class ApiError(Exception):
    """Raised by surfaces for what only exists in HTTP (formats, headers, routes)."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


def invalid(message: str, param: str | None, code: str = "invalid_value") -> ApiError:
    """400: the caller's request is wrong."""
    return ApiError(Refusal(400, code, message, param=param))


def unsupported_endpoint(message: str) -> ApiError:
    """501: the route is known, the running pipeline has nothing behind it."""
    return ApiError(Refusal(501, "unsupported_endpoint", message, headers=NO_RETRY))


def unknown_model(name: str, known: tuple[str, ...]) -> ApiError:
    text = f"The model '{_short(name)}' does not exist. This server has: {', '.join(known)}."
    return ApiError(Refusal(404, "model_not_found", text, param="model"))


def unknown_route(method: str, path: str) -> Refusal:
    """404; the mistake that clients' settings make most is named."""
    text = f"There is no {method} {_short(path)} here."
    if _V1_TWICE.match(path):
        text += " The base URL may contain /v1 twice."
    return Refusal(404, "not_found", text)


def too_large(limit: int) -> ApiError:
    """413; what is left of the body is not read, so the connection goes."""
    return ApiError(Refusal(413, "request_too_large", f"The body is over the limit of {limit} bytes.", close=True))


def refusal_of(error: Exception) -> Refusal:
    """What to answer for `error`. Unknown exceptions say nothing of the inside."""
    if isinstance(error, ApiError):
        return error.refusal
    if isinstance(error, web.HTTPException):
        return _of_http(error)
    if isinstance(error, web.RequestPayloadError):
        return Refusal(400, "invalid_body", "The body is not framed as its headers say.", close=True)
    if isinstance(error, (InvalidRequest, NotFound, Unsupported, Cancelled)):
        return _of_caller(error)
    if isinstance(error, (Overloaded, NotReady)):
        return _of_admission(error)
    if isinstance(error, OmnirtError):
        return _of_work(error)
    return Refusal(500, "internal_error", "Internal error; the server's log names it.", type=SERVER, headers=NO_RETRY)


def payload_of(refusal: Refusal, request_id: str) -> dict[str, object]:
    """The value of `error` in the envelope."""
    payload: dict[str, object] = {
        "message": refusal.message[:MESSAGE_CHARS_MAX],
        "type": refusal.type,
        "param": refusal.param,
        "code": refusal.code,
        "request_id": request_id,
    }
    if refusal.stage:
        payload["stage"] = refusal.stage
    return payload


def response_of(refusal: Refusal, request_id: str) -> web.Response:
    body = msgspec.json.encode({"error": payload_of(refusal, request_id)})
    response = web.Response(status=refusal.status, body=body, content_type="application/json", headers=refusal.headers)
    if refusal.close:
        response.force_close()
    return response


def _of_caller(error: InvalidRequest | NotFound | Unsupported | Cancelled) -> Refusal:
    if isinstance(error, InvalidRequest):
        return Refusal(400, error.code, error.message, param=error.param, stage=error.stage)
    if isinstance(error, NotFound):
        code = "model_not_found" if error.param == "model" else error.code
        return Refusal(404, code, error.message, param=error.param)
    if isinstance(error, Unsupported):
        return Refusal(501, "unsupported_endpoint", error.message, stage=error.stage, headers=NO_RETRY)
    return Refusal(409, error.code, error.message, stage=error.stage, headers=NO_RETRY)


def _of_admission(error: Overloaded | NotReady) -> Refusal:
    # Retry-After is whole seconds by its definition; the milliseconds beside it are exact.
    headers = {
        "Retry-After": str(max(1, math.ceil(error.retry_after_s))),
        "retry-after-ms": str(max(1, round(error.retry_after_s * 1000))),
    }
    if isinstance(error, Overloaded):
        return Refusal(429, error.code, error.message, type="rate_limit_error", headers=headers)
    draining = error.reason == "shutting_down"
    return Refusal(503, error.reason, error.message, type=SERVER, stage=error.stage, headers=headers, close=draining)


def _of_work(error: OmnirtError) -> Refusal:
    # The first line only: what follows may be a traceback, and that is for the log.
    message = error.message.partition("\n")[0] or error.code
    if isinstance(error, DeadlineExceeded):
        return Refusal(504, error.code, message, type=SERVER, stage=error.stage, headers=NO_RETRY)
    code = error.code if isinstance(error, (StageLost, StageFailed)) else "internal_error"
    return Refusal(500, code, message, type=SERVER, stage=error.stage, headers=NO_RETRY)


def _of_http(error: web.HTTPException) -> Refusal:
    if isinstance(error, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(error.allowed_methods))
        text = f"{error.method} is not allowed here; allowed: {allowed}."
        return Refusal(405, "method_not_allowed", text, headers={"Allow": allowed})
    known = {404: ("not_found", "No such route."), 413: ("request_too_large", "The body is too large.")}
    known[415] = ("unsupported_media_type", "Unsupported content type.")
    code, text = known.get(error.status, ("invalid_value" if error.status < 500 else "internal_error", error.reason))
    kind = CALLER if error.status < 500 else SERVER
    return Refusal(error.status, code, text, type=kind, close=error.status == 413)


def _short(text: str, limit: int = 100) -> str:
    return text if len(text) <= limit else text[:limit] + "..."
