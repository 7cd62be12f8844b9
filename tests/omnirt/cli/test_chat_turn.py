import argparse
import asyncio
import sys
import wave

import pytest

from omnirt.cli.chat_events import Answer
from omnirt.cli.chat_sound import Places
from omnirt.cli.chat_turn import Voice, body_of, receive
from omnirt.cli.server import ServerError

MESSAGES = [{"role": "user", "content": "hi"}]


def arguments(**given):
    names = ("model", "max_tokens", "temperature", "seed", "speaker", "key_file")
    return argparse.Namespace(**(dict.fromkeys(names) | {"url": "http://127.0.0.1:9"} | given))


def turn(args, voice=None):
    answer, written = Answer(), []
    opened = voice.open() if voice is not None else None
    body = body_of(args, MESSAGES, voice=voice is not None)
    try:
        asyncio.run(receive(args, body, answer, opened, written.append))
    except ServerError as error:
        return answer, written, opened, str(error)
    return answer, written, opened, ""


def test_a_request_names_only_what_was_asked_for():
    assert body_of(arguments(), MESSAGES, voice=False) == {"messages": MESSAGES, "stream": True, "modalities": ["text"]}
    body = body_of(arguments(model="m", max_tokens=3, temperature=0.0, seed=0, speaker="deep"), MESSAGES, voice=True)
    assert body["audio"] == {"format": "pcm16", "voice": "deep"}
    assert body["modalities"] == ["text", "audio"]
    assert (body["model"], body["max_tokens"], body["temperature"], body["seed"]) == ("m", 3, 0.0, 0)


def test_text_is_written_as_it_comes(scripted):
    answer, written, _, error = turn(arguments(url=scripted.url))
    assert (written, answer.text, error) == (["hello", " there", "\n"], "hello there", "")
    assert scripted.bodies[0]["path"] == "/v1/chat/completions"


def test_a_text_that_ends_its_line_is_left_as_it_is(scripted):
    scripted.script = lambda _: scripted.saying("hello\n")
    assert turn(arguments(url=scripted.url))[1] == ["hello\n"]


def test_the_voice_is_kept_and_remembered(scripted, tmp_path, capsys):
    sound = bytes(range(256)) * 100
    scripted.script = lambda _: scripted.saying("hi", sound=sound)
    _, _, voice, error = turn(arguments(url=scripted.url), Voice(Places(str(tmp_path / "a.wav")), None))
    assert (bytes(voice.sound), error) == (sound, "")
    with wave.open(str(tmp_path / "a.wav")) as file:
        assert file.readframes(1 << 20) == sound
    assert "a.wav: 0.53 s of speech" in capsys.readouterr().err


def test_an_answer_that_breaks_off_keeps_what_came(scripted, tmp_path):
    sound = bytes(4800)
    scripted.script = lambda _: scripted.saying("hi", sound=sound)[:-1]
    answer, _, _, error = turn(arguments(url=scripted.url), Voice(Places(str(tmp_path / "a.wav")), None))
    assert (answer.text, error) == ("hi", "the answer broke off; the server's log says why")
    with wave.open(str(tmp_path / "a.wav")) as file:
        assert file.getnframes() == 2400


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        ([b'data: {"error":{"message":"stage voice was lost"}}\n\n'], "stage voice was lost"),
        ([b"data: nonsense\n\n"], "something that is no chat"),
        ([b'data: {"choices":[{"delta":{"audio":{"data":"x"}}}]}\n\n'], "something that is no chat"),
    ],
)
def test_an_error_in_the_stream_ends_the_turn(scripted, pieces, words):
    scripted.script = lambda _: pieces
    assert words in turn(arguments(url=scripted.url))[3]


def test_a_player_that_fails_is_told_of_once_and_the_answer_goes_on(scripted):
    scripted.script = lambda _: scripted.saying("hi", sound=bytes(4800))
    command = [sys.executable, "-c", "import sys; sys.exit('no device')"]
    answer, _, voice, error = turn(arguments(url=scripted.url), Voice(None, command))
    assert (answer.text, error, len(voice.complaints)) == ("hi", "", 1)
    assert "no device" in voice.complaints[0]
