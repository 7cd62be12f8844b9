"""`POST /v1/audio/speech`: check, submit, deliver, account. Leaving the handler for any reason ends the request."""

from __future__ import annotations

from aiohttp import web

from omnirt.gateway.body import read_json
from omnirt.gateway.core import Core
from omnirt.gateway.delivery import SENDERS
from omnirt.gateway.identity import REQUEST_ID
from omnirt.gateway.speech_audio import SpeechAudio
from omnirt.gateway.speech_pipeline import SpeechPipeline
from omnirt.gateway.speech_request import parse_speech


class Speech:
    def __init__(self, core: Core, pipeline: SpeechPipeline) -> None:
        self._core = core
        self._pipeline = pipeline

    async def create(self, request: web.Request) -> web.StreamResponse:
        core, pipeline = self._core, self._pipeline
        track = core.metrics.track("speech", request[REQUEST_ID])
        body = await read_json(request, core.config.json_bytes_max)
        pipeline.check(body)
        facts = pipeline.facts()
        spoken = parse_speech(body, pipeline.rules(facts))
        del body
        # wav as a whole is collected as samples, so that its header can be exact.
        pieces = "pcm" if (spoken.format, spoken.delivery) == ("wav", "complete") else spoken.format
        with core.recordings.share() as share:
            voicing = await pipeline.voicing(spoken, facts, share.take)
            spoken, submit = voicing.asked, pipeline.submit(request, voicing, spoken.text)
            with track:
                async with core.service.submit(submit) as live:
                    del submit, voicing  # nobody but the pipeline holds the recording
                    audio = SpeechAudio(core, live, spoken, pieces, facts.sample_rate, track)
                    send = SENDERS[spoken.delivery]
                    response = await send(request, audio, core.config)
                track.done(audio.reports)
        return response
