"""What LiveKit's OpenAI plugin sends for speech and for transcription, and how it reads the answers (1.8.9).

Its classes are not imported; the calls and the reading are written down here as they are there. Both go through the
SDK's asynchronous client, without retries.
"""

import asyncio
import base64
import io
import json

import av
import openai
import pytest
from openai.types.audio import Transcription, TranscriptionVerbose

from omnirt.testing.recordings import wav
from omnirt.testing.scripted_chat import chatting
from omnirt.testing.scripted_service import Fail, Say, SayTranscript, tone
from omnirt.wire.payload import Transcript

TEXT = "Hello, this is a test."
STREAMED_AS_AUDIO = ("tts-1", "tts-1-hd")
"""For all other models it asks for events."""
DECODABLE = {"audio/mpeg", "audio/aac", "audio/flac", "audio/wav", "audio/ogg", "audio/opus", "audio/pcm"}
RECORDING = wav(1.5, 48_000)
SPEAK = {"voice": "heart", "input": TEXT, "speed": 1.0}


def with_client(server, work):
    async def run():
        timeout = openai.Timeout(connect=15.0, read=5.0, write=5.0, pool=5.0)
        http = openai.DefaultAsyncHttpxClient(timeout=timeout, follow_redirects=True)
        async with openai.AsyncClient(
            max_retries=0, api_key="unused", base_url=f"{server.url}/v1", http_client=http
        ) as client:
            return await work(client)

    return asyncio.run(run())


async def spoken(client, model, response_format="mp3", **options):
    """Media type, audio and usage, read as the plugin reads them."""
    events = "audio" if model in STREAMED_AS_AUDIO else "sse"
    call = client.audio.speech.with_streaming_response.create(
        model=model,
        response_format=response_format,
        stream_format=events,
        timeout=openai.Timeout(30, connect=10.0),
        **SPEAK | options,
    )
    audio, usage = bytearray(), {}
    async with call as stream:
        media_type = stream.headers.get("content-type", "").split(";")[0].strip().lower()
        assert stream.request_id
        if media_type != "text/event-stream":
            async for chunk in stream.iter_bytes():
                audio += chunk
            return media_type, bytes(audio), usage
        async for line in stream.iter_lines():
            if not line or not line.startswith("data: "):
                continue
            data = line[6:]
            if data == "[DONE]":
                break
            event = json.loads(data)
            if event.get("type") == "speech.audio.delta":
                audio += base64.b64decode(event.get("delta", "") or event.get("audio", ""))
            elif event.get("type") == "speech.audio.done":
                usage = event.get("usage", {})
    return media_type, bytes(audio), usage


def seconds_of(data, format):
    if format == "pcm":
        return len(data) / 2 / 24_000
    frames = list(av.open(io.BytesIO(data)).decode(audio=0))
    return sum(frame.samples for frame in frames) / frames[0].sample_rate


@pytest.mark.parametrize("format", ["mp3", "opus", "aac", "flac", "wav", "pcm"])
def test_trap_17_events_with_any_format_give_one_playable_file(scripted, format):
    server = scripted(**chatting())
    media_type, audio, usage = with_client(server, lambda client: spoken(client, "voice", format))
    assert media_type == "text/event-stream"
    assert abs(seconds_of(audio, format) - len(TEXT) * 0.05) < 0.08
    assert usage["input_tokens"] > 0
    assert usage["output_tokens"] > 0


def test_audio_for_the_models_that_are_known_to_stream(scripted):
    server = scripted()
    media_type, audio, _ = with_client(server, lambda client: spoken(client, "tts-1"))
    assert media_type in DECODABLE
    assert seconds_of(audio, "mp3") > 1.0


def test_trap_18_the_accept_header_of_the_sdk_decides_nothing(scripted):
    server = scripted(**chatting())
    sent = []

    async def speak(client):
        client._client.event_hooks["request"].append(lambda request: note(request))
        return await spoken(client, "voice")

    async def note(request):
        sent.append(request.headers["accept"])

    media_type, audio, _ = with_client(server, speak)
    assert sent == ["application/octet-stream"]
    assert (media_type, bool(audio)) == ("text/event-stream", True)


def test_trap_19_a_voice_as_object(scripted):
    server = scripted(**chatting())
    _, audio, _ = with_client(server, lambda client: spoken(client, "voice", voice={"id": "heart"}))
    assert audio == with_client(server, lambda client: spoken(client, "voice"))[1]


def test_instructions_are_taken(scripted):
    server = scripted(**chatting())
    assert with_client(server, lambda client: spoken(client, "voice", instructions="Speak slowly."))[1]


def test_a_failure_while_speaking_is_not_a_short_success(scripted):
    """It ignores events that it does not know; what it must see is the broken connection."""
    server = scripted(**chatting(script=lambda _: [Say(tone(0.2)), Fail("stage_failed")]))
    with pytest.raises(Exception, match=r"peer closed|incomplete") as caught:
        with_client(server, lambda client: spoken(client, "voice"))
    assert caught.typename == "RemoteProtocolError"


def test_a_refusal_has_its_status_message_and_request_id(scripted):
    server = scripted(**chatting())
    with pytest.raises(openai.APIStatusError) as caught:
        with_client(server, lambda client: spoken(client, "voice", voice="nobody"))
    assert caught.value.status_code == 400
    assert "heart" in caught.value.message
    assert caught.value.request_id


def test_its_prewarming_request_is_answered(scripted):
    """It asks for the base itself and takes any answer."""
    server = scripted(**chatting())

    async def prewarm(client):
        with pytest.raises(openai.NotFoundError):
            await client.get("/", cast_to=str)

    with_client(server, prewarm)


def recognise(server, model, data=RECORDING, **options):
    form = "verbose_json" if model == "whisper-1" else "json"

    async def ask(client):
        return await client.audio.transcriptions.create(
            file=("file.wav", data, "audio/wav"),
            model=model,
            response_format=form,
            timeout=openai.Timeout(30, connect=10.0),
            **options,
        )

    return with_client(server, ask)


HEARD = [SayTranscript(Transcript(" Hello there.", start_s=0.1, end_s=0.9, language="en", last=True, clip_s=1.5))]


def test_transcription_in_json(scripted):
    server = scripted(**chatting(script=lambda _: HEARD))
    answer = recognise(server, "voice", language="en", prompt="omnirt", temperature=0.2)
    assert isinstance(answer, Transcription)
    assert answer.text == "Hello there."
    assert not answer.languages
    assert server.service.submitted[-1].params == {
        "language": "en", "prompt": "omnirt", "temperature": 0.2, "timestamps": "none",
    }  # fmt: skip


def test_transcription_with_languages_and_keywords(scripted):
    server = scripted(**chatting(script=lambda _: HEARD))
    assert recognise(server, "voice", languages=["en", "de"], keywords=["omnirt", "LiveKit"]).text == "Hello there."


def test_transcription_in_verbose_json_tells_the_language(scripted):
    plan = chatting()["plan"]
    renamed = type(plan)(**{name: getattr(plan, name) for name in plan.__struct_fields__} | {"aliases": ("whisper-1",)})
    server = scripted(**chatting(plan=renamed, script=lambda _: HEARD))
    answer = recognise(server, "whisper-1")
    assert isinstance(answer, TranscriptionVerbose)
    assert (answer.text, answer.language) == ("Hello there.", "en")


# ------------------------------------------------------------------ real weights


@pytest.mark.parametrize("model", ["voice", "tts-1"])
def test_what_the_voice_says_is_what_the_recogniser_hears(voice_server, model):
    _, audio, usage = with_client(voice_server, lambda client: spoken(client, model, "wav"))
    assert bool(usage.get("output_tokens")) == (model == "voice"), "where it asked for events"
    for recogniser in ("voice", "whisper-1"):
        assert recognise(voice_server, recogniser, audio, language="en").text == TEXT
