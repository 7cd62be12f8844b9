"""What a connection is told with `session.config`."""

import asyncio
import base64

import pytest

from omnirt.gateway.config import GatewayConfig
from omnirt.gateway.core import Core
from omnirt.gateway.errors import ApiError
from omnirt.gateway.speech_pipeline import SpeechPipeline
from omnirt.gateway.stream_settings import StreamSettings
from omnirt.gateway.voice_samples import VoiceSamples
from omnirt.testing.clone_pipeline import clone_facts, clone_plan
from omnirt.testing.recordings import wav
from omnirt.testing.scripted_service import ScriptedService

SAID = {"ref_audio": base64.b64encode(wav(2.0, 24_000)).decode(), "ref_text": "x"}


def settings_of(service):
    core = Core(service, GatewayConfig())
    return core, StreamSettings(core, SpeechPipeline(core, VoiceSamples(core)))


@pytest.fixture
def plain():
    core, settings = settings_of(ScriptedService())
    yield settings
    core.close()


@pytest.fixture
def copying():
    core, settings = settings_of(ScriptedService(clone_plan(), clone_facts()))
    yield core, settings
    core.close()


def load(settings, **fields):
    return asyncio.run(settings.load(fields))


def test_without_a_word_it_is_wav_in_one_piece(plain):
    found = load(plain)
    assert (found.voicing.asked.format, found.is_streamed, found.granularity) == ("wav", False, "none")
    assert found.voicing.params == {"speed": 1.0, "voice": "heart"}


def test_what_is_asked_for_is_kept(plain):
    found = load(plain, voice="deep", response_format="pcm", stream_audio=True, split_granularity="clause", seed=3)
    assert (found.voicing.asked.format, found.is_streamed, found.granularity) == ("pcm", True, "clause")
    assert (found.voicing.params["voice"], found.voicing.asked.seed) == ("deep", 3)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("voice", "nobody"),
        ("voice", 3),
        ("model", "other"),
        ("response_format", "mp4"),
        ("speed", 9),
        ("stream_audio", "yes"),
        ("split_granularity", "word"),
        ("word_timestamps", True),
        ("speaker_embedding", [0.1]),
        ("ref_audio", "x"),
    ],
)
def test_what_is_wrong_is_named(plain, field, value):
    with pytest.raises(Exception) as caught:  # noqa: PT011 - of two trees of errors
        load(plain, **{field: value})
    refusal = caught.value.refusal if isinstance(caught.value, ApiError) else caught.value
    assert refusal.param == field


def test_a_recording_is_decoded_once_and_held_until_others_come(copying):
    core, settings = copying
    found = load(settings, **SAID)
    assert sum(piece.samples.size for piece in found.voicing.recording) == 48_000
    assert found.voicing.asked.reference is None
    assert core.recordings.held == 2.0
    with pytest.raises(ApiError):
        load(settings, **SAID | {"ref_audio": "AAAA"})
    assert core.recordings.held == 2.0
    load(settings, **SAID)
    assert core.recordings.held == 2.0
    settings.close()
    assert core.recordings.held == 0.0
