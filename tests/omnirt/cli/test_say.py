"""`omnirt say` against a live gateway."""

import argparse
import io
import os
import wave

import pytest

from omnirt.cli import say
from omnirt.cli.called import called
from omnirt.gateway.config import GatewayConfig
from omnirt.testing.clone_pipeline import clone_facts, clone_plan
from omnirt.testing.live_gateway import LiveGateway
from omnirt.testing.recordings import wav
from omnirt.testing.scripted_service import Fail, Say, ScriptedService, speech_facts, tone


@pytest.fixture
def server():
    with LiveGateway(ScriptedService) as gateway:
        yield gateway


def run(*arguments):
    parser = argparse.ArgumentParser()
    say.add_arguments(parser)
    return say.run(parser.parse_args(list(arguments)))


def test_the_file_is_a_wav_that_any_reader_takes(server, tmp_path, capsys):
    target = tmp_path / "out.wav"
    assert (
        run("x" * 20, "-o", str(target), "--url", server.url + "/", "--voice", "deep", "--speed", "2", "--seed", "5")
        == 0
    )
    with wave.open(str(target)) as file:
        assert (file.getframerate(), file.getnframes()) == (24_000, 12_000)
    submit = server.service.submitted[0]
    assert (submit.params["voice"], submit.params["speed"], submit.seed) == ("deep", 2.0, 5)
    assert "0.50 s of speech at 24000 Hz; first audio after" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["out.wav"]


@pytest.mark.parametrize(
    ("name", "start"), [("a.mp3", b"\xff"), ("a.ogg", b"OggS"), ("a.flac", b"fLaC"), ("a", b"RIFF")]
)
def test_the_ending_chooses_the_format(server, tmp_path, name, start):
    assert run("hello", "-o", str(tmp_path / name), "--url", server.url) == 0
    assert (tmp_path / name).read_bytes().startswith(start)


def test_what_a_model_may_be_told_is_sent(tmp_path):
    facts = speech_facts()
    facts["voice"] |= {"languages": ["English"], "parameters": ["max_new_tokens", "language", "instructions"]}
    with LiveGateway(lambda: ScriptedService(facts=facts)) as gateway:
        more = ("--instructions", "softly", "--language", "English", "--max-new-tokens", "9")
        assert run("hi", "-o", str(tmp_path / "a.wav"), "--url", gateway.url, *more) == 0
        params = gateway.service.submitted[0].params
    assert (params["instructions"], params["language"], params["max_new_tokens"]) == ("softly", "English", 9)


@pytest.mark.parametrize(("said", "params"), [((), {"x_vector_only_mode": True}), (("hey",), {"ref_text": "hey"})])
def test_a_recording_of_a_voice_is_read_from_its_file(tmp_path, said, params):
    recording = tmp_path / "me.wav"
    recording.write_bytes(wav(1.0, 24_000))
    more = ("--ref-audio", str(recording), *(word for text in said for word in ("--ref-text", text)))
    with LiveGateway(lambda: ScriptedService(clone_plan(), clone_facts())) as gateway:
        assert run("hi", "-o", str(tmp_path / "a.wav"), "--url", gateway.url, *more) == 0
        submit = gateway.service.submitted[0]
    assert params.items() <= submit.params.items()
    assert submit.inputs[1][1].samples.tobytes() == wav(1.0, 24_000)[44:]


def test_no_server_says_how_to_start_one(tmp_path, capsys):
    assert run("hello", "-o", str(tmp_path / "a.wav"), "--url", "http://127.0.0.1:9") == 1
    assert f"{called()} run speech" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_refusal_is_repeated_in_the_servers_words(server, tmp_path, capsys):
    assert run("hello", "-o", str(tmp_path / "a.wav"), "--url", server.url, "--voice", "nobody") == 1
    assert "refused (400): Unknown voice. Choose one of: heart, deep." in capsys.readouterr().err


def test_an_answer_that_breaks_off_leaves_no_file(server, tmp_path, capsys):
    server.service.script = lambda _: [Say(tone(0.1)), Fail("stage_lost")]
    assert run("hello", "-o", str(tmp_path / "a.wav"), "--url", server.url) == 1
    assert "broke off" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_named(server, tmp_path, capsys):
    (tmp_path / "file").touch()
    for folder in ("none", "file"):
        target = str(tmp_path / folder / "a.wav")
        assert run("hello", "-o", target, "--url", server.url) == 1
        assert f"cannot use {target}: No" in capsys.readouterr().err
    assert server.service.submitted == []


def test_something_that_is_not_a_url_is_named(tmp_path, capsys):
    assert run("hello", "-o", str(tmp_path / "a.wav"), "--url", "nonsense") == 1
    assert "nonsense is not a URL" in capsys.readouterr().err


@pytest.mark.parametrize("text", [("-",), ()])
def test_standard_output_and_input_are_files_too(server, monkeypatch, capfdbinary, text):
    monkeypatch.setattr("sys.stdin", io.StringIO("x" * 20 + "\n"))
    assert run(*text, "-o", "-", "--format", "pcm", "--url", server.url) == 0
    assert len(capfdbinary.readouterr().out) == 48_000


def test_a_key_is_sent(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("# ours\nright\n")
    keys.chmod(0o600)
    with LiveGateway(ScriptedService, GatewayConfig(keys_file=str(keys))) as gateway:
        target = str(tmp_path / "a.wav")
        assert run("hello", "-o", target, "--url", gateway.url) == 1
        assert run("hello", "-o", target, "--url", gateway.url, "--key-file", str(keys)) == 0


def test_a_device_or_a_pipe_stays_what_it_is(server, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert run("hi", "-o", str(pipe), "--url", server.url, "--format", "mp3") == 0
        assert os.read(reader, 2)[0] == 0xFF
        assert pipe.is_fifo()
    finally:
        os.close(reader)


def test_a_link_stays_a_link(server, tmp_path):
    link = tmp_path / "link.wav"
    link.symlink_to(tmp_path / "real.wav")
    assert run("hi", "-o", str(link), "--url", server.url) == 0
    assert link.is_symlink()
    assert (tmp_path / "real.wav").read_bytes().startswith(b"RIFF")


def test_a_terminal_is_not_waited_at_for_a_text(server, monkeypatch, capsys):
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", terminal)
    assert run("--url", server.url) == 1
    assert "there is no text" in capsys.readouterr().err


def test_an_ending_of_no_format_needs_the_format_named(server, tmp_path):
    assert run("hi", "-o", str(tmp_path / "a.xyz"), "--format", "flac", "--url", server.url) == 0
    assert (tmp_path / "a.xyz").read_bytes().startswith(b"fLaC")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("hi", "-o", "{tmp}"), "is a directory"),
        (("hi", "-o", "a.xyz"), "a.xyz ends in no audio format"),
        (("hi", "--key-file", "{tmp}/empty"), "holds no key"),
        (("hi", "--key-file", "{tmp}/binary"), "something else than keys"),
        (("hi", "--ref-audio", "{tmp}/nowhere.wav"), "cannot use {tmp}/nowhere.wav: No such file"),
        (("hi", "--url", "ftp://127.0.0.1"), "is not a URL"),
        (("h\udcff", "-o", "{tmp}/a.wav"), "not UTF-8"),
    ],
)
def test_a_mistake_in_the_call_is_a_sentence(server, tmp_path, capsys, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").write_text("# none\n")
    (tmp_path / "binary").write_bytes(b"\x7fELF\xff")
    given = [argument.replace("{tmp}", str(tmp_path)) for argument in arguments]
    assert run(*given, *(() if "--url" in given else ("--url", server.url))) == 1
    assert message.replace("{tmp}", str(tmp_path)) in capsys.readouterr().err
    assert server.service.submitted == []


def test_a_speed_that_is_no_number_is_refused(server, capsys):
    with pytest.raises(SystemExit):
        run("hi", "--url", server.url, "--speed", "nan")
    assert "nan" in capsys.readouterr().err
