"""Speaks the units of a connection, one after the other.

    audio.start {utterance_index, sentence_index, sentence_text, format, sample_rate, channels, request_id}
    binary frames: the encoded audio; one frame where it is not streamed
    audio.done  {..., sentence_text, total_bytes, error, usage}

`sentence_text` is what the client had sent when the unit's speech began, and at its end all that was spoken. Where
speech ends before its text (the model chose to, or was told how much to make), what came later is a unit of its own.
Invariant: each unit has one `audio.start` and one `audio.done`, in this order, whatever becomes of it; an error in it
is said before its `audio.done`, and ends nothing else.
"""

from __future__ import annotations

from aiohttp import web

from omnirt.errors import OmnirtError, StageFailed
from omnirt.gateway.core import Core
from omnirt.gateway.errors import ApiError, refusal_of
from omnirt.gateway.identity import REQUEST_ID
from omnirt.gateway.media import wav_header
from omnirt.gateway.socket_out import SocketOut
from omnirt.gateway.speech_audio import SpeechAudio
from omnirt.gateway.speech_pipeline import SpeechPipeline
from omnirt.gateway.speech_unit import Unit
from omnirt.gateway.utterances import Complain, Flush, Lost

Item = Unit | Lost | Flush


class StreamVoice:
    def __init__(self, core: Core, pipeline: SpeechPipeline, request: web.Request, out: SocketOut) -> None:
        self._core = core
        self._pipeline = pipeline
        self._request = request
        self._out = out
        self._requests = 0
        self.spoken = 0
        """Units that are over."""
        self._further = 0
        """Units of the utterance beyond those that its text was cut into."""
        self._is_incomplete = False
        """Whether a unit of the utterance was not spoken to its end."""

    async def say(self, item: Item) -> None:
        if isinstance(item, Flush):
            count = item.sentences + self._further
            done = {"type": "session.done", "utterance_index": item.utterance, "total_sentences": count}
            await self._out.event(done | {"error": item.error or self._is_incomplete})
            self._is_incomplete, self._further = False, 0
        elif isinstance(item, Lost):
            answer = _Answer(self._out, item.utterance, item.sentence + self._further)
            await answer.end(error=True)
        else:
            while await self._speak(item):
                pass
            self.spoken += 1

    async def _speak(self, unit: Unit) -> bool:
        """Whether there is text left."""
        self._further += unit.is_further
        answer = _Answer(self._out, unit.utterance, unit.sentence + self._further, unit)
        usage: dict[str, object] | None = None
        try:
            if not unit.is_aborted:
                usage = await self._asked(unit, answer)
        except (ApiError, OmnirtError) as error:
            if not unit.is_aborted:  # else it is the end that was asked for
                await self._out.event(error_event(complaint_of(error), unit.utterance))
        finally:
            unit.detach()
        self._is_incomplete |= usage is None
        await answer.end(error=usage is None, usage=usage)
        return unit.goes_on(has_failed=usage is None)

    async def _asked(self, unit: Unit, answer: _Answer) -> dict[str, object]:
        """The unit's usage, once all of its audio was sent."""
        core, asked = self._core, unit.settings.voicing.asked
        self._requests += 1
        public_id = f"{self._request[REQUEST_ID]}-{self._requests}"
        answer.request_id = public_id
        track = core.metrics.track("speech", public_id)
        given = len(unit.text)
        submit = self._pipeline.submit(
            self._request, unit.settings.voicing, unit.text, public_id, is_open=not unit.is_whole
        )
        # As one frame, wav is collected as samples, so that its header can be exact.
        pieces = "pcm" if asked.format == "wav" and not unit.settings.is_streamed else asked.format
        with track:
            async with core.service.submit(submit) as live:
                del submit
                unit.attach(live, given)
                audio = SpeechAudio(core, live, asked, pieces, unit.settings.rate, track)
                await self._deliver(audio, unit, answer)
            track.done(audio.reports)
        return audio.usage(len(unit.spoken))

    async def _deliver(self, audio: SpeechAudio, unit: Unit, answer: _Answer) -> None:
        body = bytearray()
        while (piece := await audio.next()) is not None:
            await answer.begin(audio.rate)
            if unit.settings.is_streamed:
                await answer.frame(piece)
                continue
            body += piece
            if len(body) > self._core.config.complete_bytes_max:
                raise StageFailed(f"the audio is over {self._core.config.complete_bytes_max} bytes; use stream_audio")
        if not unit.settings.is_streamed:
            await answer.begin(audio.rate)
            head = wav_header(audio.rate, len(body)) if audio.asked_format == "wav" else b""
            await answer.frame(head + bytes(body))


class _Answer:
    """One unit's frames."""

    def __init__(self, out: SocketOut, utterance: int, sentence: int, unit: Unit | None = None) -> None:
        self._out = out
        self._place = {"utterance_index": utterance, "sentence_index": sentence}
        self._unit = unit
        self._bytes = 0
        self._begun = False
        self.request_id = ""

    async def begin(self, rate: int | None = None) -> None:
        if self._begun:
            return
        self._begun = True
        event: dict[str, object] = {"type": "audio.start", **self._place, "sentence_text": ""}
        if self._unit is not None:
            event |= {"sentence_text": self._unit.text, "format": self._unit.settings.voicing.asked.format}
        if rate is not None:
            event |= {"sample_rate": rate, "channels": 1}
        await self._out.event(event | ({"request_id": self.request_id} if self.request_id else {}))

    async def frame(self, data: bytes) -> None:
        if data:
            self._bytes += len(data)
            await self._out.audio(data)

    async def end(self, *, error: bool, usage: dict[str, object] | None = None) -> None:
        await self.begin()
        done: dict[str, object] = {"type": "audio.done", **self._place}
        done |= {"sentence_text": self._unit.spoken if self._unit is not None else ""}
        done |= {"total_bytes": self._bytes, "error": error}
        await self._out.event(done | ({"usage": usage} if usage is not None else {}))


def complaint_of(error: Exception) -> Complain:
    refusal = refusal_of(error)
    return Complain(refusal.message, refusal.code, refusal.param)


def error_event(complaint: Complain, utterance: int | None = None) -> dict[str, object]:
    event: dict[str, object] = {"type": "error", "message": complaint.message, "code": complaint.code}
    event["param"] = complaint.param
    return event | ({} if utterance is None else {"utterance_index": utterance})
