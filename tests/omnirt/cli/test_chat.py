"""`omnirt chat` against a scripted server: in this process for single turns, on a terminal of its own for talks."""

import argparse
import base64
import io
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
import wave
from pathlib import Path

import pytest

from omnirt.cli import chat
from omnirt.gateway.media import wav_header
from omnirt.testing.live_gateway import LiveGateway
from omnirt.testing.scripted_chat import chat_facts, chat_plan, converse
from omnirt.testing.scripted_service import RATE, SECONDS_PER_CHARACTER, Fail, SayText, ScriptedService, Wait

PATIENCE_S = 30.0


def run(*arguments):
    parser = argparse.ArgumentParser()
    chat.add_arguments(parser)
    return chat.run(parser.parse_args(list(arguments)))


def test_a_prompt_is_answered_once(scripted, capsys):
    assert run("hi", "--url", scripted.url, "--system", "be brief", "--max-tokens", "9", "--seed", "3") == 0
    assert capsys.readouterr().out == "hello there\n"
    body = scripted.bodies[0]
    assert body["messages"] == [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]
    assert (body["max_tokens"], body["seed"], body["stream"]) == (9, 3, True)
    assert "temperature" not in body


@pytest.mark.parametrize("arguments", [(), ("-",)])
def test_what_comes_through_a_pipe_is_the_question(scripted, capsys, monkeypatch, arguments):
    monkeypatch.setattr("sys.stdin", io.StringIO("from the pipe\n"))
    assert run(*arguments, "--url", scripted.url) == 0
    assert scripted.bodies[0]["messages"][0]["content"] == "from the pipe"


def test_an_empty_question_is_not_sent(scripted, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(" \n"))
    assert run("--url", scripted.url) == 1
    assert "there is no question" in capsys.readouterr().err
    assert scripted.bodies == []


def test_a_recording_is_a_question(scripted, capsys, tmp_path):
    file = tmp_path / "question"
    file.write_bytes(b"fLaC....")
    assert run("--say", str(file), "--url", scripted.url) == 0
    (part,) = scripted.bodies[0]["messages"][0]["content"]
    assert part["input_audio"] == {"data": base64.b64encode(b"fLaC....").decode(), "format": "flac"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--say", "{tmp}/none.wav"), "cannot use {tmp}/none.wav: No such file"),
        (("--say", "{tmp}/empty"), "is empty"),
        (("--say", "{tmp}/odd"), "cannot tell what kind of audio"),
        (("hi", "--save", "{tmp}/none/a.wav"), "cannot use {tmp}/none/a.wav: No such file"),
        (("hi", "--save", "{tmp}/a.mp3"), "neither a folder nor a .wav file"),
        (("h\udcff",), "not UTF-8"),
    ],
)
def test_a_mistake_in_the_call_is_a_sentence(scripted, tmp_path, capsys, arguments, words):
    (tmp_path / "empty").touch()
    (tmp_path / "odd").write_bytes(b"text")
    given = [argument.replace("{tmp}", str(tmp_path)) for argument in arguments]
    assert run(*given, "--url", scripted.url) == 1
    assert words.replace("{tmp}", str(tmp_path)) in capsys.readouterr().err
    assert scripted.bodies == []


def test_no_player_is_said_before_anything_is_asked(scripted, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run("hi", "--voice", "--url", scripted.url) == 1
    assert "nothing here plays sound" in capsys.readouterr().err
    assert scripted.bodies == []


def test_the_servers_words_are_printed_and_the_status_is_1(scripted, capsys):
    scripted.script = lambda _: (400, b'{"error":{"message":"The model does not exist."}}')
    assert run("hi", "--url", scripted.url) == 1
    out, err = capsys.readouterr()
    assert (out, err) == ("", "omnirt chat: the server refused (400): The model does not exist.\n")


def test_no_server_is_one_line_that_says_how_to_start_one(capsys):
    assert run("hi", "--url", "http://127.0.0.1:9") == 1
    assert capsys.readouterr().err.endswith(" run voice\n")


def test_the_voice_is_saved_beside_the_text(scripted, capsys, tmp_path):
    scripted.script = lambda _: scripted.saying("hi", sound=bytes(48_000))
    assert run("hi", "--save", str(tmp_path / "a.wav"), "--speaker", "deep", "--url", scripted.url) == 0
    assert scripted.bodies[0]["audio"] == {"format": "pcm16", "voice": "deep"}
    with wave.open(str(tmp_path / "a.wav")) as file:
        assert (file.getframerate(), file.getnframes()) == (24_000, 24_000)
    assert capsys.readouterr().out == "hi\n"


def test_the_voice_is_played_by_what_there_is(scripted, monkeypatch, tmp_path):
    heard = tmp_path / "heard"
    code = f"import sys; open({str(heard)!r}, 'wb').write(sys.stdin.buffer.read())"
    (tmp_path / "aplay").write_text(f"#!{sys.executable}\n{code}\n")
    (tmp_path / "aplay").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    scripted.script = lambda _: scripted.saying("hi", sound=b"\1\0" * 24_000)
    assert run("hi", "--voice", "--url", scripted.url) == 0
    assert heard.read_bytes() == b"\1\0" * 24_000
    assert scripted.bodies[0]["modalities"] == ["text", "audio"]


def test_an_answer_cut_at_its_limit_says_so(scripted, capsys):
    scripted.script = lambda _: scripted.saying("a", end="length")
    assert run("hi", "--url", scripted.url) == 0
    assert "limit of tokens" in capsys.readouterr().err


def test_output_that_cannot_be_encoded_is_replaced(scripted, monkeypatch):
    scripted.script = lambda _: scripted.saying("caf\u00e9")
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", out)
    assert run("hi", "--url", scripted.url) == 0
    assert out.buffer.getvalue() == b"caf?\n"


class Terminal:
    """`omnirt chat` with a terminal of its own."""

    def __init__(self, *arguments):
        self._screen, inner = pty.openpty()
        command = [sys.executable, "-m", "omnirt.cli.main", "chat", *arguments]
        self.process = subprocess.Popen(command, stdin=inner, stdout=inner, stderr=inner, start_new_session=True)
        os.close(inner)
        self.seen = ""

    def type(self, line):
        os.write(self._screen, line.encode())

    def expect(self, words):
        """Read until `words`; what was read before and with them is forgotten."""
        end = time.monotonic() + PATIENCE_S
        while words not in self.seen:
            ready, _, _ = select.select([self._screen], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"{words!r} is not in {self.seen!r}"
            try:
                self.seen += os.read(self._screen, 4096).decode(errors="replace")
            except OSError:
                pytest.fail(f"ended without {words!r}: {self.seen!r}")
        before, _, self.seen = self.seen.partition(words)
        return before

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)

    def until_it_waits(self):
        """The line editor misses a signal between its prompt and its wait; no hand is that quick."""
        while Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "S":
            time.sleep(0.01)

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self._screen)


@pytest.fixture
def terminal(scripted):
    opened = []

    def make(*arguments):
        opened.append(Terminal(*arguments, "--url", scripted.url))
        opened[-1].expect("> ")
        return opened[-1]

    yield make
    for one in opened:
        one.close()


def test_a_conversation_is_sent_whole_each_turn_and_reset_forgets_it(scripted, terminal):
    talk = terminal("--system", "s")
    for question in ("one", "two"):
        talk.type(f"{question}\n")
        talk.expect("hello there")
        talk.expect("> ")
    talk.type("/reset\n")
    talk.expect("> ")
    talk.type("three\n")
    talk.expect("hello there")
    asked = [[message["content"] for message in body["messages"]] for body in scripted.bodies]
    assert asked == [["s", "one"], ["s", "one", "hello there", "two"], ["s", "three"]]


def test_ctrl_c_stops_the_answer_and_ctrl_d_leaves(scripted, terminal, tmp_path):
    sound = bytes(9600)
    scripted.script = lambda _: scripted.holding("so far", sound=sound)
    talk = terminal("--save", str(tmp_path / "a.wav"))
    talk.type("one\n")
    talk.expect("so far")
    while not (tmp_path / "a.wav").exists() or (tmp_path / "a.wav").stat().st_size < 44:
        time.sleep(0.01)
    talk.interrupt()
    assert talk.expect("a.wav: ").endswith(f"\r\n{tmp_path}/")
    assert talk.expect("(stopped)").count("\n") == 1
    assert scripted.gone.wait(PATIENCE_S)
    with wave.open(str(tmp_path / "a.wav")) as file:
        assert 0 < file.getnframes() <= 4800
    scripted.script = lambda _: scripted.saying("again")
    talk.type("two\n")
    talk.expect("again")
    assert [message["content"] for message in scripted.bodies[1]["messages"]] == ["one", "so far", "two"]
    talk.expect("> ")
    talk.type("\x04")
    assert talk.process.wait(PATIENCE_S) == 0


def test_ctrl_c_at_the_prompt_asks_again_and_quit_leaves(terminal):
    talk = terminal()
    talk.until_it_waits()
    talk.interrupt()
    talk.expect("> ")
    talk.type("/quit now\n")
    assert talk.process.wait(PATIENCE_S) == 0


def test_an_error_does_not_end_the_conversation(scripted, terminal):
    talk = terminal()
    scripted.script = lambda _: (503, b'{"error":{"message":"draining"}}')
    talk.type("one\n")
    talk.expect("refused (503): draining")
    scripted.script = lambda _: scripted.saying("fine")
    talk.type("two\n")
    talk.expect("fine")
    assert [message["content"] for message in scripted.bodies[1]["messages"]] == ["two"]


def test_commands_save_the_talk_and_the_voice_and_ask_with_recordings(scripted, terminal, tmp_path):
    (tmp_path / "q.wav").write_bytes(b"RIFF")
    scripted.script = lambda _: scripted.saying("hi", sound=bytes(4800))
    talk = terminal("--save", str(tmp_path / "answers"))
    talk.type(f"/say {tmp_path}/q.wav what is it?\n")
    assert talk.expect(" s of speech").rpartition("hi")[2].startswith(f"\r\n{tmp_path}/answers/answer-1.wav: ")
    assert talk.expect("> ").count("\n") == 1
    for name in ("talk.txt", "talk.json", "voice.wav"):
        talk.type(f"/save {tmp_path}/{name}\n")
        talk.expect("messages" if name.startswith("talk") else "voice.wav: ")
    talk.expect("> ")
    assert (tmp_path / "talk.txt").read_text() == "user: [q.wav] what is it?\n\nassistant: hi\n"
    messages = json.loads((tmp_path / "talk.json").read_text())["messages"]
    assert [part["type"] for part in messages[0]["content"]] == ["text", "input_audio"]
    with wave.open(str(tmp_path / "voice.wav")) as file:
        assert file.getnframes() == 2400
    talk.type(f"/save {tmp_path}/talk.mp3\n")
    talk.expect("the conversation takes .txt, .md, .markdown, .json")
    assert not (tmp_path / "talk.mp3").exists()
    talk.type("/say hello\n")
    talk.expect("cannot use hello: No such file or directory (/say takes a recording)")
    talk.type("/nothing\n")
    talk.expect("there is no /nothing")


def test_a_terminal_is_not_steered_by_an_answer(scripted, terminal):
    scripted.script = lambda _: scripted.saying("a\x1b[2Jb")
    talk = terminal()
    talk.type("one\n")
    talk.expect("a[2Jb")


@pytest.fixture(scope="module")
def gateway():
    """The server's own side of the protocol."""
    with LiveGateway(lambda: ScriptedService(chat_plan(), chat_facts(), converse)) as gateway:
        yield gateway


def test_a_live_gateway_is_understood(gateway, capsys, tmp_path):
    gateway.service.script = converse
    assert run("one two three", "--save", str(tmp_path / "a.wav"), "--url", gateway.url, "--max-tokens", "2") == 0
    out, err = capsys.readouterr()
    assert out == "one two\n"
    assert "limit of tokens" in err
    with wave.open(str(tmp_path / "a.wav")) as file:
        assert file.getnframes() == round(len("one two") * SECONDS_PER_CHARACTER * RATE)


def test_a_live_gateway_hears_a_recording(gateway, capsys, tmp_path):
    gateway.service.script = converse
    (tmp_path / "q.wav").write_bytes(wav_header(RATE, RATE) + bytes(RATE))
    assert run("what is this", "--say", str(tmp_path / "q.wav"), "--url", gateway.url) == 0
    assert capsys.readouterr().out == "what is this\n"
    assert [modality for modality, _ in gateway.service.submitted[-1].inputs].count("audio") == 1


def test_a_live_gateway_that_fails_halfway_is_quoted(gateway, capsys, tmp_path):
    gateway.service.script = lambda _: [SayText("half"), Wait(0.01), Fail("stage_lost", "stage voice was lost")]
    assert run("hi", "--url", gateway.url) == 1
    out, err = capsys.readouterr()
    assert (out, err) == ("half\n", "omnirt chat: stage voice was lost\n")
