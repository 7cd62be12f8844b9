"""The gateway put together: which path leads to which surface."""

from __future__ import annotations

from aiohttp import web

from omnirt.gateway.chat import Chat
from omnirt.gateway.completions import Completions
from omnirt.gateway.config import GatewayConfig
from omnirt.gateway.core import Core
from omnirt.gateway.gate import Gate
from omnirt.gateway.models import Models
from omnirt.gateway.ops import Ops
from omnirt.gateway.speech import Speech
from omnirt.gateway.speech_pipeline import SpeechPipeline
from omnirt.gateway.speech_stream import SpeechStreams
from omnirt.gateway.transcriptions import Transcriptions
from omnirt.gateway.voice_samples import VoiceSamples
from omnirt.gateway.voices import Voices
from omnirt.session.service import Service

ABSENT_POST = (
    "images/generations",
    "images/edits",
    "videos",
)
"""Routes of the API that get a 501 with the reason instead of a 404."""
ABSENT_GET = ("realtime", "duplex")


def build(service: Service, config: GatewayConfig) -> web.Application:
    """An application that serves `service`. Run it with `omnirt.gateway.serve`, whose settings it relies on."""
    core = Core(service, config)
    gate = Gate(core)
    app = web.Application(
        middlewares=[gate.middleware()],
        client_max_size=max(config.json_bytes_max, config.upload_bytes_max),
    )
    app.on_response_prepare.append(gate.on_prepare)

    async def start(_: web.Application) -> None:
        core.warm()

    async def stop(_: web.Application) -> None:
        core.close()

    async def hang_up(_: web.Application) -> None:
        await streams.close()

    samples = VoiceSamples(core)
    pipeline = SpeechPipeline(core, samples)
    streams = SpeechStreams(core, pipeline)
    app.on_startup.append(start)
    app.on_shutdown.append(hang_up)
    app.on_cleanup.append(stop)
    # In the order in which they are tried: what is asked most, first.
    _add_speech(app, core, samples, pipeline, streams)
    _add_surfaces(app, core, pipeline)
    _add_operations(app, Ops(core))
    return app


def _add_operations(app: web.Application, ops: Ops) -> None:
    for path in ("health", "ping", "ready"):
        app.router.add_get(f"/{path}", ops.health, name=path)
    app.router.add_get("/healthz", ops.alive, name="healthz")
    app.router.add_get("/version", ops.version, name="version")
    app.router.add_get("/metrics", ops.metrics, name="metrics")
    app.router.add_post(_v1("omnirt/requests/{id}/cancel"), ops.cancel, name="cancel")
    app.router.add_get(_v1("omnirt/requests/{id}/trace"), ops.trace, name="trace")
    for path in ABSENT_POST:
        app.router.add_post(_v1(path), ops.absent, name=_label(path))
    for path in ABSENT_GET:
        app.router.add_get(_v1(path), ops.absent, name=_label(path))


def _add_speech(
    app: web.Application, core: Core, samples: VoiceSamples, pipeline: SpeechPipeline, streams: SpeechStreams
) -> None:
    app.router.add_post(_v1("audio/speech"), Speech(core, pipeline).create, name="speech")
    app.router.add_get(_v1("audio/speech/stream"), streams.connect, name="speech_stream")
    voices = Voices(core, samples, pipeline)
    resource = app.router.add_resource(_v1("audio/voices"), name="voices")
    resource.add_route("GET", voices.list)
    resource.add_route("HEAD", voices.list)
    resource.add_route("POST", voices.create)
    app.router.add_delete(_v1("audio/voices/{id:.+}"), voices.delete, name="voice")


def _add_surfaces(app: web.Application, core: Core, pipeline: SpeechPipeline) -> None:
    app.router.add_post(_v1("chat/completions"), Chat(core).create, name="chat_completions")
    app.router.add_post(_v1("completions"), Completions(core).create, name="completions")
    transcriptions, models = Transcriptions(core), Models(core, pipeline)
    app.router.add_post(_v1("audio/transcriptions"), transcriptions.create, name="transcriptions")
    app.router.add_post(_v1("audio/translations"), transcriptions.translate, name="translations")
    app.router.add_get(_v1("audio/models"), models.audio, name="audio_models")
    app.router.add_get(_v1("models"), models.list, name="models")
    # A model's id may contain slashes, and clients send them escaped or not.
    app.router.add_get(_v1("models/{id:.+}"), models.retrieve, name="model")


def _v1(path: str) -> str:
    """Also matches a doubled slash after /v1: clients whose base URL ends in one send that."""
    return "/v1{slash:/+}" + path


def _label(path: str) -> str:
    return path.replace("/", "_")
