"""Chat through the OpenAI SDK: checks 13 to 22 of the conformance list, those of 1 to 12 that concern chat, and what
streams, transcripts, usage and recordings must be like.

`server` is any omnirt server that chats by text and voice. To run the general checks against another one as well, add
its name to CHAT_SERVERS and give a fixture `<name>_server`.
"""

import base64
import io
import json
import time
import wave
from concurrent.futures import ThreadPoolExecutor

import av
import openai
import pytest

from omnirt.gateway.config import GatewayConfig
from omnirt.gateway.media import wav_header
from omnirt.testing.live_gateway import LiveGateway
from omnirt.testing.scripted_chat import chat_plan, chatting
from omnirt.testing.scripted_service import (
    Fail,
    Hold,
    Report,
    Say,
    SayText,
    ScriptedService,
    Wait,
    tone,
)

CHAT_SERVERS = ("scripted_chat", "voice")
ASKED = "What is the capital of France?"
MESSAGES = [{"role": "user", "content": ASKED}]
SPOKEN = {"modalities": ["text", "audio"]}
JSON = {"Content-Type": "application/json"}
WAV = wav_header(16_000, 16_000 * 2) + tone(1.0, rate=16_000).tobytes()
ENVELOPE = {"message", "type", "param", "code"}


@pytest.fixture(scope="module")
def scripted_chat_server():
    with LiveGateway(lambda: ScriptedService(**chatting())) as gateway:
        yield gateway


@pytest.fixture(params=CHAT_SERVERS)
def server(request):
    return request.getfixturevalue(f"{request.param}_server")


@pytest.fixture
def scripted_chat(scripted):
    return lambda config=None, **options: scripted(config=config, **chatting(**options))


@pytest.fixture
def ask(client, model):
    return lambda **fields: client.chat.completions.create(**{"model": model, "messages": MESSAGES} | fields)


def recording(data=WAV):
    return {"type": "input_audio", "input_audio": {"data": base64.b64encode(data).decode(), "format": "wav"}}


def raw_events(server, **fields):
    body = {"messages": MESSAGES, "stream": True} | fields
    answer = server.ask("POST", "/v1/chat/completions", body)
    assert answer.status == 200, answer.body
    return [line[6:] for line in answer.body.decode().split("\n") if line.startswith("data: ")]


def text_of(chunks):
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)


def audio_of(chunks):
    """What the audio deltas held: name -> values."""
    found = {}
    for chunk in chunks:
        for choice in chunk.choices:
            for name, value in (choice.delta.model_dump(exclude_none=True).get("audio") or {}).items():
                found.setdefault(name, []).append(value)
    return found


def reasons_of(chunks):
    return [choice.finish_reason for chunk in chunks for choice in chunk.choices if choice.finish_reason]


def adds_up(usage):
    return (
        usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
        and usage.prompt_tokens > 0
        and usage.completion_tokens > 0
        and usage.completion_tokens_details.audio_tokens <= usage.completion_tokens
        and usage.prompt_tokens_details.cached_tokens <= usage.prompt_tokens
    )


# ------------------------------------------------------------ what all surfaces share


def test_check_3_and_4_and_5_errors_of_the_route(server, client):
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="no-such", messages=MESSAGES)
    assert caught.value.code == "model_not_found"
    assert caught.value.body.keys() >= ENVELOPE
    for path in ("/v1/chat/completions", "/v1/completions"):
        broken = server.ask("POST", path, b"{", JSON)
        assert (broken.status, broken.error()["type"]) == (400, "invalid_request_error")
        wrong = server.ask("GET", path)
        assert (wrong.status, wrong.headers["allow"]) == (405, "POST")


def test_check_7_request_ids(ask):
    answer = ask(extra_headers={"X-Request-Id": "mine-1"})
    assert answer._request_id == "mine-1"
    assert ask()._request_id.startswith("req_")
    with pytest.raises(openai.BadRequestError) as caught:
        ask(temperature=9, extra_headers={"X-Request-Id": "mine-2"})
    assert caught.value.request_id == "mine-2"
    with ask(stream=True, extra_headers={"X-Request-Id": "mine-3"}) as stream:
        assert stream.response.headers["x-request-id"] == "mine-3"


def test_check_8_pages_may_ask(server):
    page = {"Origin": "https://page.example"}
    for body in ({"messages": MESSAGES}, {"messages": MESSAGES, "stream": True}, {}):
        answer = server.ask("POST", "/v1/chat/completions", body, page)
        assert "access-control-allow-origin" in answer.headers


def test_check_9_unknown_fields_and_nulls(server, ask):
    names = ("temperature", "top_p", "stop", "n", "seed", "audio", "modalities", "tools", "logprobs", "stream_options")
    nulls = dict.fromkeys((*names, "response_format", "max_tokens", "max_completion_tokens", "extra_body"))
    extras = {"user": "u", "safety_identifier": "s", "store": True, "metadata": {"a": "b"}, "frobnicate": [1]}
    extras |= {"service_tier": "auto", "prompt_cache_key": "k", "parallel_tool_calls": True, "reasoning_effort": "low"}
    body = {"messages": MESSAGES, "stream": None} | nulls | extras
    assert server.ask("POST", "/v1/chat/completions", body).status == 200
    assert ask(extra_body={"frobnicate": 1, "seed": None}).choices


def test_check_11_a_full_queue_refuses_and_the_sdk_gets_through_later(scripted_chat, connect):
    server = scripted_chat(plan=chat_plan(requests_max=1, queue_max=1), script=lambda _: [Hold(), SayText("hi")])
    chat = {"model": "voice", "messages": MESSAGES}
    with ThreadPoolExecutor(3) as pool:
        slow = [pool.submit(connect(server).chat.completions.create, **chat) for _ in range(2)]
        server.until(lambda: len(server.service.submitted) == 2)
        with pytest.raises(openai.RateLimitError) as caught:
            connect(server).chat.completions.create(**chat)
        assert caught.value.code == "queue_full"
        assert float(caught.value.response.headers["retry-after"]) > 0
        patient = pool.submit(connect(server, max_retries=2).chat.completions.create, **chat)
        server.call(server.service.release)
        assert [future.result().choices[0].message.content for future in (*slow, patient)] == ["hi"] * 3


@pytest.mark.parametrize(("state", "code"), [("loading", "model_loading"), ("draining", "shutting_down")])
def test_check_12_a_server_that_cannot_serve_says_for_how_long(scripted_chat, connect, state, code):
    server = scripted_chat()
    server.service.state_name = state
    with pytest.raises(openai.InternalServerError) as caught:
        connect(server).chat.completions.create(model="voice", messages=MESSAGES)
    assert (caught.value.status_code, caught.value.code) == (503, code)
    assert float(caught.value.response.headers["retry-after"]) > 0


# ------------------------------------------------------------ checks 13 to 22


def test_check_13_a_text_answer(ask):
    answer = ask()
    assert answer.object == "chat.completion"
    (choice,) = answer.choices
    assert choice.finish_reason == "stop"
    assert choice.message.role == "assistant"
    assert choice.message.content
    assert choice.message.audio is None
    assert adds_up(answer.usage)


def test_check_14_a_spoken_answer(ask, voice):
    answer = ask(**SPOKEN, audio={"voice": voice, "format": "wav"})
    (choice,) = answer.choices
    audio = choice.message.audio
    assert audio.id
    assert audio.expires_at > time.time()
    assert choice.message.content == audio.transcript
    assert audio.transcript
    data = base64.b64decode(audio.data)
    with wave.open(io.BytesIO(data)) as file:
        assert file.getnframes() * 2 + 44 == len(data)
        assert file.getnframes() > 0
    assert adds_up(answer.usage)


def test_check_15_a_stream_is_the_same_text(ask, server):
    chunks = list(ask(stream=True, seed=5))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert text_of(chunks) == ask(seed=5).choices[0].message.content
    assert reasons_of(chunks) == ["stop"]
    assert len({(chunk.id, chunk.created, chunk.model, chunk.object) for chunk in chunks}) == 1
    events = raw_events(server)
    assert events[-1] == "[DONE]"
    assert events.count("[DONE]") == 1


def test_check_16_streamed_sound(ask, voice):
    chunks = list(ask(**SPOKEN, audio={"voice": voice, "format": "pcm16"}, stream=True, seed=5))
    audio = audio_of(chunks)
    pieces = [base64.b64decode(data, validate=True) for data in audio["data"]]
    assert all(len(piece) % 2 == 0 for piece in pieces)
    assert len(set(audio["id"])) == len(audio["expires_at"]) == 1
    transcript = "".join(audio["transcript"])
    assert transcript == text_of(chunks)
    seconds = len(b"".join(pieces)) / 2 / 24_000
    assert 0.02 < seconds / len(transcript) < 0.3, "as long as that takes to say"
    assert not any(data in text_of(chunks) for data in audio["data"])
    finish = next(index for index, chunk in enumerate(chunks) if reasons_of([chunk]))
    assert not audio_of(chunks[finish:]), "it is over when it says so"


def test_check_17_usage_when_it_is_asked_for(ask):
    chunks = list(ask(stream=True, seed=5, stream_options={"include_usage": True}))
    assert chunks[-1].choices == []
    assert adds_up(chunks[-1].usage)
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert chunks[-1].usage.completion_tokens == ask(seed=5).usage.completion_tokens
    for options in ({"include_usage": False}, None):
        chunks = list(ask(stream=True, stream_options=options))
        assert all(chunk.usage is None and chunk.choices for chunk in chunks)


@pytest.mark.parametrize(
    "part",
    [
        recording(),
        {"type": "audio_url", "audio_url": {"url": "data:audio/wav;base64," + base64.b64encode(WAV).decode()}},
    ],
)
def test_check_18_recordings_reach_the_pipeline(scripted_chat, connect, part):
    server = scripted_chat()
    messages = [{"role": "user", "content": [{"type": "text", "text": "what is this?"}, part]}]
    assert connect(server).chat.completions.create(model="voice", messages=messages).choices
    (_, chat), (modality, pcm) = server.service.submitted[-1].inputs
    assert (modality, pcm.clip, pcm.rate) == ("audio", 0, 16_000)
    assert pcm.samples.tobytes() == WAV[44:]
    assert [(part.text, part.clip) for part in chat.messages()[0].parts] == [("what is this?", -1), ("", 0)]


@pytest.mark.parametrize(
    ("part", "param"),
    [
        ({"type": "smell", "smell": "rose"}, "messages[0].content[0].type"),
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}, "messages[0].content[0].image_url"),
        ({"type": "video_url", "video_url": {"url": "https://a.example/v"}}, "messages[0].content[0].video_url"),
        ({"type": "file", "file": {"file_id": "f"}}, "messages[0].content[0].file"),
    ],
)
def test_check_18_parts_that_are_not_for_it_are_named(ask, part, param):
    with pytest.raises(openai.BadRequestError) as caught:
        ask(messages=[{"role": "user", "content": [part]}])
    assert caught.value.param == param


def test_check_19_nested_extras_are_the_same_as_merged_ones(server, ask, model):
    body = {"model": model, "messages": MESSAGES, "extra_body": {"seed": 3}}
    nested = server.ask("POST", "/v1/chat/completions", body).json()
    merged = ask(extra_body={"seed": 3})
    assert nested["choices"][0]["message"]["content"] == merged.choices[0].message.content


def test_check_20_closing_a_stream_ends_the_request(scripted_chat, connect):
    server = scripted_chat(script=lambda _: [SayText("hello"), Hold()])
    stream = connect(server).chat.completions.create(model="voice", messages=MESSAGES, stream=True)
    next(iter(stream))
    assert server.service.state().running == 1
    stream.close()
    server.until(lambda: server.service.state().running == 0)
    assert server.service.cancelled == 1


def test_check_21_a_slow_answer_is_kept_alive_and_the_sdk_does_not_notice(scripted_chat, connect):
    config = GatewayConfig(keepalive_s=0.05)
    server = scripted_chat(config, script=lambda _: [Wait(0.4), SayText("hi")])
    raw = server.ask("POST", "/v1/chat/completions", {"messages": MESSAGES, "stream": True}).body
    assert raw.startswith(b": keep-alive\n\n")
    chunks = list(connect(server).chat.completions.create(model="voice", messages=MESSAGES, stream=True))
    assert len(chunks) == 3
    assert text_of(chunks) == "hi"


@pytest.mark.parametrize("fields", [{}, SPOKEN])
def test_check_22_a_failure_mid_stream(scripted_chat, connect, fields):
    server = scripted_chat(script=lambda _: [SayText("hello"), Wait(0.02), Fail("stage_failed", "oh no", "thinker")])
    chat = {"model": "voice", "messages": MESSAGES, "stream": True} | fields
    seen = []
    with pytest.raises(openai.APIError) as caught:
        seen.extend(connect(server).chat.completions.create(**chat))
    assert (caught.value.code, caught.value.message) == ("stage_failed", "oh no")
    assert text_of(seen) == "hello", "what was made arrives"
    assert len(server.service.submitted) == 1


# ------------------------------------------------------------ streams and ends


@pytest.mark.parametrize("fields", [{}, SPOKEN])
def test_a_failure_is_no_success_and_the_connection_breaks(scripted_chat, fields):
    server = scripted_chat(script=lambda _: [SayText("hello"), Wait(0.02), Fail("stage_lost")])
    body = json.dumps({"messages": MESSAGES, "stream": True} | fields)
    received = server.exchange(
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
    )
    assert b'data: {"error":{' in received
    assert b"[DONE]" not in received
    assert b'"finish_reason":"' not in received
    assert not received.endswith(b"0\r\n\r\n")


@pytest.mark.parametrize("fields", [{}, SPOKEN, {"n": 2}, {"stream_options": {"include_usage": True}}])
def test_every_stream_ends_with_one_end_mark(server, fields):
    events = raw_events(server, **fields)
    assert events[-1] == "[DONE]"
    assert events.count("[DONE]") == 1


@pytest.mark.parametrize("modalities", [["text"], ["audio"], ["text", "audio"]])
def test_every_set_of_modalities_whole_and_streamed(ask, voice, modalities):
    fields = {"modalities": modalities, "seed": 5}
    if "audio" in modalities:
        fields["audio"] = {"voice": voice, "format": "pcm16"}
    message = ask(**fields).choices[0].message
    chunks = list(ask(**fields, stream=True))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert sum(choice.delta.role is not None for chunk in chunks for choice in chunk.choices) == 1
    assert reasons_of(chunks) == ["stop"]
    assert message.content
    audio = audio_of(chunks)
    assert ("data" in audio) == (message.audio is not None) == ("audio" in modalities)
    if "text" in modalities:
        assert text_of(chunks) == message.content
    else:
        assert text_of(chunks) == "", "who asked for sound alone is not shown the text"
    if "audio" in modalities:
        assert "".join(audio["transcript"]) == message.audio.transcript == message.content
        assert b"".join(map(base64.b64decode, audio["data"])) == base64.b64decode(message.audio.data)


@pytest.mark.parametrize("format", ["wav", "mp3", "opus", "aac"])
def test_streamed_formats_join_to_one_file(ask, voice, format):
    chunks = list(ask(**SPOKEN, audio={"voice": voice, "format": format}, stream=True))
    data = b"".join(map(base64.b64decode, audio_of(chunks)["data"]))
    frames = list(av.open(io.BytesIO(data)).decode(audio=0))
    assert sum(frame.samples for frame in frames) / frames[0].sample_rate > 0.2


# ------------------------------------------------------------ usage


@pytest.mark.parametrize("modalities", [["text"], ["text", "audio"]])
def test_counts_are_those_of_the_stages(scripted_chat, connect, modalities):
    def script(submit):
        yield SayText("one two")
        if "audio" in submit.outputs:
            yield Say(tone(0.1))
            yield Report("voice", {"output_tokens": 25})
        yield Report("thinker", {"prompt_tokens": 31, "cached_tokens": 16, "completion_tokens": 4})

    client = connect(scripted_chat(script=script))
    chat = {"model": "voice", "messages": MESSAGES, "modalities": modalities}
    whole = client.chat.completions.create(**chat).usage
    *_, last = client.chat.completions.create(**chat, stream=True, stream_options={"include_usage": True})
    assert last.usage == whole
    spoken = 25 if "audio" in modalities else 0
    assert (whole.prompt_tokens, whole.completion_tokens, whole.total_tokens) == (31, 4 + spoken, 35 + spoken)
    assert whole.prompt_tokens_details.cached_tokens == 16
    assert whole.completion_tokens_details.audio_tokens == spoken


# ------------------------------------------------------------ recordings


@pytest.mark.parametrize(
    "form",
    [
        lambda text: text,
        lambda text: f"data:audio/wav;base64,{text}",
        lambda text: text.replace("+", "-").replace("/", "_"),
        lambda text: text.rstrip("="),
        lambda text: "\n".join(text[start : start + 76] for start in range(0, len(text), 76)),
    ],
    ids=["plain", "data URL", "URL-safe", "no padding", "in lines"],
)
def test_base64_in_every_form_that_clients_send(scripted_chat, connect, form):
    server = scripted_chat()
    data = form(base64.b64encode(WAV).decode())
    part = {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}
    messages = [{"role": "user", "content": [part]}]
    assert connect(server).chat.completions.create(model="voice", messages=messages).choices
    assert server.service.submitted[-1].inputs[1][1].samples.tobytes() == WAV[44:]


@pytest.mark.parametrize("cut", [1, 2, 3, 1000, 1001])
def test_base64_that_was_cut_is_named(ask, cut):
    data = base64.b64encode(WAV).decode().rstrip("=")[:-cut]
    part = {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}
    with pytest.raises(openai.BadRequestError) as caught:
        ask(messages=[{"role": "user", "content": [part]}])
    assert caught.value.param == "messages[0].content[0].input_audio.data"
    assert caught.value.message


# ------------------------------------------------------------ what the SDK's users do


def test_a_conversation_goes_on_from_a_spoken_answer(ask):
    first = ask(**SPOKEN, audio={"format": "wav"}).choices[0].message
    turns = [*MESSAGES, {"role": "assistant", "audio": {"id": first.audio.id}}, {"role": "user", "content": "and now?"}]
    assert ask(messages=turns).choices[0].message.content
    turns[1] = first.model_dump(exclude_none=True)  # as it was, sound and all
    assert ask(messages=turns).choices[0].message.content
    turns[1] = {"role": "assistant", "audio": {"id": "audio_unknown"}}
    with pytest.raises(openai.BadRequestError) as caught:
        ask(messages=turns)
    assert caught.value.param == "messages[1].audio.id"


def test_log_probabilities_are_typed(ask):
    choice = ask(logprobs=True, top_logprobs=2).choices[0]
    tokens = choice.logprobs.content
    assert b"".join(bytes(token.bytes) for token in tokens).decode().strip() == choice.message.content.strip()
    assert all(token.logprob <= 0 and len(token.top_logprobs) == 2 for token in tokens)
    chunks = list(ask(stream=True, logprobs=True))
    assert any(choice.logprobs for chunk in chunks for choice in chunk.choices)


def test_the_streaming_helper_gathers_an_answer(client, model):
    with client.chat.completions.stream(model=model, messages=MESSAGES) as stream:
        events = [event.type for event in stream]
        final = stream.get_final_completion()
    assert "content.delta" in events
    assert final.choices[0].message.content
    assert final.choices[0].finish_reason == "stop"


def test_several_answers(ask):
    answer = ask(n=3, seed=1, temperature=1.0)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert answer.choices[0].message.content == ask(seed=1, temperature=1.0).choices[0].message.content
    chunks = list(ask(n=3, stream=True))
    assert sorted(choice.index for chunk in chunks for choice in chunk.choices if choice.finish_reason) == [0, 1, 2]


def test_tools_are_refused_rather_than_forgotten(ask):
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
    with pytest.raises(openai.BadRequestError) as caught:
        ask(tools=[tool])
    assert (caught.value.param, caught.value.code) == ("tools", "unsupported_parameter")
    assert ask(tools=[tool], tool_choice="none").choices


def test_completions_whole_and_streamed(client, model):
    asked = {"model": model, "prompt": "Once upon a time", "max_tokens": 4, "seed": 5}
    whole = client.completions.create(**asked)
    assert whole.object == "text_completion"
    assert whole.choices[0].text
    assert whole.usage.completion_tokens <= 4
    chunks = list(client.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    assert "".join(chunk.choices[0].text for chunk in chunks[:-1]) == whole.choices[0].text
    assert chunks[-1].usage == whole.usage
    several = client.completions.create(**asked | {"prompt": ["One", "Two"]})
    assert [choice.index for choice in several.choices] == [0, 1]
