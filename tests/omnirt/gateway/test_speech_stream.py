"""The speech socket end to end over a scripted service."""

import asyncio
import base64
import io
import json
import wave
from contextlib import asynccontextmanager

import aiohttp
import msgspec
import pytest

from omnirt.gateway.config import GatewayConfig
from omnirt.testing.clone_pipeline import clone_facts, clone_plan
from omnirt.testing.live_gateway import LiveGateway
from omnirt.testing.recordings import wav
from omnirt.testing.scripted_service import Fail, Hold, Report, Say, ScriptedService, Then, chunks_of, speech_plan, tone

PATH = "/v1/audio/speech/stream"
PATIENCE_S = 20.0
PCM = {"response_format": "pcm", "stream_audio": True}


class Connection:
    """A client's end: what comes is kept as events; audio as bytes."""

    def __init__(self, socket):
        self.socket = socket

    async def send(self, kind, **fields):
        await self.socket.send_str(json.dumps({"type": kind, **fields}))

    async def say(self, *pieces, **config):
        if config:
            await self.send("session.config", **config)
        for piece in pieces:
            await self.send("input.text", text=piece)
        await self.send("input.done")

    async def next(self):
        message = await self.socket.receive(timeout=PATIENCE_S)
        if message.type == aiohttp.WSMsgType.TEXT:
            return json.loads(message.data)
        return message.data if message.type == aiohttp.WSMsgType.BINARY else message

    async def until(self, kind):
        """Everything up to an event of this type."""
        heard = []
        while True:
            heard.append(await self.next())
            if isinstance(heard[-1], dict) and heard[-1]["type"] == kind:
                return heard
            assert not isinstance(heard[-1], aiohttp.WSMessage), heard

    async def utterance(self):
        return await self.until("session.done")


@asynccontextmanager
async def connected(gateway, **options):
    async with aiohttp.ClientSession() as session, session.ws_connect(gateway.url + PATH, **options) as socket:
        yield Connection(socket)


def run(gateway, scenario, **options):
    async def whole():
        async with connected(gateway, **options) as connection:
            return await scenario(connection)

    return asyncio.run(whole())


def types(heard):
    return [item["type"] if isinstance(item, dict) else "audio" for item in heard]


def audio(heard):
    return b"".join(item for item in heard if isinstance(item, bytes))


def of(heard, kind):
    return [item for item in heard if isinstance(item, dict) and item["type"] == kind]


def test_pieces_of_text_are_spoken_as_one(gateway):
    async def scenario(connection):
        await connection.say("hello ", "wor", "ld", **PCM)
        return await connection.utterance()

    heard = run(gateway, scenario)
    assert types(heard) == ["audio.start", *["audio"] * 11, "audio.done", "session.done"]
    assert audio(heard) == gateway.speak("hello world", response_format="pcm").body
    start, done, end = heard[0], heard[-2], heard[-1]
    assert start["format"] == "pcm"
    assert (start["sample_rate"], start["channels"]) == (24_000, 1)
    assert (start["utterance_index"], start["sentence_index"]) == (0, 0)
    assert (done["total_bytes"], done["error"]) == (len(audio(heard)), False)
    assert done["usage"]["total_tokens"] == done["usage"]["input_tokens"] + done["usage"]["output_tokens"]
    assert end == {"type": "session.done", "utterance_index": 0, "total_sentences": 1, "error": False}


def test_speech_begins_before_the_text_ends(make_gateway):
    gateway = make_gateway(script=lambda submit: [Say(tone(0.1)), Hold(), *chunks_of(tone(0.1))])

    async def scenario(connection):
        await connection.send("session.config", **PCM)
        await connection.send("input.text", text="hello ")
        early = [await connection.next(), await connection.next()]
        await connection.send("input.text", text="world")
        await connection.send("input.done")
        while not gateway.call(lambda: gateway.service.extended[before:]):  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0.005)
        gateway.call(gateway.service.release)
        return early, await connection.utterance()

    before = len(gateway.service.extended)
    early, heard = run(gateway, scenario)
    assert early[0]["sentence_text"] == "hello "
    assert early[1] == tone(0.1).tobytes()
    assert gateway.service.submitted[-1].input_open
    assert gateway.service.submitted[-1].inputs[0][1].text == "hello "
    assert [payload.text for _, _, payload in gateway.service.extended[before:]] == ["world"]
    assert audio(heard) == tone(0.1).tobytes()


@pytest.mark.parametrize("settled", [True, False])
def test_text_that_comes_when_speech_has_ended_is_spoken_too(make_gateway, settled):
    """The model may end before its text does. `settled`: the client waits for the end before it goes on."""

    def script(submit):
        if submit.inputs[0][1].text == "one ":
            return [*chunks_of(tone(0.1)), *([] if settled else [Hold()])]
        return [Then(lambda whole: chunks_of(tone(0.1)))]

    gateway = make_gateway(script=script)

    async def scenario(connection):
        await connection.send("session.config", **PCM)
        await connection.send("input.text", text="one ")
        if settled:
            early = await connection.until("audio.done")
        else:  # the request takes no more text, and its end was not read yet
            early = [await connection.next()]
            await asyncio.to_thread(gateway.call, closed_to_text)
        await connection.send("input.text", text=" two ")
        await connection.send("input.text", text="three")
        if not settled:
            await asyncio.sleep(0.1)
            await asyncio.to_thread(gateway.call, gateway.service.release)
        await connection.send("input.done")
        return early + await connection.utterance()

    def closed_to_text():
        for live in gateway.service._running:
            live.end_input()

    heard = run(gateway, scenario)
    dones = of(heard, "audio.done")
    assert [done["sentence_index"] for done in dones] == [0, 1]
    assert [done["sentence_text"] for done in dones] == ["one ", "two three"]
    assert not any(done["error"] for done in dones)
    assert (heard[-1]["total_sentences"], heard[-1]["error"]) == (2, False)
    assert audio(heard) == tone(0.1).tobytes() * 2
    assert not of(heard, "error")


def test_blanks_behind_the_end_of_speech_are_no_speech(make_gateway):
    gateway = make_gateway(script=lambda submit: chunks_of(tone(0.1)))

    async def scenario(connection):
        await connection.send("session.config", **PCM)
        await connection.send("input.text", text="one")
        await connection.until("audio.done")
        await connection.say(" \n")
        first = await connection.utterance()
        await connection.say("two")
        return first, await connection.utterance()

    blank, next_one = run(gateway, scenario)
    assert (types(blank), blank[-1]["total_sentences"]) == (["session.done"], 1)
    assert of(next_one, "audio.start")[0]["sentence_index"] == 0
    assert next_one[-1]["total_sentences"] == 1


@pytest.mark.parametrize(("leave", "status"), [("close", "101"), ("break", "499")])
def test_a_client_that_says_goodbye_is_no_client_that_left(make_gateway, leave, status):
    gateway = make_gateway()

    async def scenario(connection):
        await connection.say("hello", **PCM)
        await connection.utterance()
        if leave == "break":
            connection.socket._response.connection.transport.abort()
        else:
            await connection.socket.close()

    def counted():
        metrics = gateway.ask("GET", "/metrics").body.decode()
        return [line for line in metrics.splitlines() if "http_requests_total" in line and "speech_stream" in line]

    run(gateway, scenario)
    gateway.until(lambda: not gateway.service._running)
    for _ in range(200):
        if counted():
            break
    (line,) = counted()
    assert f'status="{status}"' in line


@pytest.mark.parametrize("format", ["wav", "mp3", "flac", "pcm"])
def test_without_streaming_each_unit_is_one_whole_file(gateway, format):
    async def scenario(connection):
        await connection.say("One. Two.", response_format=format, split_granularity="sentence")
        return await connection.utterance()

    heard = run(gateway, scenario)
    assert types(heard) == ["audio.start", "audio", "audio.done"] * 2 + ["session.done"]
    assert [start["sentence_text"] for start in of(heard, "audio.start")] == ["One.", "Two."]
    assert heard[-1]["total_sentences"] == 2
    assert heard[1] == gateway.speak("One.", response_format=format, stream=False).body
    if format == "wav":
        with wave.open(io.BytesIO(heard[1])) as file:
            assert file.getnframes() == len(heard[1][44:]) // 2


def test_one_bad_utterance_does_not_end_the_connection(gateway):
    async def scenario(connection):
        await connection.say("good", voice="heart", **PCM)
        await connection.say("bad", voice="nobody", **PCM)
        await connection.say("good again", voice="deep", **PCM)
        return [await connection.utterance() for _ in range(3)]

    heard = run(gateway, scenario)
    assert types(heard[1])[-1:] == ["session.done"], "what is wrong was said once; nothing was to be heard"
    assert not of(heard[1], "audio.start")
    assert [utterance[-1]["error"] for utterance in heard] == [False, True, False]
    assert [utterance[-1]["utterance_index"] for utterance in heard] == [0, 1, 2]
    (complaint,) = of([*heard[0], *heard[1]], "error")
    assert (complaint["param"], complaint["code"]) == ("voice", "invalid_value")
    assert audio(heard[2]) == gateway.speak("good again", voice="deep", response_format="pcm").body


@pytest.mark.parametrize("made", [[], chunks_of(tone(0.1))])
def test_a_failure_of_the_pipeline_is_said_and_the_next_utterance_is_spoken(gateway, made):
    gateway.service.script = lambda submit: (
        [*made, Fail("stage_failed", "it broke")] if "bad" in submit.inputs[0][1].text else chunks_of(tone(0.1))
    )

    async def scenario(connection):
        await connection.say("bad", **PCM)
        await connection.say("good")
        return await connection.utterance(), await connection.utterance()

    bad, good = run(gateway, scenario)
    assert types(bad)[-3:] in (["error", "audio.done", "session.done"], ["audio.start", "audio.done", "session.done"])
    assert of(bad, "error")[0]["code"] == "stage_failed"
    assert len(of(bad, "audio.start")) == len(of(bad, "audio.done")) == 1
    assert bad[-2]["error"]
    assert audio(good) == tone(0.1).tobytes()


def test_a_text_that_is_too_long_ends_its_request(make_gateway):
    gateway = make_gateway(plan=speech_plan(input_chars_max=20), script=lambda submit: [Hold()])

    async def scenario(connection):
        await connection.send("session.config", **PCM)
        await connection.send("input.text", text="hello ")
        await asyncio.to_thread(gateway.until, lambda: gateway.service.state().running == 1)
        await connection.send("input.text", text="x" * 20)
        await connection.send("input.done")
        return await connection.utterance()

    heard = run(gateway, scenario)
    assert types(heard) == ["error", "audio.start", "audio.done", "session.done"]
    assert heard[0]["param"] == "input"
    assert gateway.service.cancelled == 1


@pytest.mark.parametrize("leave", ["close", "break", "session.close"])
def test_a_client_that_leaves_ends_what_it_asked_for(make_gateway, leave):
    gateway = make_gateway(script=lambda submit: [Say(tone(0.1)), Hold()])

    async def scenario(connection):
        await connection.send("session.config", **PCM)
        await connection.send("input.text", text="hello")
        await connection.next()
        assert gateway.call(gateway.service.state).running == 1
        if leave == "break":
            connection.socket._response.connection.transport.abort()
        elif leave == "close":
            await connection.socket.close()
        else:
            await connection.send("session.close")
            while not isinstance(await connection.next(), aiohttp.WSMessage):
                pass

    run(gateway, scenario)
    gateway.until(lambda: gateway.service.state().running == 0)
    assert gateway.service.cancelled == 1


def test_closing_waits_for_what_was_finished(gateway):
    async def scenario(connection):
        await connection.say("hello", **PCM)
        await connection.send("session.close")
        heard = await connection.utterance()
        return heard, await connection.next()

    heard, last = run(gateway, scenario)
    assert not heard[-1]["error"]
    assert (last.type, last.data) == (aiohttp.WSMsgType.CLOSE, 1000)


def test_nonsense_is_answered_and_survived(gateway):
    async def scenario(connection):
        await connection.socket.send_str("{")
        await connection.socket.send_bytes(b"\0\1")
        await connection.send("input.text", text="too early")
        await connection.send("session.config", **PCM)
        await connection.send("dance")
        await connection.send("input.text", text="x" * (130 << 10))
        await connection.send("input.done")
        refused = await connection.utterance()
        await connection.say("hello")
        return refused, await connection.utterance()

    refused, heard = run(gateway, scenario)
    codes = ["invalid_json", "invalid_json", "invalid_value", "unknown_event", "request_too_large"]
    assert [event["code"] for event in of(refused, "error")] == codes
    assert audio(heard) == gateway.speak("hello", response_format="pcm").body


@pytest.mark.parametrize(
    ("config", "sent"),
    [
        (GatewayConfig(socket_config_s=0.05), []),
        (GatewayConfig(socket_config_s=0.05), ["input.done"]),
        (GatewayConfig(socket_idle_s=0.05), ["session.config"]),
        (GatewayConfig(socket_idle_s=0.05), ["session.config", "input.text"]),
    ],
)
def test_a_client_that_says_nothing_is_closed_with_the_reason(make_gateway, config, sent):
    gateway = make_gateway(config=config, script=lambda submit: [Hold()])

    async def scenario(connection):
        for kind in sent:
            await connection.send(kind, text="hello")
        *_, error = await connection.until("error")
        while error["code"] != "timeout":
            error = await connection.next()
        last = await connection.next()
        return error, last

    error, last = run(gateway, scenario)
    assert error["code"] == "timeout"
    assert (last.type, last.data) == (aiohttp.WSMsgType.CLOSE, 1008)
    gateway.until(lambda: gateway.service.state().running == 0)


def test_a_client_that_listens_may_be_silent(make_gateway):
    gateway = make_gateway(config=GatewayConfig(socket_idle_s=0.05), script=lambda submit: [Hold(), Say(tone(0.1))])

    async def scenario(connection):
        await connection.say("hello", **PCM)
        await asyncio.sleep(0.3)
        gateway.call(gateway.service.release)
        return await connection.utterance()

    assert audio(run(gateway, scenario)) == tone(0.1).tobytes()


def test_units_that_wait_are_bounded_and_all_are_spoken(gateway):
    async def scenario(connection):
        await connection.send("session.config", split_granularity="sentence", **PCM)
        text = " ".join(f"Number {index}." for index in range(100))
        await connection.say(text)
        await connection.send("session.close")
        return await connection.utterance()

    heard = run(gateway, scenario)
    starts = of(heard, "audio.start")
    assert [start["sentence_text"] for start in starts] == [f"Number {index}." for index in range(100)]
    assert heard[-1]["total_sentences"] == 100


def test_a_copied_voice_is_decoded_once_for_the_connection(make_gateway):
    gateway = make_gateway(plan=clone_plan(), facts=clone_facts())
    said = {"ref_audio": base64.b64encode(wav(1.0, 24_000)).decode(), "ref_text": "what is said"}

    async def scenario(connection):
        await connection.say("one", **said, **PCM)
        await connection.say("two")
        return await connection.utterance(), await connection.utterance()

    run(gateway, scenario)
    first, second = gateway.service.submitted
    assert first.inputs[1][1].samples is second.inputs[1][1].samples
    assert first.params["reference_samples"] == 24_000
    gateway.until(lambda: gateway.service.state().running == 0)


def test_every_request_has_a_name_of_its_own(gateway):
    async def scenario(connection):
        await connection.say("one", **PCM)
        await connection.say("two")
        return [await connection.utterance() for _ in range(2)]

    heard = run(gateway, scenario, headers={"X-Request-Id": "mine"})
    assert [of(utterance, "audio.start")[0]["request_id"] for utterance in heard] == ["mine-1", "mine-2"]
    assert [submit.public_id for submit in gateway.service.submitted[-2:]] == ["mine-1", "mine-2"]


def test_usage_is_what_the_stages_count(gateway):
    gateway.service.script = lambda _: [
        Report("voice", {"input_tokens": 3, "output_tokens": 25}),
        *chunks_of(tone(0.1)),
    ]

    async def scenario(connection):
        await connection.say("hello", **PCM)
        return await connection.utterance()

    assert of(run(gateway, scenario), "audio.done")[0]["usage"]["total_tokens"] == 28


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({}, 426, "upgrade_required"),
        ({"Upgrade": "websocket", "Connection": "Upgrade", "Origin": "https://evil.example"}, 403, "forbidden"),
    ],
)
def test_what_cannot_be_upgraded_is_refused_in_plain_http(make_gateway, headers, status, code):
    gateway = make_gateway(config=GatewayConfig(cors_origins=("https://good.example",)))
    answer = gateway.ask("GET", PATH, headers=headers)
    assert (answer.status, answer.error()["code"]) == (status, code)


def handshake(gateway, **options):
    async def connect():
        async with connected(gateway, **options):
            pass

    with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
        asyncio.run(connect())
    return caught.value.status


def test_a_connection_without_the_key_is_never_upgraded(make_gateway, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("secret\n")
    keys.chmod(0o600)
    gateway = make_gateway(config=GatewayConfig(keys_file=str(keys)))
    assert handshake(gateway) == 401

    async def scenario(connection):
        await connection.say("hello", **PCM)
        return connection.socket.protocol, await connection.utterance()

    protocol, heard = run(gateway, scenario, protocols=("openai-insecure-api-key.secret", "realtime"))
    assert protocol == "realtime"
    assert audio(heard)


def test_a_server_that_cannot_speak_or_is_full_says_so_before_the_upgrade(make_gateway):
    silent = make_gateway(plan=msgspec.structs.replace(speech_plan("painter"), outputs=("image",)))
    assert handshake(silent) == 501
    full = make_gateway(config=GatewayConfig(sockets_max=1))

    async def scenario(connection):
        return await asyncio.to_thread(handshake, full)

    assert run(full, scenario) == 429
    assert run(full, scenario) == 429, "the one that left has made room"


def test_a_server_that_stops_says_goodbye():
    gateway = LiveGateway(ScriptedService).__enter__()

    async def scenario(connection):
        await connection.send("session.config")
        await connection.send("dance")
        await connection.until("error")
        stopped = asyncio.ensure_future(asyncio.to_thread(gateway.__exit__, None, None, None))
        last = await connection.next()
        await stopped
        return last

    last = run(gateway, scenario)
    assert (last.type, last.data) == (aiohttp.WSMsgType.CLOSE, 1001)


def test_sixty_four_connections_are_not_mixed_up(gateway):
    async def one(index):
        async with connected(gateway) as connection:
            await connection.say(f"text of number {index}", **PCM)
            return audio(await connection.utterance())

    async def all_of_them():
        return await asyncio.gather(*(one(index) for index in range(64)))

    answers = asyncio.run(all_of_them())
    expected = [gateway.speak(f"text of number {index}", response_format="pcm").body for index in (0, 31, 63)]
    assert [answers[index] for index in (0, 31, 63)] == expected
