"""What happens around every handler: the request's name, browsers' questions, keys, drain, and the shape of errors.

Invariant: every answer passes here, also those for unknown routes, so every answer has `x-request-id`, CORS headers
and, when it is an error, the envelope; only bytes that are not HTTP, and an unknown Expect, get a plain 4xx from the
library. This is one of two places that catch broadly: it ends the work it was doing.
"""

from __future__ import annotations

import asyncio
import logging

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from omnirt.clock import monotonic_ns
from omnirt.errors import NotReady, OmnirtError
from omnirt.gateway.auth import caller_of
from omnirt.gateway.body import check_encoding
from omnirt.gateway.core import Core
from omnirt.gateway.cors import is_preflight, origin_headers, preflight
from omnirt.gateway.errors import ApiError, refusal_of, response_of, unknown_route
from omnirt.gateway.identity import CALLER, REQUEST_ID, RESPONSE, request_id_of
from omnirt.gateway.outlet import break_off

ARRIVED_NS = web.RequestKey("arrived_ns", int)
CLIENT_GONE = 499
"""Never sent: the status in the log and metrics of a request whose client left."""
GOODBYES = (0, 1000, 1001, 1005)
"""Close codes of WebSockets that end as they should (0 and 1005: the client named none)."""
DRAIN_RETRY_S = 5.0
log = logging.getLogger("omnirt.gateway")

EXPECTED = (ApiError, OmnirtError, web.HTTPException, web.RequestPayloadError)
"""What is no mistake of ours."""
UNKNOWN = "none"
"""The route, in metrics, of what leads nowhere."""
PATH_CHARS_MAX = 200
PROBES = frozenset({"health", "healthz", "ping", "ready", "metrics"})


class Gate:
    def __init__(self, core: Core) -> None:
        self._core = core

    def middleware(self) -> Middleware:
        @web.middleware
        async def gate(request: web.Request, handler: Handler) -> web.StreamResponse:
            return await self._pass(request, handler)

        return gate

    async def on_prepare(self, request: web.Request, response: web.StreamResponse) -> None:
        """Headers of every answer, also of streams and upgrades."""
        if REQUEST_ID not in request:  # refused before it came here: an Expect that nobody knows
            self._name(request)
        response.headers["x-request-id"] = request[REQUEST_ID]
        response.headers["Server"] = "omnirt"
        response.headers["openai-processing-ms"] = str((monotonic_ns() - request[ARRIVED_NS]) // 1_000_000)
        response.headers.update(origin_headers(request.headers.get("Origin"), self._core.config.cors_origins))
        request[RESPONSE] = response

    async def _pass(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self._name(request)
        try:
            response = await self._admitted(request, handler)
        except asyncio.CancelledError:
            self._record(request, _status_without(request))
            raise
        except ConnectionError:
            self._record(request, _status_without(request))
            return request.get(RESPONSE) or web.Response(status=CLIENT_GONE)
        except Exception as error:  # noqa: BLE001 - whatever it is, the client gets an envelope
            return self._failed(request, error)
        self._record(request, response.status)
        return response

    def _name(self, request: web.Request) -> None:
        request[ARRIVED_NS] = monotonic_ns()
        request[REQUEST_ID] = request_id_of(request.headers.get("X-Request-Id"))
        request[CALLER] = ""

    async def _admitted(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if is_preflight(request):
            return preflight(request.headers, self._core.config.cors_origins)
        request[CALLER] = caller_of(request, self._core.keys, self._core.config)
        if request.path.startswith("/v1/") and not request.path.endswith("/cancel"):
            self._refuse_while_draining()
        check_encoding(request)
        return await handler(request)

    def _refuse_while_draining(self) -> None:
        if self._core.service.condition() == "draining":
            raise NotReady("The server is shutting down.", reason="shutting_down", retry_after_s=DRAIN_RETRY_S)

    def _failed(self, request: web.Request, error: Exception) -> web.StreamResponse:
        is_unknown = isinstance(error, web.HTTPNotFound)
        refusal = unknown_route(request.method, request.path) if is_unknown else refusal_of(error)
        if not isinstance(error, EXPECTED):
            log.error("a handler failed: %r", error, exc_info=error, extra={"request": request[REQUEST_ID]})
        self._record(request, refusal.status, f"{refusal.code}: {refusal.message}")
        started = request.get(RESPONSE)
        if started is None:
            return response_of(refusal, request[REQUEST_ID])
        break_off(request, self._core.config.stall_s)
        return started

    def _record(self, request: web.Request, status: int, reason: str = "") -> None:
        resource = request.match_info.route.resource
        route = (resource.name if resource is not None else None) or UNKNOWN
        self._core.metrics.answered(route, status)
        took_ms = (monotonic_ns() - request[ARRIVED_NS]) // 1_000_000
        fields = {"request": request[REQUEST_ID], "status": status, "took_ms": took_ms}
        if reason:
            fields["reason"] = reason
        # The metric's label has few values; what nobody knows is logged as it was asked for.
        shown = route if route != UNKNOWN else request.path[:PATH_CHARS_MAX]
        log.log(_level_of(route, status), "%s %s", request.method, shown, extra=fields)


def _status_without(request: web.Request) -> int:
    """Of a request whose client is gone. Who closes a WebSocket properly may hang up before the handler has ended."""
    response = request.get(RESPONSE)
    is_closed_well = isinstance(response, web.WebSocketResponse) and response.close_code in GOODBYES
    return response.status if response is not None and is_closed_well else CLIENT_GONE


def _level_of(route: str, status: int) -> int:
    """What probes ask every few seconds is not news."""
    if route in PROBES:
        return logging.DEBUG
    return logging.WARNING if status in (500, 504) else logging.INFO
