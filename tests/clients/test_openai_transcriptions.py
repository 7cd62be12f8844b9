"""Transcriptions through the OpenAI SDK: check 30 of the conformance list, those of 1 to 12 that concern it, every
format, streams, and what is no recording.

`server` is any omnirt server that hears. To run the general checks against another one as well, add its name to
HEARING_SERVERS and give a fixture `<name>_server`.
"""

import io
import os
import re
import threading

import numpy as np
import openai
import pytest
from openai.types.audio import Transcription, TranscriptionVerbose

from omnirt.gateway.config import GatewayConfig
from omnirt.gateway.media import wav_header
from omnirt.testing.live_gateway import LiveGateway
from omnirt.testing.recordings import encoded, recorded, wav
from omnirt.testing.scripted_chat import chat_plan, chatting
from omnirt.testing.scripted_service import Fail, Hold, Report, SayTranscript, ScriptedService, Wait
from omnirt.wire.payload import Transcript, Word

HEARING_SERVERS = ("scripted_hearing", "voice")
SPOKEN = "The weather is nice today. Shall we go for a walk?"
FILE = ("question.wav", wav(1.5))
FIRST = Transcript(
    " The quick brown",
    start_s=0.25,
    end_s=0.75,
    language="en",
    words=(Word(" The", 0.25, 0.4), Word(" quick", 0.4, 0.6), Word(" brown", 0.6, 0.75)),
    avg_logprob=-0.5,
    no_speech_prob=0.01,
    compression_ratio=1.1,
    tokens=(383, 2068, 7586),
)
SECOND = Transcript(" fox.", start_s=1.0, end_s=1.25, language="en", words=(Word(" fox.", 1.0, 1.25),))
TEXT = "The quick brown fox."
KINDS = [
    ("wav", "pcm_s16le", "a.wav"),
    ("mp3", "libmp3lame", "a.mp3"),
    ("flac", "flac", "a.flac"),
    ("ogg", "libopus", "a.ogg"),
    ("webm", "libopus", "a.webm"),
    ("ipod", "aac", "a.m4a"),
    ("mp4", "aac", "a.mp4"),
]


def heard(submit):
    """Two stretches, as a recogniser of Whisper's kind gives them."""
    length_s = sum(payload.samples.size / payload.rate for _, payload in submit.inputs)
    yield SayTranscript(FIRST)
    yield SayTranscript(SECOND)
    yield SayTranscript(Transcript("", last=True, clip_s=length_s))
    yield Report("recogniser", {"audio_s": length_s, "segments": 2})


@pytest.fixture(scope="module")
def scripted_hearing_server():
    with LiveGateway(lambda: ScriptedService(**chatting(script=heard))) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def samples(voice_server):
    """Speech, 24 kHz."""
    fields = {"input": SPOKEN, "response_format": "pcm", "stream": False}
    return np.frombuffer(voice_server.ask("POST", "/v1/audio/speech", fields).body, np.int16)


@pytest.fixture(scope="module")
def file(samples):
    """What is sent unless a test says otherwise."""
    return ("question.wav", wav_header(24_000, samples.nbytes) + samples.tobytes())


@pytest.fixture(params=HEARING_SERVERS)
def server(request):
    return request.getfixturevalue(f"{request.param}_server")


@pytest.fixture
def hear(client, model, file):
    """hear(options...) -> the transcription."""

    def ask(**options):
        return client.audio.transcriptions.create(**{"model": model, "file": file} | options)

    return ask


@pytest.fixture
def scripted_hearing(scripted, connect):
    """scripted_hearing(script, config) -> a server of its own, and hear(options...) of FILE on it."""

    def make(script=heard, config=None, **options):
        server = scripted(config=config, **chatting(script=script, **options))
        client = connect(server)
        return server, lambda **asked: client.audio.transcriptions.create(**{"model": "voice", "file": FILE} | asked)

    return make


def words_of(text):
    return re.sub(r"[^a-z ]", "", text.lower()).split()


# ------------------------------------------------------------------ check 30


def test_check_30_json_has_the_text(hear):
    answer = hear()
    assert isinstance(answer, Transcription)
    assert answer.text.strip()
    assert answer.usage.type in ("tokens", "duration")


def test_check_30_verbose_json_has_words_with_their_times(hear, samples):
    answer = hear(response_format="verbose_json", timestamp_granularities=["word"])
    assert isinstance(answer, TranscriptionVerbose)
    assert answer.words
    assert all(0 <= word.start <= word.end <= answer.duration for word in answer.words)
    assert [word.word for word in answer.words] == answer.text.split()
    assert abs(answer.duration - samples.size / 24_000) < 0.01
    assert answer.language == "en"


def test_check_30_exactly(scripted_hearing):
    _, hear = scripted_hearing()
    answer = hear(response_format="verbose_json", timestamp_granularities=["word", "segment"])
    assert answer.text == hear().text == TEXT
    assert [segment.text for segment in answer.segments] == [" The quick brown", " fox."]
    first = answer.segments[0]
    assert (first.id, first.seek, first.start, first.end) == (0, 25, 0.25, 0.75)
    assert (first.avg_logprob, first.no_speech_prob, first.compression_ratio) == (-0.5, 0.01, 1.1)
    assert (first.tokens, first.temperature) == ([383, 2068, 7586], 0.0)
    assert [word.word for word in answer.words] == ["The", "quick", "brown", "fox."]
    assert (answer.usage.type, answer.usage.seconds) == ("duration", 1.5)


# ------------------------------------------------------------------ formats


def test_text_srt_and_vtt_are_plain_text(hear, client, model, file):
    whole = hear().text
    assert hear(response_format="text").strip() == whole
    for kind, mark in (("srt", "1\n00:00:"), ("vtt", "WEBVTT\n\n00:00:")):
        raw = client.audio.transcriptions.with_raw_response.create(model=model, file=file, response_format=kind)
        assert raw.headers["content-type"].startswith("text/plain")
        assert raw.text.startswith(mark)
        assert " --> " in raw.text
        assert hear(response_format=kind) == raw.text


@pytest.mark.parametrize(("container", "codec", "name"), KINDS)
def test_every_container_that_clients_record(hear, samples, container, codec, name):
    whole = hear().text
    for layout in ("mono", "stereo"):
        data = encoded(samples, 24_000, container, codec, layout)
        answer = hear(file=(name, data), response_format="verbose_json")
        assert words_of(answer.text) == words_of(whole)
        assert abs(answer.duration - samples.size / 24_000) < 0.1


def test_a_film_is_heard_too(hear, samples):
    data = encoded(samples, 24_000, "mp4", "aac", picture=True)
    assert words_of(hear(file=("a.mp4", data)).text) == words_of(hear().text)


@pytest.mark.parametrize("server", ["voice"], indirect=True)
def test_what_was_said_is_heard(hear):
    assert words_of(hear().text) == words_of(SPOKEN)
    assert words_of(hear(response_format="text")) == words_of(SPOKEN)


def test_files_are_given_in_every_way_the_sdk_knows(hear, file, tmp_path):
    path, data = tmp_path / "q.wav", file[1]
    path.write_bytes(data)
    with path.open("rb") as opened:
        for given in (path, opened, io.BytesIO(data), data, ("q", data, "audio/x-wav"), ("q.mp3", data, "audio/mpeg")):
            assert hear(file=given).text.strip()


def test_what_the_sdk_can_ask_for_is_accepted(hear):
    answer = hear(
        language="en",
        prompt="A fox.",
        temperature=0.0,
        include=["logprobs"],
        chunking_strategy="auto",
        keywords=["fox"],
        languages=["en"],
        extra_body={"unknown": "x"},
    )
    assert answer.text.strip()
    with_threshold = {"type": "server_vad", "threshold": 0.5}
    assert hear(chunking_strategy=with_threshold).text.strip()


def test_silence_is_an_empty_text(scripted_hearing):
    _, hear = scripted_hearing(lambda _: [SayTranscript(Transcript("", last=True, clip_s=1.5))])
    assert hear().text == ""
    assert hear(response_format="verbose_json").segments == []
    assert hear(response_format="srt") == ""


# ------------------------------------------------------------------ streams


def test_a_stream_joins_to_the_whole(hear):
    events = list(hear(stream=True))
    assert {event.type for event in events[:-1]} <= {"transcript.text.delta", "transcript.text.segment"}
    assert events[-1].type == "transcript.text.done"
    deltas = "".join(event.delta for event in events if event.type == "transcript.text.delta")
    assert deltas == events[-1].text == hear().text
    assert events[-1].usage is not None
    segments = [event for event in events if event.type == "transcript.text.segment"]
    assert all(isinstance(segment.id, str) and segment.start <= segment.end for segment in segments)


@pytest.mark.parametrize("format", ["text", "srt", "vtt", "verbose_json"])
def test_a_stream_is_a_stream_whatever_the_format(hear, format):
    assert list(hear(stream=True, response_format=format))[-1].type == "transcript.text.done"


def test_a_slow_stream_is_kept_alive_by_what_the_sdk_does_not_see(scripted_hearing):
    def slow(submit):
        yield Wait(0.3)
        yield from heard(submit)

    _, hear = scripted_hearing(slow, GatewayConfig(keepalive_s=0.05))
    assert [event.type.rpartition(".")[2] for event in hear(stream=True)] == [
        "delta", "segment", "delta", "segment", "done",
    ]  # fmt: skip


def test_a_failure_in_a_stream_is_raised(scripted_hearing):
    server, hear = scripted_hearing(lambda _: [SayTranscript(FIRST), Fail("stage_failed", "no ears", "recogniser")])
    stream = hear(stream=True)
    assert next(stream).delta == "The quick brown"
    with pytest.raises(openai.APIError) as caught:
        list(stream)
    assert (caught.value.code, caught.value.message) == ("stage_failed", "no ears")
    server.until(lambda: server.service.state().running == 0)


def test_a_stream_that_is_closed_ends_its_request(scripted_hearing):
    server, hear = scripted_hearing(lambda _: [SayTranscript(FIRST), Hold()])
    stream = hear(stream=True)
    next(stream)
    stream.close()
    server.until(lambda: server.service.state().running == 0)
    assert server.service.cancelled == 1


# ------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("options", "param", "code"),
    [
        ({"file": ("a.wav", b"")}, "file", "invalid_value"),
        ({"file": ("a.wav", os.urandom(5000))}, "file", "unsupported_media"),
        ({"file": ("a.txt", b"The quick brown fox.")}, "file", "unsupported_media"),
        ({"file": ("a.m4a", recorded("ipod", "aac", 1.0)[:4000])}, "file", "unsupported_media"),
        ({"response_format": "diarized_json"}, "response_format", "unsupported_parameter"),
        ({"response_format": "xml"}, "response_format", "invalid_value"),
        ({"temperature": 7}, "temperature", "invalid_value"),
        ({"timestamp_granularities": ["line"]}, "timestamp_granularities", "invalid_value"),
        ({"language": "the language of the sea"}, "language", "invalid_value"),
    ],
)
def test_mistakes_name_their_field(hear, options, param, code):
    with pytest.raises(openai.BadRequestError) as caught:
        hear(**options)
    assert (caught.value.param, caught.value.code) == (param, code)
    assert caught.value.request_id


def test_a_refused_container_names_those_that_are_accepted(hear):
    with pytest.raises(openai.BadRequestError, match=r"accepted: wav, mp3, flac, ogg"):
        hear(file=("a.m4a", b"no recording"))


def test_check_3_an_unknown_model(hear):
    with pytest.raises(openai.NotFoundError) as caught:
        hear(model="no-such")
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


def test_check_7_the_request_has_a_name(hear, client, model, file):
    assert hear()._request_id
    raw = client.audio.transcriptions.with_raw_response.create(
        model=model, file=file, extra_headers={"X-Request-Id": "mine-7"}
    )
    assert raw.headers["x-request-id"] == "mine-7"


def test_check_11_a_full_server_is_tried_again_until_there_is_room(scripted, connect):
    def script(submit):
        yield Hold()
        yield from heard(submit)

    server = scripted(**chatting(script=script, plan=chat_plan(requests_max=1, queue_max=0)))
    once, patient = connect(server), connect(server, max_retries=20)
    running = threading.Thread(target=once.audio.transcriptions.create, kwargs={"model": "voice", "file": FILE})
    running.start()
    server.until(lambda: server.service.state().running == 1)
    with pytest.raises(openai.RateLimitError) as caught:
        once.audio.transcriptions.create(model="voice", file=FILE)
    assert caught.value.response.headers["retry-after"]
    threading.Timer(0.3, lambda: server.call(server.service.release)).start()
    assert patient.audio.transcriptions.create(model="voice", file=FILE).text == TEXT
    running.join()


@pytest.mark.parametrize(("state", "code"), [("loading", "model_loading"), ("draining", "shutting_down")])
def test_check_12_not_ready(scripted_hearing, state, code):
    server, hear = scripted_hearing()
    server.service.state_name = state
    with pytest.raises(openai.InternalServerError) as caught:
        hear()
    assert (caught.value.status_code, caught.value.code) == (503, code)
    assert caught.value.response.headers["retry-after"]


def test_a_recording_over_the_limit_of_bytes(scripted_hearing):
    _, hear = scripted_hearing(config=GatewayConfig(recording_bytes_max=10_000))
    with pytest.raises(openai.APIStatusError) as caught:
        hear()
    assert (caught.value.status_code, caught.value.code) == (413, "request_too_large")


def test_two_hours_in_a_small_file_are_refused_and_the_server_goes_on(scripted_hearing):
    server, hear = scripted_hearing(config=GatewayConfig(recording_s_max=60.0))
    with pytest.raises(openai.BadRequestError, match="the limit is 60 s"):
        hear(file=("a.ogg", recorded("ogg", "libopus", 120.0)))
    assert server.service.submitted == []
    assert hear().text == TEXT


def test_translations_are_said_to_be_missing(client, model):
    with pytest.raises(openai.InternalServerError) as caught, pytest.warns(DeprecationWarning, match="deprecated"):
        client.audio.translations.create(model=model, file=FILE)
    assert (caught.value.status_code, caught.value.code) == (501, "unsupported_endpoint")


def test_models_say_that_they_hear(server):
    entry = server.ask("GET", "/v1/models").json()["data"][0]
    assert "/v1/audio/transcriptions" in entry["omnirt"]["endpoints"]
    assert "audio" in entry["omnirt"]["modalities"]["input"]
    assert {"id": entry["id"], "name": entry["id"]} in server.ask("GET", "/v1/audio/models").json()["models"]


def test_the_arguments_of_pipecat(hear, file):
    """Its recogniser sends language and model, and asks for probabilities."""
    options = {"language": "en", "response_format": "json", "include": ["logprobs"], "prompt": "x", "temperature": 0.0}
    assert hear(file=("audio.wav", file[1], "audio/wav"), keywords=["omnirt"], **options).text.strip()
    verbose = hear(file=("audio.wav", file[1], "audio/wav"), language="en", response_format="verbose_json")
    assert all(segment.avg_logprob <= 0 for segment in verbose.segments)
