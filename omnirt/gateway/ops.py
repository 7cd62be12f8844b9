"""Operations: health, version, metrics, cancel, trace, and the routes that are known but have nothing behind them here.

`/health`, `/ping` and `/ready` tell whether a request would be served, and name the stage when not; `/healthz` only
says that the process answers.
"""

from __future__ import annotations

import asyncio

from aiohttp import web

import omnirt
from omnirt.errors import NotFound
from omnirt.gateway.body import read_json
from omnirt.gateway.core import Core
from omnirt.gateway.errors import unsupported_endpoint
from omnirt.metrics_text import CONTENT_TYPE
from omnirt.session.service import ServiceState
from omnirt.trace import trace_json
from omnirt.trace_files import KEPT

STATS_DEADLINE_S = 2.0
STATUS = {
    "ready": "healthy",
    "degraded": "degraded",
    "loading": "loading",
    "unavailable": "unhealthy",
    "draining": "draining",
}


class Ops:
    def __init__(self, core: Core) -> None:
        self._core = core

    async def health(self, _: web.Request) -> web.Response:
        state = self._core.service.state()
        serves = state.state in ("ready", "degraded")
        return web.json_response(_report(state), status=200 if serves else 503)

    async def alive(self, _: web.Request) -> web.Response:
        return web.Response(text="OK\n")

    async def version(self, _: web.Request) -> web.Response:
        return web.json_response({"version": omnirt.__version__})

    async def metrics(self, _: web.Request) -> web.Response:
        state = self._core.service.state()
        try:
            async with asyncio.timeout(STATS_DEADLINE_S):
                processes = await self._core.service.stats()
        except TimeoutError:  # a hung node does not hide the figures of the others for ever
            processes = {}
        pipeline = {
            "up": float(state.state in ("ready", "degraded")),
            "requests_running": state.running,
            "requests_waiting": state.waiting,
            "request_slots": state.slots,
        }
        stages = {
            stage.name: {"ready": stage.ready, "replicas": stage.replicas, "restarts_total": stage.restarts}
            for stage in state.stages
        }
        about = {"pipeline": self._core.service.plan.name, "version": omnirt.__version__}
        body = self._core.metrics.expose(pipeline, stages, processes, about)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})

    async def cancel(self, request: web.Request) -> web.Response:
        name = request.match_info["id"]
        outcome = self._core.service.cancel(name)
        if outcome == "unknown":
            raise NotFound("No request has this id.", param="id")
        return web.json_response({"id": name, "object": "request", "status": outcome})

    async def trace(self, request: web.Request) -> web.Response:
        """The timeline of one of the last requests that ended, as a file for Perfetto or chrome://tracing."""
        timeline = self._core.traces.get(request.match_info["id"])
        if timeline is None:
            raise NotFound(f"None of the last {KEPT} requests that ended has this id.", param="id")
        return web.Response(body=trace_json(timeline), content_type="application/json")

    async def absent(self, request: web.Request) -> web.StreamResponse:
        """A route of the API that this pipeline has nothing for. Broken bodies and unknown models come first."""
        if request.method == "POST" and request.content_type == "application/json":
            self._core.model_of(await read_json(request, self._core.config.json_bytes_max))
        raise unsupported_endpoint(f"The model {self._core.service.plan.name} does not support this endpoint.")


def _report(state: ServiceState) -> dict[str, object]:
    troubled = [stage for stage in state.stages if stage.state != "ready" or stage.ready < stage.replicas]
    report: dict[str, object] = {
        "status": STATUS.get(state.state, state.state),
        "stages": [
            {
                "name": stage.name,
                "state": stage.state,
                "ready": stage.ready,
                "replicas": stage.replicas,
                "restarts": stage.restarts,
                "detail": stage.detail,
            }
            for stage in state.stages
        ],
        "running": state.running,
        "waiting": state.waiting,
        "slots": state.slots,
    }
    if troubled:
        parts = (f"stage {stage.name} is {stage.state} ({stage.ready} of {stage.replicas} ready)" for stage in troubled)
        report["reason"] = "; ".join(parts)
    return report
