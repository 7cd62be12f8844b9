"""The speech socket of the real runtime, as clients use it: text that is still being written, spoken as one."""

import asyncio
import json

import aiohttp
import pytest

PCM = {"response_format": "pcm", "stream_audio": True}
PIECES = ("a tone of 52", "3 Hz ", "for 0.", "3 s")
WHOLE = "".join(PIECES)


def url_of(server):
    return f"{server.url.replace('http', 'ws', 1)}/v1/audio/speech/stream"


def messages(config=PCM):
    yield {"type": "session.config", **config}
    for _ in range(2):
        for piece in PIECES:
            yield {"type": "input.text", "text": piece}
        yield {"type": "input.done"}


def check(server, events, audio):
    kinds = [event["type"] for event in events]
    assert kinds == ["audio.start", "audio.done", "session.done"] * 2
    assert not any(event.get("error") for event in events)
    expected = server.speak(WHOLE, response_format="pcm").body
    assert bytes(audio) == expected * 2


def test_aiohttp_hears_both_utterances_whole(tone_server):
    async def speak():
        events, audio = [], bytearray()
        async with aiohttp.ClientSession() as session, session.ws_connect(url_of(tone_server)) as socket:
            for message in messages():
                await socket.send_json(message)
            while len([event for event in events if event["type"] == "session.done"]) < 2:
                message = await socket.receive(timeout=30)
                if message.type == aiohttp.WSMsgType.BINARY:
                    audio += message.data
                else:
                    events.append(json.loads(message.data))
        return events, audio

    check(tone_server, *asyncio.run(speak()))


def test_websockets_hears_both_utterances_whole(tone_server):
    client = pytest.importorskip("websockets.sync.client")
    events, audio = [], bytearray()
    with client.connect(url_of(tone_server)) as socket:
        for message in messages():
            socket.send(json.dumps(message))
        while len([event for event in events if event["type"] == "session.done"]) < 2:
            message = socket.recv(timeout=30)
            if isinstance(message, bytes):
                audio += message
            else:
                events.append(json.loads(message))
    check(tone_server, events, audio)


def test_a_client_that_stops_reading_holds_up_nobody_and_is_closed_in_the_end(tone_server):
    async def speak():
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(url_of(tone_server)) as deaf,
            session.ws_connect(url_of(tone_server)) as other,
        ):
            await deaf.send_json({"type": "session.config", **PCM})
            await deaf.send_json({"type": "input.text", "text": "440 Hz for 600 s"})
            await deaf.send_json({"type": "input.done"})
            await asyncio.sleep(0.2)
            for message in messages():
                await other.send_json(message)
            heard = 0
            while heard < 2:
                message = await other.receive(timeout=30)
                heard += message.type == aiohttp.WSMsgType.TEXT and "session.done" in message.data

    asyncio.run(speak())
    tone_server.until(lambda: tone_server.service.state().running == 0)


def test_a_text_of_many_pieces_before_a_slot_is_free_is_whole(tone_server):
    async def speak():
        async with aiohttp.ClientSession() as session, session.ws_connect(url_of(tone_server)) as socket:
            await socket.send_json({"type": "session.config", **PCM})
            for character in "x" * 3000 + " 523 Hz for 0.3 s":
                await socket.send_json({"type": "input.text", "text": character})
            await socket.send_json({"type": "input.done"})
            audio = bytearray()
            while True:
                message = await socket.receive(timeout=30)
                if message.type == aiohttp.WSMsgType.BINARY:
                    audio += message.data
                elif "session.done" in message.data:
                    assert '"error":false' in message.data
                    return bytes(audio)

    assert asyncio.run(speak()) == tone_server.speak(WHOLE, response_format="pcm").body
