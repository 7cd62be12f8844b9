"""`POST /v1/audio/speech`: check, submit, deliver, account. Leaving the handler for any reason ends the request."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from omnirt.gateway.abilities import between
from omnirt.gateway.body import read_json
from omnirt.gateway.core import Core
from omnirt.gateway.delivery import SENDERS
from omnirt.gateway.facts import PipelineFacts
from omnirt.gateway.identity import CALLER, REQUEST_ID
from omnirt.gateway.speech_audio import SpeechAudio
from omnirt.gateway.speech_request import SpeechRequest, SpeechRules, parse_speech
from omnirt.gateway.voices import voice_params
from omnirt.session.service import Submit
from omnirt.wire.payload import Text


class Speech:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._stages = between(core.service.plan, "text", "audio")

    async def create(self, request: web.Request) -> web.StreamResponse:
        core = self._core
        track = core.metrics.track("speech", request[REQUEST_ID])
        body = await read_json(request, core.config.json_bytes_max)
        core.check(body, bool(self._stages), "does not make speech from text")
        facts = core.facts(self._stages)
        spoken = parse_speech(body, self._rules(facts))
        submit = self._submit(request, spoken, facts)
        # wav as a whole is collected as samples, so that its header can be exact.
        pieces = "pcm" if (spoken.format, spoken.delivery) == ("wav", "complete") else spoken.format
        with track:
            async with core.service.submit(submit) as live:
                audio = SpeechAudio(core, live, spoken, pieces, facts.sample_rate, track)
                send = SENDERS[spoken.delivery]
                response = await send(request, audio, core.config)
            track.done(audio.reports)
        return response

    def _rules(self, facts: PipelineFacts) -> SpeechRules:
        return SpeechRules(
            input_chars_max=self._core.service.plan.limits.input_chars_max,
            instructions_chars_max=self._core.config.instructions_chars_max,
            default_format=self._core.config.default_format,
            honoured=facts.honoured,
            languages=facts.languages,
        )

    def _submit(self, request: web.Request, spoken: SpeechRequest, facts: PipelineFacts) -> Submit:
        params: dict[str, Any] = {"speed": spoken.speed, **spoken.params}
        params.update(voice_params(spoken.voice, facts, self._core.voices))
        return Submit(
            inputs=(("text", Text(spoken.text)),),
            outputs=("audio",),
            params=params,
            seed=spoken.seed,
            key=request[CALLER],
            public_id=request[REQUEST_ID],
        )
