"""The spoken half of an answer: formats, rates, and what is kept of it."""

import asyncio
import io

import av
import numpy as np
import pytest

from omnirt.errors import StageFailed
from omnirt.gateway.audio_ids import AudioIds
from omnirt.gateway.chat_audio import AnswerAudio
from omnirt.gateway.config import GatewayConfig
from omnirt.gateway.core import Core
from omnirt.gateway.media import wav_header
from omnirt.testing.scripted_chat import chatting
from omnirt.testing.scripted_service import ScriptedService, tone
from omnirt.wire.payload import Pcm


@pytest.fixture
def core():
    made = Core(ScriptedService(**chatting()), GatewayConfig())
    yield made
    made.close()


def encoded(core, format, samples, rate=24_000, whole=True, pieces=5):
    async def run():
        audio = AnswerAudio(core, AudioIds(), format, 24_000, whole=whole)
        data = [await audio.feed(Pcm(piece, rate)) for piece in np.array_split(samples, pieces)]
        return audio, [*data, await audio.flush()]

    return asyncio.run(run())


@pytest.mark.parametrize("whole", [True, False])
def test_pcm16_is_the_samples(core, whole):
    audio, data = encoded(core, "pcm16", tone(0.5), whole=whole)
    assert b"".join(data) == tone(0.5).tobytes()
    assert (audio.rate, audio.frames) == (24_000, 12_000)


def test_pcm16_has_the_rate_that_clients_take_it_to_have(core):
    audio, data = encoded(core, "pcm16", tone(0.5, rate=16_000), rate=16_000)
    assert all(len(piece) % 2 == 0 for piece in data)
    assert abs(len(b"".join(data)) - 24_000) < 100
    assert (audio.rate, audio.frames) == (24_000, 12_000)


def test_wav_as_a_whole_is_collected_without_its_header(core):
    audio, data = encoded(core, "wav", tone(0.5, rate=16_000), rate=16_000)
    assert b"".join(data) == tone(0.5, rate=16_000).tobytes()
    assert audio.rate == 16_000


def test_wav_in_pieces_begins_with_an_open_header(core):
    _, data = encoded(core, "wav", tone(0.5), whole=False)
    assert data[0][:44] == wav_header(24_000, None)
    assert b"".join(data)[44:] == tone(0.5).tobytes()


@pytest.mark.parametrize("format", ["mp3", "opus", "aac", "flac"])
def test_codecs_give_one_file(core, format):
    _, data = encoded(core, format, tone(0.5))
    frames = list(av.open(io.BytesIO(b"".join(data))).decode(audio=0))
    assert abs(sum(frame.samples for frame in frames) / frames[0].sample_rate - 0.5) < 0.1


def test_silence_from_the_start_is_an_empty_answer(core):
    async def run():
        audio = AnswerAudio(core, AudioIds(), "pcm16", 24_000, whole=False)
        return await audio.flush(), audio.frames

    assert asyncio.run(run()) == (b"", 0)


def test_a_pipeline_that_changes_its_rate_has_failed(core):
    async def run():
        audio = AnswerAudio(core, AudioIds(), "pcm16", 24_000, whole=False)
        await audio.feed(Pcm(tone(0.1), 24_000))
        await audio.feed(Pcm(tone(0.1), 16_000))

    with pytest.raises(StageFailed, match="16000"):
        asyncio.run(run())


def test_what_it_said_is_kept_under_its_id(core):
    ids = AudioIds(lambda: 1000)
    audio = AnswerAudio(core, ids, "pcm16", 24_000, whole=True)
    assert audio.keep("hello") == 4600
    assert ids.transcript(audio.id) == "hello"
