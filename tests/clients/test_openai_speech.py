"""Speech and voices through the OpenAI SDK: checks 23 to 29 of the conformance list, and what streams must survive."""

import base64
import io
import json
import wave

import av
import openai
import pytest

from omnirt.gateway.config import AUDIO_FORMATS, GatewayConfig
from omnirt.gateway.media import wav_header
from omnirt.testing.clone_pipeline import clone_facts, clone_plan
from omnirt.testing.scripted_service import Fail, Hold, chunks_of, tone

TEXT = "The quick brown fox."
TYPES = {"mp3": "audio/mpeg", "opus": "audio/ogg", "aac": "audio/aac", "flac": "audio/flac", "wav": "audio/wav"}
MAGIC = {"opus": b"OggS", "flac": b"fLaC", "wav": b"RIFF"}


def seconds_of(data):
    frames = list(av.open(io.BytesIO(data)).decode(audio=0))
    return sum(frame.samples for frame in frames) / frames[0].sample_rate


def pcm_of(client, model, voice, **options):
    return client.audio.speech.create(model=model, voice=voice, input=TEXT, response_format="pcm", **options).content


def test_check_23_the_default_is_a_playable_mp3(client, model, voice):
    response = client.audio.speech.create(model=model, voice=voice, input=TEXT)
    assert response.response.headers["content-type"] == "audio/mpeg"
    assert seconds_of(response.content) > 0.2


@pytest.mark.parametrize("format", AUDIO_FORMATS)
def test_check_24_each_format_is_what_it_says(client, model, voice, format):
    response = client.audio.speech.create(model=model, voice=voice, input=TEXT, response_format=format)
    kind = response.response.headers["content-type"]
    if format == "pcm":
        assert kind.startswith("audio/pcm")
        assert len(response.content) % 2 == 0
    else:
        assert kind == TYPES[format]
    if format in ("mp3", "aac"):
        assert response.content[0] == 0xFF
        assert response.content[1] & 0xE0 == 0xE0
    assert response.content.startswith(MAGIC.get(format, b""))


def test_check_25_a_voice_as_object_and_as_string(client, model, voice):
    as_string = pcm_of(client, model, voice, extra_body={"seed": 3})
    assert as_string == pcm_of(client, model, {"id": voice}, extra_body={"seed": 3})
    with pytest.raises(openai.BadRequestError) as caught:
        pcm_of(client, model, "nobody-of-this-name")
    assert caught.value.param == "voice"
    assert voice in caught.value.message


def test_check_26_server_sent_events(client, model, voice):
    with client.audio.speech.with_streaming_response.create(
        model=model, voice=voice, input=TEXT, response_format="pcm", stream_format="sse", extra_body={"seed": 3}
    ) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in response.iter_lines() if line and not line.startswith(":")]
    assert all(line.startswith("data: ") for line in lines)
    events = [json.loads(line[6:]) for line in lines]
    assert {event["type"] for event in events[:-1]} == {"speech.audio.delta"}
    assert events[-1]["type"] == "speech.audio.done"
    usage = events[-1]["usage"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"] > 0
    deltas = [base64.b64decode(event["audio"]) for event in events[:-1]]
    assert all(len(delta) % 2 == 0 for delta in deltas)
    assert b"".join(deltas) == pcm_of(client, model, voice, extra_body={"seed": 3})


def test_check_27_a_streamed_wav_begins_before_it_is_made(scripted, connect):
    server = scripted(script=lambda _: [*chunks_of(tone(0.5)), Hold(), *chunks_of(tone(0.5))])
    received = bytearray()
    arrivals = 0
    with connect(server).audio.speech.with_streaming_response.create(
        model="speech", voice="heart", input=TEXT, response_format="wav"
    ) as response:
        for piece in response.iter_bytes():
            if not received:
                assert server.service.state().running == 1, "the rest is still to come"
                server.call(server.service.release)
            received += piece
            arrivals += 1
    assert bytes(received[:44]) == wav_header(24_000, None)
    assert received[4:8] == received[40:44] == b"\xff\xff\xff\xff"
    assert len(received) == 44 + 48_000
    assert arrivals > 1


def test_check_27_against_any_server(client, model, voice):
    with client.audio.speech.with_streaming_response.create(
        model=model, voice=voice, input=TEXT * 5, response_format="wav"
    ) as response:
        pieces = list(response.iter_bytes())
    data = b"".join(pieces)
    assert data[:4] == b"RIFF"
    assert data[4:8] == data[40:44] == b"\xff\xff\xff\xff"
    assert data.count(b"RIFF") == 1
    assert len(pieces) > 1


@pytest.mark.parametrize("options", [{"speed": 0.2}, {"speed": 4.1}, {"input": "  "}, {"input": ""}])
def test_check_28_out_of_range_is_400_with_the_field(client, model, voice, options):
    with pytest.raises(openai.BadRequestError) as caught:
        client.audio.speech.create(**{"model": model, "voice": voice, "input": TEXT} | options)
    assert caught.value.param == next(iter(options))


def test_check_29_a_voice_is_uploaded_listed_used_and_deleted(scripted, connect, tmp_path):
    facts = clone_facts()
    server = scripted(plan=clone_plan("speech"), facts=facts, config=GatewayConfig(voices_dir=str(tmp_path / "voices")))
    client = connect(server)
    sample = io.BytesIO(wav_header(24_000, 48_000) + tone(1.0).tobytes())
    created = client.audio.voices.create(name="Ann", consent="cons_1", audio_sample=("ann.wav", sample, "audio/wav"))
    assert (created.object, created.name, created.type) == ("audio.voice", "Ann", "audio_sample")
    assert created.created_at > 0
    listing = server.ask("GET", "/v1/audio/voices").json()["voices"]
    assert {"id": created.id, "name": "Ann"}.items() <= listing[-1].items()
    assert pcm_of(client, "speech", {"id": created.id})
    copied = [payload for name, payload in server.service.submitted[-1].inputs if name == "audio"]
    assert sum(piece.samples.size for piece in copied) == 24_000
    assert client.audio.voices.delete(created.id).deleted is True
    with pytest.raises(openai.NotFoundError):
        client.audio.voices.delete(created.id)


def test_check_29_a_model_that_cannot_learn_voices_says_so(scripted, connect):
    with pytest.raises(openai.InternalServerError) as caught:
        connect(scripted()).audio.voices.create(name="Ann", consent="c", audio_sample=b"RIFF")
    assert (caught.value.status_code, caught.value.code) == (501, "unsupported_endpoint")


def test_a_whole_wav_is_written_to_a_file_that_opens(client, model, voice, tmp_path):
    path = tmp_path / "a.wav"
    client.audio.speech.create(
        model=model, voice=voice, input=TEXT, response_format="wav", extra_body={"stream": False}
    ).write_to_file(path)
    with wave.open(str(path)) as file:
        assert file.getnframes() * 2 + 44 == path.stat().st_size


def test_a_break_in_the_audio_is_an_error_for_the_sdk(scripted, connect):
    server = scripted(script=lambda _: [*chunks_of(tone(0.2)), Fail("stage_lost")])
    with pytest.raises(openai.APIConnectionError):
        connect(server).audio.speech.create(model="speech", voice="heart", input=TEXT, response_format="pcm")


def test_closing_the_stream_ends_the_request(scripted, connect):
    server = scripted(script=lambda _: [*chunks_of(tone(0.5)), Hold()])
    with connect(server).audio.speech.with_streaming_response.create(
        model="speech", voice="heart", input=TEXT, response_format="pcm"
    ) as response:
        next(response.iter_bytes())
    server.until(lambda: server.service.state().running == 0)
    assert server.service.cancelled == 1


def test_a_client_that_asks_for_events_in_mp3_gets_them(client, model, voice):
    with client.audio.speech.with_streaming_response.create(
        model=model, voice=voice, input=TEXT, response_format="mp3", stream_format="sse"
    ) as response:
        events = [json.loads(line[6:]) for line in response.iter_lines() if line.startswith("data: ")]
    assert seconds_of(b"".join(base64.b64decode(event["audio"]) for event in events[:-1])) > 0.2
