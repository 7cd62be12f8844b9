"""The chat surface: what reaches the pipeline, and what comes back for what is wrong."""

import base64
import io
import wave

import msgspec
import numpy as np
import pytest

from omnirt.gateway.config import GatewayConfig
from omnirt.gateway.media import wav_header
from omnirt.testing.live_gateway import LiveGateway
from omnirt.testing.scripted_chat import chat_facts, chat_plan, chatting
from omnirt.testing.scripted_service import Fail, Hold, ScriptedService, tone
from omnirt.wire.payload import Message, Part

WAV = wav_header(16_000, 16_000 * 2) + tone(1.0, rate=16_000).tobytes()
SPOKEN = {"modalities": ["text", "audio"]}


@pytest.fixture(scope="module")
def shared():
    with LiveGateway(lambda: ScriptedService(**chatting())) as gateway:
        yield gateway


@pytest.fixture
def gateway(shared):
    script = shared.service.script
    yield shared
    shared.service.script = script


@pytest.fixture
def make(make_gateway):
    return lambda config=None, **options: make_gateway(config=config, **chatting(**options))


def chat(gateway, content="hello there", headers=None, **fields):
    body = {"messages": [{"role": "user", "content": content}]} | fields
    return gateway.ask("POST", "/v1/chat/completions", body, headers)


def heard(data=WAV):
    return {"type": "input_audio", "input_audio": {"data": base64.b64encode(data).decode(), "format": "wav"}}


def test_a_text_answer(gateway):
    answer = chat(gateway, model="gpt-4o-audio-preview", headers={"X-Request-Id": "mine"}).json()
    assert answer["object"] == "chat.completion"
    assert answer["id"].startswith("chatcmpl-")
    assert answer["model"] == "gpt-4o-audio-preview"
    (choice,) = answer["choices"]
    assert choice["message"] == {"role": "assistant", "content": "hello there", "refusal": None}
    submit = gateway.service.submitted[-1]
    assert submit.outputs == ("text",)
    assert [modality for modality, _ in submit.inputs] == ["chat"]
    assert submit.inputs[0][1].messages() == (Message("user", (Part("hello there"),)),)
    assert (submit.public_id, submit.params, submit.seed) == ("mine", {}, None)


def test_a_spoken_answer_wakes_the_voice(gateway):
    answer = chat(gateway, **SPOKEN, audio={"voice": "deep"}, seed=5).json()
    submit = gateway.service.submitted[-1]
    assert submit.outputs == ("text", "audio")
    assert submit.params == {"speed": 1.0, "voice": "deep"}
    assert submit.seed == 5
    with wave.open(io.BytesIO(base64.b64decode(answer["choices"][0]["message"]["audio"]["data"]))) as file:
        assert file.getnframes() > 0


@pytest.mark.parametrize("modalities", [["audio"], ["text", "audio"]])
def test_a_spoken_answer_has_its_text_too(gateway, modalities):
    message = chat(gateway, modalities=modalities).json()["choices"][0]["message"]
    assert message["content"] == message["audio"]["transcript"] == "hello there"


def test_an_unknown_voice_is_named_and_the_choices_listed(gateway):
    error = chat(gateway, **SPOKEN, audio={"voice": "nobody"}).error()
    assert (error["param"], error["code"]) == ("audio.voice", "invalid_value")
    assert "heart" in error["message"]


def test_recordings_reach_the_pipeline_in_order(gateway):
    long = wav_header(16_000, None) + np.tile(tone(1.0, rate=16_000), 20).tobytes()
    url = "data:audio/wav;base64," + base64.b64encode(long).decode()
    content = [{"type": "text", "text": "what is"}, heard(), {"type": "audio_url", "audio_url": {"url": url}}]
    assert chat(gateway, content).status == 200
    submit = gateway.service.submitted[-1]
    assert [modality for modality, _ in submit.inputs] == ["chat", "audio", "audio", "audio"]
    assert submit.inputs[0][1].messages()[0].parts == (Part("what is"), Part(clip=0), Part(clip=1))
    pieces = [payload for _, payload in submit.inputs[1:]]
    assert [piece.clip for piece in pieces] == [0, 1, 1]
    assert all(piece.rate == 16_000 for piece in pieces)
    assert pieces[0].samples.size == 16_000
    assert sum(piece.samples.size for piece in pieces[1:]) == 20 * 16_000


@pytest.mark.parametrize(
    ("data", "word"),
    [("!!!!", "base64"), ("A", "truncated"), ("", "empty"), (base64.b64encode(b"no audio here").decode(), "wav")],
)
def test_a_recording_that_cannot_be_read_is_named(gateway, data, word):
    part = {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}
    answer = chat(gateway, [{"type": "text", "text": "x"}, part])
    assert answer.status == 400
    assert answer.error()["param"] == "messages[0].content[1].input_audio.data"
    assert word in answer.error()["message"]


def test_a_url_that_leads_inside_is_not_fetched(gateway):
    part = {"type": "audio_url", "audio_url": {"url": f"{gateway.url}/healthz"}}
    answer = chat(gateway, [part])
    assert answer.status == 403
    assert answer.error()["param"] == "messages[0].content[0].audio_url.url"


def test_recordings_have_a_bound_together(make):
    gateway = make(GatewayConfig(chat_audio_s_max=1.5))
    assert chat(gateway, [heard()]).status == 200
    answer = chat(gateway, [heard(), heard()])
    assert (answer.status, answer.error()["param"]) == (400, "messages[0].content[1].input_audio.data")


def test_recordings_of_all_requests_have_a_bound_and_it_frees_itself(make):
    gateway = make(GatewayConfig(recordings_s_max=1.5))
    for _ in range(3):
        assert chat(gateway, [heard()]).status == 200
    assert chat(gateway, [heard(), heard()]).status == 429


def test_an_earlier_answer_is_referred_to_by_its_id(gateway):
    audio = chat(gateway, "the answer is four", **SPOKEN).json()["choices"][0]["message"]["audio"]
    messages = [
        {"role": "user", "content": "two and two?"},
        {"role": "assistant", "audio": {"id": audio["id"]}},
        {"role": "user", "content": "sure?"},
    ]
    assert gateway.ask("POST", "/v1/chat/completions", {"messages": messages}).status == 200
    told = gateway.service.submitted[-1].inputs[0][1].messages()
    assert told[1] == Message("assistant", (Part("the answer is four"),))
    messages[1]["audio"]["id"] = "audio_of_somebody"
    answer = gateway.ask("POST", "/v1/chat/completions", {"messages": messages})
    assert (answer.status, answer.error()["param"]) == (400, "messages[1].audio.id")


def test_an_answer_that_was_streamed_can_be_referred_to(gateway):
    body = chat(gateway, "five", stream=True, **SPOKEN).body.decode()
    known_as = body.partition('"audio":{"id":"')[2].partition('"')[0]
    messages = [{"role": "assistant", "audio": {"id": known_as}}]
    assert gateway.ask("POST", "/v1/chat/completions", {"messages": messages}).status == 200
    assert gateway.service.submitted[-1].inputs[0][1].messages() == (Message("assistant", (Part("five"),)),)


def test_several_answers(gateway):
    answer = chat(gateway, "one two three", n=3, seed=1).json()
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    assert len({submit.seed for submit in gateway.service.submitted[-3:]}) == 3
    assert answer["usage"]["completion_tokens"] == 9
    assert answer["usage"]["prompt_tokens"] == 13


def test_usage_counts_the_speech_apart(gateway):
    usage = chat(gateway, "hello there", **SPOKEN).json()["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (12, 2 + 11, 25)
    assert usage["completion_tokens_details"]["audio_tokens"] == 11
    assert usage["prompt_tokens_details"]["cached_tokens"] == 4


@pytest.mark.parametrize("format", ["wav", "mp3", "flac", "opus", "aac", "pcm16"])
def test_every_format_as_a_whole(gateway, format):
    choice = chat(gateway, **SPOKEN, audio={"format": format}).json()["choices"][0]
    assert base64.b64decode(choice["message"]["audio"]["data"], validate=True)
    assert choice["audio_metadata"]["format"] == format


@pytest.mark.parametrize("format", ["wav", "mp3", "opus", "aac", "pcm16"])
def test_every_format_that_streams(gateway, format):
    assert b'"data":"' in chat(gateway, **SPOKEN, audio={"format": format}, stream=True).body


def test_a_pipeline_without_chat_says_so(make_gateway):
    answer = chat(make_gateway())
    assert (answer.status, answer.error()["code"]) == (501, "unsupported_endpoint")


def test_a_pipeline_that_only_thinks_neither_hears_nor_speaks(make):
    plan = chat_plan()
    edges = tuple(edge for edge in plan.edges if {edge.source, edge.target} == {"client", "thinker"})
    stages = tuple(stage for stage in plan.stages if stage.name == "thinker")
    plan = msgspec.structs.replace(plan, edges=edges, stages=stages, inputs=("chat",), outputs=("text",))
    gateway = make(plan=plan)
    assert chat(gateway).status == 200
    assert chat(gateway, **SPOKEN).error()["param"] == "modalities"
    assert chat(gateway, [heard()]).error()["param"] == "messages[0].content[0].input_audio"


def test_a_conversation_that_does_not_fit_the_pipeline_is_refused(make):
    plan = chat_plan()
    small = tuple(msgspec.structs.replace(edge, chunk_bytes_max=100) for edge in plan.edges)
    gateway = make(plan=msgspec.structs.replace(plan, edges=small))
    answer = chat(gateway, "x" * 200)
    assert (answer.status, answer.error()["param"]) == (400, "messages")


def test_bounds_are_those_of_the_configuration(make):
    gateway = make(GatewayConfig(messages_max=2, chat_chars_max=10, json_bytes_max=1000))
    assert chat(gateway, "x" * 11).error()["param"] == "messages"
    three = [{"role": "user", "content": "x"}] * 3
    assert gateway.ask("POST", "/v1/chat/completions", {"messages": three}).error()["param"] == "messages"
    assert chat(gateway, "x" * 2000).status == 413


@pytest.mark.parametrize(("state", "status"), [("loading", 503), ("draining", 503)])
def test_a_server_that_cannot_serve_yet_or_any_more(make, state, status):
    gateway = make()
    gateway.service.state_name = state
    assert chat(gateway).status == status


def test_a_failure_is_an_envelope(gateway):
    gateway.service.script = lambda _: [Fail("stage_failed", "oh no", "thinker")]
    answer = chat(gateway, **SPOKEN)
    assert (answer.status, answer.error()["code"], answer.error()["stage"]) == (500, "stage_failed", "thinker")


def test_one_of_several_answers_that_fails_ends_them_all(gateway):
    gateway.service.script = lambda submit: [Fail("stage_lost")] if submit.seed == 1 else [Hold()]
    assert chat(gateway, n=3, seed=1).error()["code"] == "stage_lost"
    gateway.until(lambda: gateway.service.state().running == 0)


def test_what_is_asked_for_is_counted(make):
    gateway = make()
    assert chat(gateway, stream=True, **SPOKEN).status == 200
    assert chat(gateway, n=2).status == 200
    gateway.service.script = lambda _: [Fail("stage_failed")]
    assert chat(gateway).status == 500
    lines = gateway.ask("GET", "/metrics").body.decode().splitlines()
    counts = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if 'surface="chat"' in line}
    assert counts['omnirt_requests_total{outcome="ok",surface="chat"}'] == 2
    assert counts['omnirt_requests_total{outcome="stage_failed",surface="chat"}'] == 1
    assert counts['omnirt_request_ttfp_seconds_count{surface="chat"}'] == 1
    assert counts['omnirt_request_tokens_total{surface="chat"}'] == 6


@pytest.mark.parametrize("field", ["temperature", "stop", "max_tokens"])
def test_parameters_reach_the_stages(gateway, field):
    value = {"temperature": 0.25, "stop": ["x"], "max_tokens": 2}[field]
    assert chat(gateway, **{field: value}).status == 200
    assert gateway.service.submitted[-1].params == {field: value}


def test_what_no_stage_acts_on_is_refused(make):
    facts = chat_facts() | {"thinker": {}}
    error = chat(make(facts=facts), frequency_penalty=1.0).error()
    assert (error["param"], error["code"]) == ("frequency_penalty", "unsupported_parameter")
