"""Answers in one piece."""

import asyncio
import struct

import pytest

from omnirt.errors import StageFailed
from omnirt.gateway.audio_ids import AudioIds
from omnirt.gateway.chat_audio import AnswerAudio
from omnirt.gateway.chat_complete import Whole, chat_choice, read_whole
from omnirt.gateway.chat_usage import Counts
from omnirt.gateway.config import GatewayConfig
from omnirt.gateway.core import Core
from omnirt.session.service import Submit
from omnirt.testing.scripted_chat import chatting
from omnirt.testing.scripted_service import Fail, Report, Say, SayText, ScriptedService, tone
from omnirt.wire.payload import TokenLogprob

TOKEN = TokenLogprob("a", b"a", -0.5)


def read(steps, format=None, bytes_max=1 << 20):
    async def run():
        service = ScriptedService(**chatting(script=lambda _: steps))
        core = Core(service, GatewayConfig())
        audio = AnswerAudio(core, AudioIds(lambda: 1000), format, 24_000, whole=True) if format else None
        try:
            async with service.submit(Submit((), ())) as live:
                return await read_whole(live, core.metrics.track("chat"), bytes_max, audio), audio
        finally:
            core.close()

    return asyncio.run(run())


def test_everything_arrives():
    steps = [SayText("a", (TOKEN,)), SayText(" b", (TOKEN,)), Report("thinker", {"completion_tokens": 2})]
    whole, _ = read(steps)
    assert whole == Whole("a b", (TOKEN, TOKEN), b"", Counts(text=2), {"thinker": {"completion_tokens": 2}})


def test_a_wav_has_a_header_that_is_true():
    whole, audio = read([SayText("a"), Say(tone(0.5)), Say(tone(0.5))], "wav")
    assert whole.audio[:4] == b"RIFF"
    assert struct.unpack_from("<I", whole.audio, 4) == (len(whole.audio) - 8,)
    assert struct.unpack_from("<I", whole.audio, 40) == (len(whole.audio) - 44,)
    assert audio.frames == 24_000


def test_what_is_too_much_fails_and_says_what_to_do():
    with pytest.raises(StageFailed, match="stream"):
        read([SayText("a" * 600), Say(tone(0.01))], "pcm16", bytes_max=1000)


def test_a_failure_is_raised():
    with pytest.raises(StageFailed, match="oh no"):
        read([SayText("a"), Fail("stage_failed", "oh no")])


def test_the_text_is_content_and_transcript():
    whole, audio = read([SayText("hello"), Say(tone(0.1))], "pcm16")
    choice = chat_choice(0, whole, audio, logprobs=False)
    message = choice["message"]
    assert message["content"] == message["audio"]["transcript"] == "hello"
    assert message["audio"]["data"] == tone(0.1).tobytes()
    assert message["audio"]["expires_at"] == 4600
    assert choice["audio_metadata"] == {
        "format": "pcm16",
        "sample_rate_hz": 24_000,
        "frame_count": 2400,
        "channels": 1,
    }


def test_without_audio_there_is_none():
    choice = chat_choice(1, Whole("hello", (TOKEN,)), None, logprobs=True)
    assert choice["message"] == {"role": "assistant", "content": "hello", "refusal": None}
    assert choice["logprobs"]["content"][0]["token"] == "a"
    assert (choice["index"], choice["finish_reason"]) == (1, "stop")
    assert "audio_metadata" not in choice
