"""The list of models: this pipeline under each of its names, with what it can do."""

from __future__ import annotations

from aiohttp import web

from omnirt.gateway.abilities import endpoints, hears, speaks
from omnirt.gateway.core import Core
from omnirt.gateway.errors import unknown_model
from omnirt.gateway.speech_pipeline import SpeechPipeline


class Models:
    def __init__(self, core: Core, pipeline: SpeechPipeline) -> None:
        self._core = core
        self._pipeline = pipeline

    async def list(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [self._entry(name) for name in self._core.model_names()]})

    async def retrieve(self, request: web.Request) -> web.Response:
        name = request.match_info["id"]
        if name not in self._core.model_names():
            raise unknown_model(name, self._core.model_names())
        return web.json_response(self._entry(name))

    async def audio(self, _: web.Request) -> web.Response:
        """What Open WebUI asks for the models of its voices and of its recognisers."""
        plan = self._core.service.plan
        names = self._core.model_names() if speaks(plan) or hears(plan) else ()
        return web.json_response({"models": [{"id": name, "name": name} for name in names]})

    def _entry(self, name: str) -> dict[str, object]:
        plan = self._core.service.plan
        facts = self._pipeline.facts()
        extension: dict[str, object] = {
            "modalities": {"input": list(plan.inputs), "output": list(plan.outputs)},
            "endpoints": endpoints(plan),
            "limits": {"requests_max": plan.limits.requests_max, "input_chars_max": plan.limits.input_chars_max},
        }
        if "audio" in plan.outputs:
            extension |= {"sample_rate": facts.sample_rate, "voices": [voice.id for voice in facts.voices]}
            extension |= {"languages": list(facts.languages), "task_types": list(facts.task_types)}
        return {
            "id": name,
            "object": "model",
            "created": self._core.created_s,
            "owned_by": "omnirt",
            "root": plan.name,
            "parent": None,
            "omnirt": extension,
        }
