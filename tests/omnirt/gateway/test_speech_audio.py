"""Events in, encoded pieces out."""

import asyncio

import numpy as np
import pytest

from omnirt.errors import Failure, OmnirtError, StageFailed
from omnirt.gateway.config import GatewayConfig
from omnirt.gateway.core import Core
from omnirt.gateway.speech_audio import SpeechAudio
from omnirt.gateway.speech_request import SpeechRequest
from omnirt.session.service import Done, Failed, Output
from omnirt.testing.scripted_service import ScriptedService, tone
from omnirt.wire.payload import Pcm, Text


class Events:
    """A request that gives the events it was made with, and counts how many were read."""

    def __init__(self, *events):
        self._events = list(events)
        self.read = 0

    async def next(self):
        self.read += 1
        return self._events[self.read - 1]

    def has_output(self):
        return False


def run(events, spoken, use):
    core = Core(ScriptedService(), GatewayConfig())
    live = Events(*events)
    track = core.metrics.track("speech")
    audio = SpeechAudio(core, live, spoken, spoken.format, 24_000, track)
    try:
        return asyncio.run(use(audio, live))
    finally:
        core.close()


async def drain(audio, _):
    pieces = []
    while (piece := await audio.next()) is not None:
        pieces.append(piece)
    return pieces, audio


CHUNK = Output("audio", Pcm(tone(0.5), 24_000))
PCM = SpeechRequest("hi", format="pcm")


def test_pieces_are_the_samples_in_order_and_empty_ones_are_skipped():
    empty = Output("audio", Pcm(np.zeros(0, np.int16), 24_000))
    pieces, audio = run([empty, CHUNK, empty, CHUNK, Done()], PCM, drain)
    assert pieces == [tone(0.5).tobytes()] * 2
    assert audio.usage()["output_tokens"] == 20, "of one second"
    assert audio.rate == 24_000


def test_the_next_event_is_read_only_when_the_piece_before_was_taken():
    async def use(audio, live):
        await audio.next()
        return live.read

    assert run([CHUNK, CHUNK, Done()], PCM, use) == 1


def test_after_the_end_there_is_nothing_more():
    async def use(audio, live):
        await drain(audio, live)
        return await audio.next(), live.read

    assert run([CHUNK, Done()], PCM, use) == (None, 2)


def test_usage_is_what_the_stages_counted_or_a_documented_estimate():
    _, counted = run([CHUNK, Done({"voice": {"input_tokens": 7, "output_tokens": 9}})], PCM, drain)
    assert [counted.usage()[name] for name in ("input_tokens", "output_tokens", "total_tokens")] == [7, 9, 16]
    _, estimated = run([CHUNK, Done()], PCM, drain)
    assert [estimated.usage()[name] for name in ("input_tokens", "output_tokens", "total_tokens")] == [2, 10, 12]
    _, odd = run([CHUNK, Done({"voice": {"input_tokens": -7}})], PCM, drain)
    assert odd.usage()["input_tokens"] == 2, "as if it had said nothing"


@pytest.mark.parametrize(
    "events",
    [
        [Output("text", Text("hi"))],
        [CHUNK, Output("audio", Pcm(tone(0.1), 16_000))],
        [CHUNK, Failed(Failure("stage_failed", "m"))],
    ],
)
def test_what_is_not_audio_of_one_rate_is_a_failure_of_the_pipeline(events):
    with pytest.raises(StageFailed):
        run(events, PCM, drain)


def test_a_failure_keeps_its_kind():
    with pytest.raises(OmnirtError) as caught:
        run([Failed(Failure("timeout", "late"))], PCM, drain)
    assert caught.value.code == "timeout"


def test_samples_are_copied_before_they_go_to_a_thread():
    async def use(audio, _):
        samples = tone(2.0)
        audio._live = Events(Output("audio", Pcm(samples, 24_000)), Done())
        piece = await audio.next()
        samples[:] = 0
        return piece

    flac = SpeechRequest("hi", format="flac")
    assert run([], flac, use)
