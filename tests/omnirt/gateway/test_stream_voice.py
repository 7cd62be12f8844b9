"""What one unit's frames look like, whatever becomes of it."""

import asyncio
from types import SimpleNamespace

import pytest

from omnirt.errors import InvalidRequest
from omnirt.gateway.config import GatewayConfig
from omnirt.gateway.core import Core
from omnirt.gateway.errors import invalid
from omnirt.gateway.identity import CALLER, REQUEST_ID
from omnirt.gateway.speech_pipeline import SpeechPipeline, Voicing
from omnirt.gateway.speech_request import SpeechRequest
from omnirt.gateway.speech_unit import Unit
from omnirt.gateway.stream_settings import Settings
from omnirt.gateway.stream_voice import StreamVoice, complaint_of, error_event
from omnirt.gateway.utterances import Complain, Flush, Lost
from omnirt.gateway.voice_samples import VoiceSamples
from omnirt.testing.scripted_service import Fail, ScriptedService, chunks_of, tone

SPEECH = tone(0.2).tobytes()


class Out:
    def __init__(self):
        self.said = []

    async def event(self, value):
        self.said.append(value)

    async def audio(self, data):
        self.said.append(data)


def said(*items, script=lambda _: chunks_of(tone(0.2)), **config):
    """What the client hears."""

    async def speak():
        core = Core(ScriptedService(script=script), GatewayConfig(**config))
        request = {REQUEST_ID: "req", CALLER: ""}
        voice = StreamVoice(core, SpeechPipeline(core, VoiceSamples(core)), request, out)
        for item in items:
            await voice.say(item)
        core.close()
        return SimpleNamespace(service=core.service, spoken=voice.spoken)

    out = Out()
    return out.said, asyncio.run(speak())


def unit(text="hello", is_streamed=True, whole=True, **asked):
    voicing = Voicing(SpeechRequest(**{"format": "pcm"} | asked), {"voice": "heart"})
    made = Unit(2, 1, Settings(voicing, 24_000, is_streamed), text, 4096)
    if whole:
        made.finish()
    return made


def test_a_unit_begins_is_heard_and_ends():
    heard, after = said(unit())
    start, *audio, done = heard
    place = {"utterance_index": 2, "sentence_index": 1}
    form = {"format": "pcm", "sample_rate": 24_000, "channels": 1, "request_id": "req-1"}
    assert start == {"type": "audio.start", **place, "sentence_text": "hello", **form}
    assert b"".join(audio) == SPEECH
    assert done.pop("usage")["total_tokens"] > 0
    ended = {"sentence_text": "hello", "total_bytes": len(SPEECH), "error": False}
    assert done == {"type": "audio.done", **place, **ended}
    assert after.spoken == 1


def test_in_one_piece_it_is_one_frame():
    assert [frame for frame in said(unit(is_streamed=False))[0] if isinstance(frame, bytes)] == [SPEECH]
    (whole,) = [frame for frame in said(unit(is_streamed=False, format="wav"))[0] if isinstance(frame, bytes)]
    assert whole[44:] == SPEECH
    assert int.from_bytes(whole[40:44], "little") == len(SPEECH)


def test_a_unit_without_a_sound_has_its_frames_too():
    start, done = said(unit(), script=lambda _: [])[0]
    assert (start["type"], done["type"], done["error"], done["total_bytes"]) == ("audio.start", "audio.done", False, 0)


@pytest.mark.parametrize("made", [[], chunks_of(tone(0.1))])
def test_a_failure_is_said_before_the_end(made):
    heard, after = said(unit(), script=lambda _: [*made, Fail("stage_failed", "it broke")])
    events = [item for item in heard if isinstance(item, dict)]
    assert sorted(event["type"] for event in events) == ["audio.done", "audio.start", "error"]
    error = next(event for event in events if event["type"] == "error")
    assert (error["message"], error["code"], error["utterance_index"]) == ("it broke", "stage_failed", 2)
    assert events[-1]["error"]
    assert after.spoken == 1


def test_more_than_may_be_collected_is_an_error_of_that_unit():
    heard, _ = said(unit(is_streamed=False), complete_bytes_max=100)
    assert [item["type"] for item in heard] == ["audio.start", "error", "audio.done"]
    assert "stream_audio" in heard[1]["message"]


def test_a_unit_that_was_given_up_is_not_asked_for_and_ends_without_another_word():
    given_up = unit(whole=False)
    given_up.abort()
    heard, after = said(given_up)
    assert [item["type"] for item in heard] == ["audio.start", "audio.done"]
    assert heard[1]["error"]
    assert after.service.submitted == []


def test_the_end_of_an_utterance_says_that_a_unit_of_it_failed():
    def script(submit):
        is_bad = submit.inputs[0][1].text == "bad"
        return [Fail("stage_failed", "it broke")] if is_bad else chunks_of(tone(0.1))

    heard, _ = said(unit("bad"), unit("good"), Flush(0, 2), unit("good"), Flush(1, 1), script=script)
    ends = [item["error"] for item in heard if isinstance(item, dict) and item["type"] == "session.done"]
    assert ends == [True, False]


def test_lost_units_and_ends_of_utterances_have_their_events():
    heard, after = said(Lost(0, 3), Flush(0, 4, error=True))
    assert [item["type"] for item in heard] == ["audio.start", "audio.done", "session.done"]
    assert (heard[1]["sentence_index"], heard[1]["error"]) == (3, True)
    assert heard[2] == {"type": "session.done", "utterance_index": 0, "total_sentences": 4, "error": True}
    assert after.spoken == 0


def test_errors_are_flat():
    assert complaint_of(invalid("no", "voice")) == Complain("no", "invalid_value", "voice")
    assert complaint_of(InvalidRequest("no", param="x")) == Complain("no", "invalid_value", "x")
    event = {"type": "error", "message": "no", "code": "c", "param": None}
    assert error_event(Complain("no", "c")) == event
    assert error_event(Complain("no", "c"), 3) == event | {"utterance_index": 3}
