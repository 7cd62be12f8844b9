"""`POST /v1/audio/transcriptions` and `/translations`: take in, decode, submit, answer, account.

A recording is decoded whole before the request is made: so whatever is wrong with it is a 400, and a retry inside the
pipeline has all of it. What that costs is bounded twice: a recording by `recording_s_max` (an hour is 115 MB), all of
them by `recordings_s_max`. From then on the pipeline holds it, and lets go of it with the first transcript.
Leaving the handler for any reason ends the request.
"""

from __future__ import annotations

from aiohttp import web

from omnirt.errors import StageFailed, error_from
from omnirt.gateway.abilities import between
from omnirt.gateway.audio_in import decoded
from omnirt.gateway.chat_usage import Reports
from omnirt.gateway.core import Core
from omnirt.gateway.errors import unsupported_endpoint
from omnirt.gateway.event_stream import EventStream
from omnirt.gateway.identity import CALLER, REQUEST_ID
from omnirt.gateway.transcription_answer import (
    Transcription,
    body_of,
    delta_event,
    done_event,
    error_event,
    segment_event,
)
from omnirt.gateway.transcription_request import Task, TranscriptionRequest, TranscriptionRules, parse_transcription
from omnirt.gateway.transcription_text import Assembly
from omnirt.gateway.transcription_upload import Uploads
from omnirt.session.service import Done, Live, Output, Submit
from omnirt.track import Track
from omnirt.wire.payload import Pcm, Transcript


class Transcriptions:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._uploads = Uploads(core)
        self._stages = between(core.service.plan, "audio", "transcript")

    async def create(self, request: web.Request) -> web.StreamResponse:
        return await self._serve(request, "transcribe")

    async def translate(self, request: web.Request) -> web.StreamResponse:
        """Into English: only where a stage says that it can."""
        plan, facts = self._core.service.plan, self._core.service.facts()
        if self._stages and not any(own.get("translation") is True for own in facts.values()):
            self._core.check_loaded()
            raise unsupported_endpoint(f"The model {plan.name} does not translate recordings.")
        return await self._serve(request, "translate")

    async def _serve(self, request: web.Request, task: Task) -> web.StreamResponse:
        core = self._core
        track = core.metrics.track("transcription", request[REQUEST_ID])
        with core.recordings.share() as share:
            async with self._uploads.receive(request, self._check) as received:
                asked = parse_transcription(received.fields, self._rules(), task)
                pieces = await decoded(core, received.file, received.param, keep=share.take)
            length_s = _seconds(pieces)
            with track:
                submit = self._submit(request, asked, pieces)
                del pieces
                live = core.service.submit(submit)
                del submit  # the pipeline lets go of the recording when it can; nobody else holds it
                async with live:
                    hearing = Hearing(live, track)
                    answer = self._stream if asked.stream else self._whole
                    response = await answer(request, asked, hearing, length_s)
                track.done(hearing.reports)
        return response

    def _check(self, fields: object) -> None:
        self._core.check(fields, bool(self._stages), "does not transcribe recordings")

    def _rules(self) -> TranscriptionRules:
        return TranscriptionRules(self._core.facts(self._stages).honoured)

    def _submit(self, request: web.Request, asked: TranscriptionRequest, pieces: list[Pcm]) -> Submit:
        return Submit(
            inputs=tuple(("audio", piece) for piece in pieces),
            outputs=("transcript",),
            params=asked.params,
            # As long as it takes to listen to it, if that is more than a request has otherwise.
            deadline_s=max(self._core.service.plan.limits.deadline_s, _seconds(pieces)),
            key=request[CALLER],
            public_id=request[REQUEST_ID],
        )

    async def _whole(
        self, request: web.Request, asked: TranscriptionRequest, hearing: Hearing, length_s: float
    ) -> web.StreamResponse:
        while await hearing.next() is not None:
            pass
        body, kind = body_of(hearing.transcription(asked, length_s))
        charset = "utf-8" if kind == "text/plain" else None
        return web.Response(body=body, content_type=kind, charset=charset)

    async def _stream(
        self, request: web.Request, asked: TranscriptionRequest, hearing: Hearing, length_s: float
    ) -> web.StreamResponse:
        async with EventStream(request, self._core.config, error_event) as events:
            while (piece := await hearing.next()) is not None:
                if piece:
                    segments = hearing.assembly.segments
                    await events.write(delta_event(piece) + segment_event(len(segments) - 1, segments[-1]))
            return await events.end(done_event(hearing.transcription(asked, length_s)))


class Hearing:
    """One request's transcripts as they come."""

    def __init__(self, live: Live, track: Track) -> None:
        self._live = live
        self._track = track
        self.assembly = Assembly()
        self.reports: Reports = {}
        """Of the stages, once they are done."""

    async def next(self) -> str | None:
        """What the next stretch adds to the text, maybe nothing; None at the end. Raises what ended the request."""
        event = await self._live.next()
        if isinstance(event, Output):
            if not isinstance(event.payload, Transcript):
                raise StageFailed(f"expected transcripts from the pipeline, got {type(event.payload).__name__}")
            piece = self.assembly.add(event.payload)
            if piece:
                self._track.text(len(event.payload.tokens) or 1)
            return piece
        if isinstance(event, Done):
            self.reports = event.reports
            return None
        raise error_from(event.failure)

    def transcription(self, asked: TranscriptionRequest, length_s: float) -> Transcription:
        return Transcription(asked, self.assembly, length_s, self.reports)


def _seconds(pieces: list[Pcm]) -> float:
    return sum(piece.samples.size for piece in pieces) / pieces[0].rate if pieces else 0.0
