"""The speech route end to end over a scripted service."""

import base64
import io
import json
import wave

import numpy as np
import pytest

from omnirt.gateway.config import AUDIO_FORMATS, GatewayConfig
from omnirt.testing.scripted_service import Fail, Hold, Say, chunks_of, speech_facts, speech_plan, tone

CONTENT_TYPES = {
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "aac": "audio/aac",
    "flac": "audio/flac",
    "wav": "audio/wav",
    "pcm": "audio/pcm;rate=24000;channels=1",
}


def events_of(answer):
    blocks = [block for block in answer.body.decode().split("\n\n") if block and not block.startswith(":")]
    assert all(block.startswith("data: ") and "\n" not in block for block in blocks), "one line of JSON per event"
    return [json.loads(block[6:]) for block in blocks]


def audio_of(events):
    return b"".join(base64.b64decode(e["audio"]) for e in events if e["type"] == "speech.audio.delta")


@pytest.mark.parametrize("format", AUDIO_FORMATS)
@pytest.mark.parametrize("stream", [None, True, False])
def test_every_format_in_every_delivery(gateway, format, stream):
    answer = gateway.speak(response_format=format, stream=stream)
    assert answer.status == 200
    if stream:
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        events = events_of(answer)
        assert [e["type"] for e in events[:-1]] == ["speech.audio.delta"] * (len(events) - 1)
        assert events[-1]["type"] == "speech.audio.done"
        assert audio_of(events)
    else:
        assert answer.headers["content-type"] == CONTENT_TYPES[format]
        assert ("content-length" in answer.headers) == (stream is False)
        assert ("transfer-encoding" in answer.headers) == (stream is None)
        assert answer.body


def test_all_deliveries_carry_the_same_audio(gateway):
    chunked = gateway.speak(response_format="pcm").body
    assert chunked
    assert gateway.speak(response_format="pcm", stream=False).body == chunked
    assert audio_of(events_of(gateway.speak(response_format="pcm", stream=True))) == chunked
    assert gateway.speak(response_format="wav").body[44:] == chunked
    assert gateway.speak(response_format="wav", stream=False).body[44:] == chunked


def test_a_whole_wav_has_exact_sizes(gateway):
    answer = gateway.speak("x" * 20, response_format="wav", stream=False)
    assert int(answer.headers["content-length"]) == len(answer.body) == 44 + 2 * 24_000
    with wave.open(io.BytesIO(answer.body)) as file:
        assert file.getnframes() == 24_000


def test_every_delta_in_pcm_holds_whole_samples(gateway):
    gateway.service.script = lambda _: chunks_of(tone(1.0), chunk_s=0.0173)
    deltas = [e for e in events_of(gateway.speak(response_format="pcm", stream=True)) if "audio" in e]
    assert len(deltas) > 50
    assert all(len(base64.b64decode(e["audio"])) % 2 == 0 for e in deltas)
    assert {e["response_format"] for e in deltas} == {"pcm"}


def test_the_done_event_has_consistent_usage(gateway):
    usage = events_of(gateway.speak("twelve chars", stream_format="sse"))[-1]["usage"]
    assert usage["input_tokens"] == 12
    assert usage["output_tokens"] == 12
    assert usage["total_tokens"] == 24
    assert usage["input_token_details"] == {"text_tokens": 12, "audio_tokens": 0}


def test_speed_changes_the_length(gateway):
    normal = len(gateway.speak("x" * 40, response_format="pcm").body)
    assert len(gateway.speak("x" * 40, response_format="pcm", speed=0.5).body) == pytest.approx(2 * normal, rel=0.05)
    assert len(gateway.speak("x" * 40, response_format="pcm", speed=2.0).body) == pytest.approx(normal / 2, rel=0.05)


def test_voice_forms_are_equal_and_reach_the_stages(gateway):
    bodies = [gateway.speak(response_format="pcm", voice=v).body for v in ("deep", {"id": "deep"}, "Deep")]
    assert bodies[0] == bodies[1] == bodies[2] != gateway.speak(response_format="pcm", voice="heart").body
    assert gateway.service.submitted[-2].params["voice"] == "deep"


def test_an_unknown_voice_lists_the_choices(gateway):
    error = gateway.speak(voice="nobody").error()
    assert error["param"] == "voice"
    assert "heart, deep" in error["message"]


def test_a_path_as_voice_name_opens_nothing_and_tells_nothing(gateway):
    existing, missing = gateway.speak(voice="../../etc/passwd"), gateway.speak(voice="../../etc/none")
    assert existing.status == missing.status == 400
    assert existing.error()["message"] == missing.error()["message"]


def test_the_request_reaches_the_service_as_sent(gateway):
    gateway.speak("hi", seed=42, voice="deep", speed=2.0, instructions="softly", headers={"X-Request-Id": "mine"})
    submit = gateway.service.submitted[-1]
    assert submit.seed == 42
    assert submit.outputs == ("audio",)
    assert submit.inputs[0][1].text == "hi"
    assert submit.public_id == "mine"
    assert submit.params == {"speed": 2.0, "voice": "deep", "instructions": "softly"}


def test_seed_decides_and_its_absence_is_passed_on(gateway):
    assert gateway.speak(seed=1, response_format="pcm").body == gateway.speak(seed=1, response_format="pcm").body
    assert gateway.speak(seed=1, response_format="pcm").body != gateway.speak(seed=2, response_format="pcm").body
    gateway.speak()
    assert gateway.service.submitted[-1].seed is None


@pytest.mark.parametrize("rate", [16_000, 24_000, 44_100, 48_000])
def test_headers_and_headers_inside_files_carry_the_real_rate(make_gateway, rate):
    facts = speech_facts()
    facts["voice"]["sample_rate"] = rate
    gateway = make_gateway(facts=facts, script=lambda _: chunks_of(tone(0.5, rate), rate))
    whole = gateway.speak(response_format="wav", stream=False)
    with wave.open(io.BytesIO(whole.body)) as file:
        assert (file.getframerate(), file.getnframes()) == (rate, rate // 2)
    assert whole.headers["x-sample-rate"] == str(rate)
    pcm = gateway.speak(response_format="pcm")
    assert pcm.headers["content-type"] == "audio/pcm;rate=24000;channels=1", "what clients of the API assume"
    assert len(pcm.body) == pytest.approx(24_000, abs=200)
    asked = gateway.speak(response_format="pcm", sample_rate=16_000)
    assert asked.headers["content-type"] == "audio/pcm;rate=16000;channels=1"
    assert asked.headers["x-channels"] == "1"
    assert len(asked.body) == pytest.approx(16_000, abs=200)


def test_the_native_rate_is_an_option(make_gateway):
    script = {"script": lambda _: chunks_of(tone(0.5, 16_000), 16_000)}
    gateway = make_gateway(config=GatewayConfig(pcm_rate=0, default_format="pcm"), **script)
    answer = gateway.speak()
    assert answer.headers["content-type"] == "audio/pcm;rate=16000;channels=1"
    assert answer.body == tone(0.5, 16_000).tobytes()


def test_float_audio_is_spoken_too(gateway):
    gateway.service.script = lambda _: [Say((tone(0.1) / 32767).astype(np.float32))]
    assert gateway.speak(response_format="pcm").body == tone(0.1).tobytes()


@pytest.mark.parametrize("delivery", [{}, {"stream": True}, {"stream": False}])
def test_a_failure_before_the_first_byte_keeps_its_status(gateway, delivery):
    gateway.service.script = lambda _: [Fail("stage_failed", "it broke\nTraceback: /secret/path")]
    answer = gateway.speak(**delivery)
    assert answer.status == 500
    assert answer.headers["x-should-retry"] == "false"
    error = answer.error()
    assert (error["code"], error["type"], error["message"]) == ("stage_failed", "server_error", "it broke")
    assert error["stage"] == "voice"


@pytest.mark.parametrize(
    ("code", "status"),
    [("stage_lost", 500), ("timeout", 504), ("cancelled", 409), ("unsupported", 501), ("invalid_value", 400)],
)
def test_failures_of_the_pipeline_have_their_status(gateway, code, status):
    gateway.service.script = lambda _: [Fail(code)]
    answer = gateway.speak()
    assert answer.status == status
    if status != 400:
        assert answer.headers["x-should-retry"] == "false"


def test_silence_is_a_valid_answer_in_every_format(gateway):
    gateway.service.script = lambda _: []
    for name in AUDIO_FORMATS:
        assert gateway.speak(response_format=name).status == 200
    assert gateway.speak(response_format="wav", stream=False).body[40:] == b"\0\0\0\0"


def test_a_pipeline_without_speech_says_so(make_gateway):
    plan = speech_plan("painter")
    gateway = make_gateway(
        plan=type(plan)(**{f: getattr(plan, f) for f in plan.__struct_fields__} | {"outputs": ("image",)})
    )
    answer = gateway.speak()
    assert (answer.status, answer.error()["code"]) == (501, "unsupported_endpoint")
    assert answer.headers["x-should-retry"] == "false"
    assert gateway.speak(model="other").status == 404


def test_unknown_models_are_not_found_and_none_is_the_only_one(gateway):
    answer = gateway.speak(model="gpt")
    assert (answer.status, answer.error()["code"], answer.error()["param"]) == (404, "model_not_found", "model")
    assert gateway.speak(model=3).error()["param"] == "model"
    for name in (None, "speech", "tts-1", "org/voice"):
        assert gateway.speak(model=name).status == 200


def test_the_input_limit_is_the_pipelines(make_gateway):
    gateway = make_gateway(plan=speech_plan(input_chars_max=10))
    assert gateway.speak("x" * 10).status == 200
    assert gateway.speak("x" * 11).error()["param"] == "input"


def test_a_whole_answer_that_is_too_long_fails_with_a_reason(make_gateway):
    gateway = make_gateway(config=GatewayConfig(complete_bytes_max=1000))
    answer = gateway.speak(stream=False)
    assert answer.status == 500
    assert "stream" in answer.error()["message"]
    assert gateway.speak().status == 200


def test_same_name_twice_at_once_is_two_requests(gateway):
    gateway.service.script = lambda submit: [
        Hold(),
        *chunks_of(tone(0.1, hertz=300 + 100 * len(submit.inputs[0][1].text))),
    ]
    from concurrent.futures import ThreadPoolExecutor

    before = len(gateway.service.submitted)
    with ThreadPoolExecutor(2) as pool:
        sent = {t: pool.submit(gateway.speak, t, {"X-Request-Id": "twin"}, response_format="pcm") for t in ("a", "bb")}
        gateway.until(lambda: len(gateway.service.submitted) == before + 2)
        gateway.call(gateway.service.release)
        answers = {text: future.result() for text, future in sent.items()}
    assert answers["a"].headers["x-request-id"] == answers["bb"].headers["x-request-id"] == "twin"
    assert answers["a"].body == tone(0.1, hertz=400).tobytes()
    assert answers["bb"].body == tone(0.1, hertz=500).tobytes()
