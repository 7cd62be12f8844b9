"""What Open WebUI sends for voices, speech and transcription, and how it reads the answers (0.12.4).

Its code is not imported; the calls are written down here as its routers make them, with the same HTTP library. It lists
models and voices without a key.
"""

import asyncio
import base64
import io

import aiohttp
import av
import pytest

from omnirt.gateway.config import GatewayConfig
from omnirt.testing.recordings import recorded, wav
from omnirt.testing.scripted_chat import chatting
from omnirt.testing.scripted_service import Fail, SayTranscript
from omnirt.wire.payload import Transcript

KEY = "sk-of-a-test"
CHUNK = 64 << 10
PLAYABLE = {"audio/mpeg", "audio/wav", "audio/ogg", "audio/webm", "audio/flac", "audio/aac", "audio/mp4"}
HEARD = [SayTranscript(Transcript(" Hello there.", end_s=0.9, last=True, clip_s=1.5))]


@pytest.fixture
def locked(scripted, tmp_path):
    """A server with a key that leaves its lists open, as is needed for Open WebUI."""
    keys = tmp_path / "keys"
    keys.write_text(f"{KEY}\n")
    keys.chmod(0o600)
    config = GatewayConfig(keys_file=str(keys), public_discovery=True)
    return lambda **options: scripted(**chatting(**options), config=config)


def with_session(server, work):
    async def run():
        async with aiohttp.ClientSession(trust_env=True) as session:
            return await work(session, f"{server.url}/v1")

    return asyncio.run(run())


def listed(server, path):
    async def ask(session, base):
        async with session.get(f"{base}{path}", timeout=aiohttp.ClientTimeout(total=10)) as response:
            response.raise_for_status()
            return await response.json()

    return with_session(server, ask)


def test_trap_20_models_and_voices_are_listed_without_a_key(locked):
    server = locked()
    assert {"voice"} <= {model["id"] for model in listed(server, "/audio/models").get("models", [])}
    assert {model["id"] for model in listed(server, "/models").get("data", [])} >= {"voice"}
    voices = {voice["id"]: voice["name"] for voice in listed(server, "/audio/voices").get("voices", [])}
    assert voices == {"heart": "heart", "deep": "Deep"}


def test_without_that_option_the_lists_are_closed(scripted, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text(f"{KEY}\n")
    keys.chmod(0o600)
    server = scripted(**chatting(), config=GatewayConfig(keys_file=str(keys)))
    with pytest.raises(aiohttp.ClientResponseError):
        listed(server, "/audio/voices")


# ------------------------------------------------------------------ speech


def speak(server, **payload):
    """Its body is what the browser sent, with the model and the voice from its settings, and any further settings."""

    async def ask(session, base):
        body = {"input": "Hello, this is a test.", "model": "voice", "voice": "heart"} | payload
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
        headers |= {"X-OpenWebUI-User-Name": "A%20User", "X-OpenWebUI-User-Id": "1", "X-OpenWebUI-User-Role": "user"}
        response = await session.post(url=f"{base}/audio/speech", json=body, headers=headers)
        response.raise_for_status()
        return response.headers.get("Content-Type", "audio/mpeg"), await response.read()

    return with_session(server, ask)


@pytest.mark.parametrize("payload", [{}, {"response_format": "wav"}, {"response_format": "opus"}, {"speed": 1.5}])
def test_speech_is_what_its_content_type_says(locked, payload):
    kind, audio = speak(locked(), **payload)
    assert kind in PLAYABLE
    container = av.open(io.BytesIO(audio))
    assert {"audio/mpeg": "mp3", "audio/wav": "wav", "audio/ogg": "ogg"}[kind] in container.format.name
    assert sum(frame.samples for frame in container.decode(audio=0)) > 0


def test_a_refused_speech_says_why_in_the_envelope(locked):
    async def ask(session, base):
        headers = {"Authorization": f"Bearer {KEY}"}
        response = await session.post(f"{base}/audio/speech", json={"input": " ", "model": "voice"}, headers=headers)
        return response.status, await response.json()

    status, body = with_session(locked(), ask)
    assert status == 400
    assert "input" in body["error"]["message"]


# ------------------------------------------------------------------ transcription


def transcribe(server, data, filename="recording.webm", form="multipart", languages=("en", None)):
    """It tries the languages in turn until one is answered, by a form whose file is sent in chunks, or by JSON."""

    async def ask(session, base):
        headers = {"Authorization": f"Bearer {KEY}"}
        response = None
        for language in languages:
            payload = {"model": "voice"}
            if language:
                payload["language"] = language
            if form == "json":
                ext = filename.rpartition(".")[2]
                audio = {"data": base64.b64encode(data).decode("utf-8"), "format": "ogg" if ext == "oga" else ext}
                response = await session.post(
                    url=f"{base}/audio/transcriptions",
                    headers={**headers, "Content-Type": "application/json"},
                    json={**payload, "input_audio": audio},
                )
            else:
                fields = aiohttp.FormData()
                for key, value in payload.items():
                    fields.add_field(key, str(value))

                async def chunks():
                    for start in range(0, len(data), CHUNK):
                        yield data[start : start + CHUNK]

                fields.add_field("file", chunks(), filename=filename)
                response = await session.post(url=f"{base}/audio/transcriptions", headers=headers, data=fields)
            if response.status == 200:
                break
        await response.read()
        return response.status, await response.json()

    return with_session(server, ask)


@pytest.mark.parametrize("form", ["multipart", "json"])
@pytest.mark.parametrize(
    ("filename", "data"),
    [
        ("recording.webm", recorded("webm", "libopus", 1.5)),
        ("a b.wav", wav(1.5)),
        ("voice.mp3", recorded("mp3", "libmp3lame", 1.5)),
        ("note.m4a", recorded("ipod", "aac", 1.5)),
        ("voice.oga", recorded("ogg", "libopus", 1.5)),
    ],
)
def test_a_recording_is_transcribed(locked, form, filename, data):
    server = locked(script=lambda _: HEARD)
    status, body = transcribe(server, data, filename, form)
    assert (status, body["text"]) == (200, "Hello there.")
    assert server.service.submitted[-1].params == {"language": "en", "timestamps": "none"}


@pytest.mark.parametrize("form", ["multipart", "json"])
def test_a_language_that_is_refused_is_tried_again_without(locked, form):
    def script(submit):
        if "language" in submit.params:
            return [Fail("invalid_value", "This model hears English only.", "recogniser")]
        return HEARD

    status, body = transcribe(locked(script=script), wav(1.5), "a.wav", form, ("de", None))
    assert (status, body["text"]) == (200, "Hello there.")


@pytest.mark.parametrize("form", ["multipart", "json"])
def test_ten_minutes_in_one_file(locked, form):
    """As large as it makes them: longer files are cut there first."""
    server = locked()
    status, body = transcribe(server, wav(600.0), "long.wav", form)
    assert (status, body["text"]) == (200, "600.00 seconds")
    assert len(server.service.submitted[-1].inputs) == 40


@pytest.mark.parametrize("form", ["multipart", "json"])
def test_a_refusal_is_read_from_the_envelope(locked, form):
    status, body = transcribe(locked(), b"no recording", "a.webm", form)
    assert status == 400
    assert "accepted: wav, mp3" in body["error"].get("message", "")


# ------------------------------------------------------------------ real weights


def test_lists_of_the_real_pipeline(voice_server):
    assert "whisper-1" in {model["id"] for model in listed(voice_server, "/audio/models")["models"]}
    assert "heart" in {voice["id"] for voice in listed(voice_server, "/audio/voices")["voices"]}


@pytest.mark.parametrize("form", ["multipart", "json"])
@pytest.mark.parametrize(("filename", "payload"), [("a.mp3", {}), ("a.oga", {"response_format": "opus"})])
def test_what_the_voice_says_is_what_the_recogniser_hears(voice_server, form, filename, payload):
    _, audio = speak(voice_server, **payload)
    status, body = transcribe(voice_server, audio, filename, form)
    assert (status, body["text"]) == (200, "Hello, this is a test.")
