"""What the surfaces that speak know of the pipeline behind them: its facts, its rules, and how it is asked.

Facts count of the stages that take part: those between text and audio, and, where a voice can be copied, those on the
way from its recording.
"""

from __future__ import annotations

from typing import Any

from aiohttp import web
from msgspec import Struct, structs

from omnirt.gateway.abilities import between, makes
from omnirt.gateway.core import Core
from omnirt.gateway.facts import PipelineFacts, with_reference
from omnirt.gateway.identity import CALLER, REQUEST_ID
from omnirt.gateway.speaker import speaker_of
from omnirt.gateway.speech_request import SpeechRequest, SpeechRules
from omnirt.gateway.voice_samples import Keep, Pieces, VoiceSamples
from omnirt.pipeline.router import needed_stages
from omnirt.session.service import Submit
from omnirt.wire.payload import Payload, Text


class Voicing(Struct, frozen=True):
    """How a text is to be spoken: the same for every text of a connection."""

    asked: SpeechRequest
    params: dict[str, Any]
    recording: Pieces = ()


class SpeechPipeline:
    def __init__(self, core: Core, samples: VoiceSamples) -> None:
        self._core = core
        self._samples = samples
        plan = core.service.plan
        self._stages = between(plan, "text", "audio")
        self._copying: tuple[str, ...] = ()
        if self._stages and makes(plan, "audio", "audio"):
            self._copying = needed_stages(plan, ("text", "audio"), ("audio",))

    def check(self, body: object) -> str:
        """The name by which the body asks for this pipeline. Raises 404, 501 or 503."""
        return self._core.check(body, bool(self._stages), "does not make speech from text")

    def facts(self) -> PipelineFacts:
        copied = self._core.facts(self._copying) if self._copying else None
        return with_reference(self._core.facts(self._stages or None), copied)

    def rules(self, facts: PipelineFacts, default_format: str = "") -> SpeechRules:
        return SpeechRules(
            input_chars_max=self._core.service.plan.limits.input_chars_max,
            instructions_chars_max=self._core.config.instructions_chars_max,
            default_format=default_format or self._core.config.default_format,
            facts=facts,
        )

    async def voicing(self, asked: SpeechRequest, facts: PipelineFacts, keep: Keep) -> Voicing:
        """`keep` is asked for the room of a recording, in seconds. Raises a 4xx that names the field."""
        speaker = speaker_of(asked, facts, self._core.voices)
        params: dict[str, Any] = {"speed": asked.speed, **asked.params, **speaker.params}
        pieces: Pieces = ()
        if speaker.recording is not None:
            pieces = await self._samples.load(speaker.recording, facts, keep)
            # A stage that hears need not wait for the end of a text that is still being written.
            params["reference_samples"] = sum(piece.samples.size for piece in pieces)
        return Voicing(structs.replace(asked, reference=None), params, pieces)  # what was sent may be large

    def submit(
        self, request: web.Request, voicing: Voicing, text: str, public_id: str = "", *, is_open: bool = False
    ) -> Submit:
        """`is_open`: more text follows."""
        inputs: list[tuple[str, Payload]] = [("text", Text(text))]
        inputs += [("audio", piece) for piece in voicing.recording]
        return Submit(
            inputs=tuple(inputs),
            outputs=("audio",),
            params=voicing.params,
            seed=voicing.asked.seed,
            key=request[CALLER],
            public_id=public_id or request[REQUEST_ID],
            input_open=is_open,
        )
