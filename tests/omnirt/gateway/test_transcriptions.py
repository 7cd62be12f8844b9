"""The surface of transcription: what is submitted, how it is answered, and how it ends."""

import base64
import json

import pytest

from omnirt.gateway.config import GatewayConfig
from omnirt.testing.forms import form
from omnirt.testing.recordings import recorded, wav
from omnirt.testing.scripted_chat import chat_facts, chat_plan, converse
from omnirt.testing.scripted_service import Fail, Hold, Report, Say, SayTranscript, Wait, speech_plan, tone
from omnirt.wire.payload import Transcript

PATH = "/v1/audio/transcriptions"
WAV = wav(0.5)
HELLO = SayTranscript(Transcript(" Hello there.", start_s=0.25, end_s=1.0, language="en"))
AGAIN = SayTranscript(Transcript(" How are you?", start_s=1.5, end_s=2.0, language="en"))
END = SayTranscript(Transcript("", last=True, clip_s=2.0))


@pytest.fixture
def make(make_gateway):
    """make(script, config options...) -> a gateway that hears."""

    def start(script=converse, facts=None, together=False, limits=None, **options):
        plan = chat_plan(**(limits or {}))
        service = {"plan": plan, "facts": facts or chat_facts(), "script": script, "together": together}
        return make_gateway(**service, config=GatewayConfig(**options))

    return start


def send(gateway, data=WAV, path=PATH, **fields):
    parts = [(name, str(value)) for name, value in fields.items()]
    body, headers = form(*parts, ("file", data, "a.wav"))
    return gateway.ask("POST", path, body, headers)


def events_of(answer):
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    lines = [line for line in answer.body.decode().split("\n\n") if line and not line.startswith(":")]
    assert all(line.startswith("data: ") for line in lines)
    return [json.loads(line[6:]) for line in lines]


def test_what_is_submitted(make):
    gateway = make()
    send(gateway, wav(20.0, 24_000), language="en", prompt="Names", temperature=0.5)
    submit = gateway.service.submitted[-1]
    assert [modality for modality, _ in submit.inputs] == ["audio", "audio"]
    assert [payload.samples.size for _, payload in submit.inputs] == [240_000, 80_000]
    assert submit.outputs == ("transcript",)
    assert submit.params == {"language": "en", "prompt": "Names", "temperature": 0.5, "timestamps": "none"}
    assert not submit.input_open


def test_a_long_recording_has_the_time_that_listening_takes(make):
    gateway = make(limits={"deadline_s": 30.0})
    for seconds, deadline_s in ((1.0, 30.0), (45.0, 45.0)):
        send(gateway, wav(seconds))
        assert gateway.service.submitted[-1].deadline_s == deadline_s


def test_parameters_of_stages_that_do_not_hear_do_not_count(make):
    """The thinker acts on `temperature`; what hears here does not."""
    facts = chat_facts()
    facts["recogniser"]["parameters"] = ["language"]
    assert "temperature" in facts["thinker"]["parameters"]
    gateway = make(facts=facts)
    assert send(gateway, temperature=0.5, language="en").status == 200
    assert gateway.service.submitted[-1].params == {"language": "en"}


@pytest.mark.parametrize(
    ("format", "kind", "body"),
    [
        ("json", "application/json", b'{"text":"Hello there. How are you?","usage":{"type":"duration","seconds":0.5}}'),
        ("text", "text/plain; charset=utf-8", b"Hello there. How are you?"),
        (
            "srt",
            "text/plain; charset=utf-8",
            b"1\n00:00:00,250 --> 00:00:01,000\nHello there.\n\n2\n00:00:01,500 --> 00:00:02,000\nHow are you?\n",
        ),
        (
            "vtt",
            "text/plain; charset=utf-8",
            b"WEBVTT\n\n00:00:00.250 --> 00:00:01.000\nHello there.\n\n00:00:01.500 --> 00:00:02.000\nHow are you?\n",
        ),
    ],
)
def test_every_format_to_the_letter(make, format, kind, body):
    answer = send(make(script=lambda _: [HELLO, AGAIN, END]), response_format=format)
    assert (answer.status, answer.headers["content-type"], answer.body) == (200, kind, body)


@pytest.mark.parametrize("script", [[], [END], [SayTranscript(Transcript("  ")), END]])
def test_no_speech_is_an_empty_text(make, script):
    answer = send(make(script=lambda _: script), response_format="verbose_json")
    assert answer.status == 200
    assert (answer.json()["text"], answer.json()["segments"]) == ("", [])


def test_usage_in_tokens_where_the_stages_count(make):
    report = Report("recogniser", {"audio_s": 0.5, "input_tokens": 50, "output_tokens": 4})
    usage = send(make(script=lambda _: [HELLO, report])).json()["usage"]
    assert (usage["type"], usage["total_tokens"]) == ("tokens", 54)


@pytest.mark.parametrize("together", [False, True])
def test_a_stream_of_events(make, together):
    gateway = make(script=lambda _: [HELLO, AGAIN, END], together=together)
    events = events_of(send(gateway, stream="true"))
    kinds = [event["type"].rpartition(".")[2] for event in events]
    assert kinds == ["delta", "segment", "delta", "segment", "done"]
    assert "".join(event["delta"] for event in events if "delta" in event) == events[-1]["text"]
    assert events[-1]["text"] == "Hello there. How are you?"
    assert events[-1]["usage"] == {"type": "duration", "seconds": 0.5}
    assert gateway.service.submitted[-1].params["timestamps"] == "segment"


def test_a_stream_without_speech_is_its_end_alone(make):
    (event,) = events_of(send(make(script=lambda _: [END]), stream="true"))
    assert (event["type"], event["text"]) == ("transcript.text.done", "")


def test_a_stream_begins_before_all_is_heard(make):
    gateway = make(script=lambda _: [HELLO, Hold(), AGAIN])
    body, headers = form(("stream", "true"), ("file", WAV, "a.wav"))
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n"
    with gateway.connect() as connection:
        connection.sendall(f"{head}Content-Type: {headers['Content-Type']}\r\n\r\n".encode() + body)
        received = b""
        while b"Hello there." not in received:
            received += connection.recv(1 << 16)
        assert b"transcript.text.done" not in received
        gateway.call(gateway.service.release)
        while data := connection.recv(1 << 16):
            received += data
    assert b"transcript.text.done" in received


def test_a_silent_stream_is_kept_alive(make):
    answer = send(make(script=lambda _: [Wait(0.3), HELLO], keepalive_s=0.05), stream="true")
    assert answer.body.startswith(b": keep-alive\n\n")
    assert events_of(answer)[-1]["text"] == "Hello there."


@pytest.mark.parametrize("stream", ["true", "false"])
def test_a_failure_before_the_first_transcript_keeps_its_status(make, stream):
    gateway = make(script=lambda _: [Fail("stage_failed", "no ears", "recogniser")])
    answer = send(gateway, stream=stream)
    assert (answer.status, answer.error()["code"], answer.error()["stage"]) == (500, "stage_failed", "recogniser")
    assert answer.headers["x-should-retry"] == "false"


def test_a_failure_in_a_stream_is_an_event_and_a_broken_end(make):
    gateway = make(script=lambda _: [HELLO, Fail("stage_failed", "no ears", "recogniser")])
    body, headers = form(("stream", "true"), ("file", WAV, "a.wav"))
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
    received = gateway.exchange(f"{head}Content-Type: {headers['Content-Type']}\r\n\r\n".encode() + body)
    assert b'"error":{"message":"no ears"' in received
    assert b"transcript.text.done" not in received
    assert not received.endswith(b"0\r\n\r\n")


def test_a_failure_of_the_callers_making_names_its_field(make):
    gateway = make(script=lambda _: [Fail("invalid_value", "This model hears English only.", "recogniser")])
    assert send(gateway).status == 400


def test_a_client_that_leaves_ends_its_request(make):
    gateway = make(script=lambda _: [HELLO, Hold()])
    for stream in ("true", "false"):
        cancelled = gateway.service.cancelled
        body, headers = form(("stream", stream), ("file", WAV, "a.wav"))
        head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
        with gateway.connect() as connection:
            connection.sendall(f"{head}Content-Type: {headers['Content-Type']}\r\n\r\n".encode() + body)
            gateway.until(lambda: gateway.service.state().running == 1)
        gateway.until(lambda: gateway.service.state().running == 0)
        assert gateway.service.cancelled == cancelled + 1


def test_what_is_no_transcript_is_a_failure_of_the_pipeline(make):
    answer = send(make(script=lambda _: [Say(tone(0.1))]))
    assert (answer.status, answer.error()["code"]) == (500, "stage_failed")


def test_the_longest_recording(make):
    gateway = make(recording_s_max=20.0)
    assert send(gateway, wav(20.0)).status == 200
    for data in (wav(21.0), recorded("ogg", "libopus", 30.0), recorded("adts", "aac", 30.0)):
        answer = send(gateway, data)
        assert (answer.status, answer.error()["param"], answer.error()["code"]) == (400, "file", "unsupported_media")
        assert "the limit is 20 s" in answer.error()["message"]


def test_all_recordings_together_are_bounded_and_room_comes_back(make):
    gateway = make(script=lambda submit: [Hold(), *converse(submit)], recordings_s_max=30.0)
    body, headers = form(("file", wav(20.0), "a.wav"))
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
    with gateway.connect() as connection:
        connection.sendall(f"{head}Content-Type: {headers['Content-Type']}\r\n\r\n".encode() + body)
        gateway.until(lambda: gateway.service.state().running == 1)
        refused = send(gateway, wav(20.0))
        assert (refused.status, refused.error()["code"]) == (429, "queue_full")
        spoken = {"data": base64.b64encode(wav(20.0)).decode(), "format": "wav"}
        message = {"role": "user", "content": [{"type": "input_audio", "input_audio": spoken}]}
        refused = gateway.ask("POST", "/v1/chat/completions", {"messages": [message]})
        assert (refused.status, refused.error()["code"]) == (429, "queue_full"), "one bound for all surfaces"
    gateway.until(lambda: gateway.service.state().running == 0)
    gateway.call(gateway.service.release)
    assert send(gateway, wav(20.0)).status == 200


def test_admission_is_that_of_every_surface(make):
    gateway = make(script=lambda _: [Hold()], limits={"requests_max": 1, "queue_max": 0})
    body, headers = form(("file", WAV, "a.wav"))
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
    with gateway.connect() as connection:
        connection.sendall(f"{head}Content-Type: {headers['Content-Type']}\r\n\r\n".encode() + body)
        gateway.until(lambda: gateway.service.state().running == 1)
        assert send(gateway).status == 429
    gateway.service.state_name = "loading"
    answer = send(gateway)
    assert (answer.status, answer.error()["code"]) == (503, "model_loading")


def test_a_pipeline_that_does_not_hear_says_so(make_gateway):
    gateway = make_gateway(plan=speech_plan())
    for path in (PATH, "/v1/audio/translations"):
        answer = send(gateway, path=path)
        assert (answer.status, answer.error()["code"]) == (501, "unsupported_endpoint")
        assert answer.headers["x-should-retry"] == "false"
    assert gateway.ask("POST", PATH, {"model": "other"}).status == 404


def test_translation_only_where_a_stage_says_that_it_can(make):
    answer = send(make(), path="/v1/audio/translations")
    assert (answer.status, answer.error()["code"]) == (501, "unsupported_endpoint")
    facts = chat_facts()
    facts["recogniser"]["translation"] = True
    gateway = make(facts=facts)
    answer = send(gateway, path="/v1/audio/translations", response_format="verbose_json")
    assert (answer.status, answer.json()["task"]) == (200, "translate")
    assert gateway.service.submitted[-1].params["task"] == "translate"


def test_transcriptions_are_counted(make):
    gateway = make()
    assert send(gateway).status == 200
    text = gateway.ask("GET", "/metrics").body.decode()
    assert 'route="transcriptions",status="200"' in text
    assert 'surface="transcription"' in text
