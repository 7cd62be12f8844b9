"""Voices: the list, uploads, and their end. What a name in a request stands for is in `speaker`.

Uploads are offered only where a stage says that it can use them (`cloning`, `voice_design`); elsewhere the route
answers 501, because a voice that is kept and never heard is a lie.
"""

from __future__ import annotations

from typing import Any

from aiohttp import web

from omnirt.errors import NotFound
from omnirt.gateway.core import Core
from omnirt.gateway.errors import unsupported_endpoint
from omnirt.gateway.facts import PipelineFacts
from omnirt.gateway.speech_pipeline import SpeechPipeline
from omnirt.gateway.voice_samples import VoiceSamples
from omnirt.gateway.voice_store import StoredVoice, VoiceStore
from omnirt.gateway.voice_upload import voice_from


class Voices:
    def __init__(self, core: Core, samples: VoiceSamples, pipeline: SpeechPipeline) -> None:
        self._core = core
        self._samples = samples
        self._pipeline = pipeline

    async def list(self, request: web.Request) -> web.Response:
        self._core.check_loaded()
        facts = self._pipeline.facts()
        uploaded = self._core.voices.all() if self._core.voices is not None else []
        if request.query.get("format") == "names":
            return web.json_response({"voices": [v.id for v in facts.voices] + [v.name for v in uploaded]})
        entries = [_builtin(voice.id, voice.name, voice.more, facts) for voice in facts.voices]
        entries += [entry_of(voice) for voice in uploaded]
        listing: dict[str, object] = {"object": "list", "voices": entries, "data": entries}
        listing |= {"languages": list(facts.languages), "task_types": list(facts.task_types)}
        return web.json_response(listing | {"uploaded_voices": [_uploaded(voice) for voice in uploaded]})

    async def create(self, request: web.Request) -> web.Response:
        store = self._store()
        voice = await voice_from(request, self._core, store, self._pipeline.facts(), self._samples)
        entry = entry_of(voice)
        return web.json_response(entry | {"success": True, "voice": _uploaded(voice) | {"id": voice.id}})

    async def delete(self, request: web.Request) -> web.Response:
        store = self._core.voices
        voice = store.find(request.match_info["id"]) if store is not None else None
        if voice is None or store is None:
            raise NotFound("No uploaded voice has this id or name.", param="voice")
        store.remove(voice)
        self._samples.drop(voice)
        await self._core.threaded(store.erase, voice)
        gone = {"id": voice.id, "object": "audio.voice.deleted", "deleted": True}
        return web.json_response(gone | {"success": True, "message": f"Voice {voice.name} was deleted."})

    def _store(self) -> VoiceStore:
        self._core.check_loaded()
        facts = self._pipeline.facts()
        if not (facts.cloning or facts.voice_design):
            raise unsupported_endpoint(f"The model {self._core.service.plan.name} cannot learn voices.")
        if self._core.voices is None:
            raise unsupported_endpoint("This server keeps no voices; start it with --voices DIR (of `omnirt run`).")
        return self._core.voices


def entry_of(voice: StoredVoice) -> dict[str, object]:
    """A voice as clients of the OpenAI API see it."""
    entry: dict[str, object] = {
        "id": voice.id,
        "object": "audio.voice",
        "name": voice.name,
        "created_at": voice.created_s,
        "type": voice.type,
    }
    return entry | ({"prompt": voice.prompt} if voice.prompt else {})


def _builtin(id: str, name: str, more: dict[str, Any], facts: PipelineFacts) -> dict[str, object]:
    aliases = [alias for alias, voice in facts.aliases.items() if voice == id]
    entry: dict[str, object] = {**more, "id": id, "name": name, "type": "builtin"}
    return entry | ({"aliases": aliases} if aliases else {})


def _uploaded(voice: StoredVoice) -> dict[str, object]:
    """A voice as clients of vLLM-Omni see it."""
    entry: dict[str, object] = {
        "name": voice.name,
        "consent": voice.consent,
        "created_at": voice.created_s,
        "file_size": voice.size,
        "mime_type": voice.mime_type,
        "embedding_source": "audio" if voice.type == "audio_sample" else "prompt",
    }
    optional = {"ref_text": voice.ref_text, "speaker_description": voice.speaker_description}
    return entry | {key: value for key, value in optional.items() if value}
