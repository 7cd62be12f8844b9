"""What the surfaces that speak know of the pipeline behind them: its facts, its rules, and how it is asked.

Facts count of the stages that take part: those between text and audio, and, where a voice can be copied, those on the
way from its recording.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from aiohttp import web
from msgspec import Struct, structs

from omnirt.gateway.abilities import between, makes
from omnirt.gateway.core import Core
from omnirt.gateway.facts import PipelineFacts, gather, with_reference
from omnirt.gateway.identity import CALLER, REQUEST_ID
from omnirt.gateway.speaker import speaker_of
from omnirt.gateway.speech_reference import Reference
from omnirt.gateway.speech_request import RECORDING, SpeechRequest, SpeechRules
from omnirt.gateway.voice_samples import Keep, Pieces, VoiceSamples
from omnirt.gateway.voice_store import StoredVoice
from omnirt.pipeline.router import needed_stages
from omnirt.session.service import Submit
from omnirt.wire.payload import Payload, Text
from omnirt.wire.plan import Plan

StageFacts = Mapping[str, Mapping[str, Any]]


class Voicing(Struct, frozen=True):
    """How a text is to be spoken: the same for every text of a connection."""

    asked: SpeechRequest
    params: dict[str, Any]
    recording: Pieces = ()


class _Ways(Struct, frozen=True):
    """The stages that take part: in speech, and in speech like a recording. None where no way leads there."""

    speaking: tuple[str, ...]
    copying: tuple[str, ...]


def speech_facts(plan: Plan, said: StageFacts) -> PipelineFacts:
    """`said`: by every stage of itself."""
    return _facts_along(_ways(plan), plan, said)


def _ways(plan: Plan) -> _Ways:
    speaking = between(plan, "text", "audio")
    copies = bool(speaking) and makes(plan, "audio", "audio")
    return _Ways(speaking, needed_stages(plan, ("text", "audio"), ("audio",)) if copies else ())


def _facts_along(ways: _Ways, plan: Plan, said: StageFacts) -> PipelineFacts:
    copied = gather(plan, _only(said, ways.copying)) if ways.copying else None
    return with_reference(gather(plan, _only(said, ways.speaking or said)), copied)


def _only(said: StageFacts, stages: Iterable[str]) -> StageFacts:
    return {name: said[name] for name in stages if name in said}


class SpeechPipeline:
    def __init__(self, core: Core, samples: VoiceSamples) -> None:
        self._core = core
        self._samples = samples
        self._ways = _ways(core.service.plan)
        self._said: StageFacts | None = None
        self._facts = PipelineFacts()
        """Of `_said`."""

    def check(self, body: object) -> str:
        """The name by which the body asks for this pipeline. Raises 404, 501 or 503."""
        return self._core.check(body, bool(self._ways.speaking), "does not make speech from text")

    def facts(self) -> PipelineFacts:
        said = self._core.service.facts()
        if said is not self._said:
            self._said, self._facts = said, _facts_along(self._ways, self._core.service.plan, said)
        return self._facts

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
        heard_of = "voice" if isinstance(speaker.recording, StoredVoice) else RECORDING
        if isinstance(speaker.recording, Reference):
            heard_of = speaker.recording.param
        if speaker.recording is not None:
            pieces = await self._samples.load(speaker.recording, facts, keep)
            # A stage that hears need not wait for the end of a text that is still being written.
            params["reference_samples"] = sum(piece.samples.size for piece in pieces)
        if (asked.reference, asked.heard_of) != (None, heard_of):  # what was sent may be large: it is not kept
            asked = structs.replace(asked, reference=None, heard_of=heard_of)
        return Voicing(asked, params, pieces)

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
