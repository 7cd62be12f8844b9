import argparse

import pytest

from omnirt.cli import chat
from omnirt.gateway.media import wav_header
from omnirt.testing.live_gateway import LiveGateway
from omnirt.testing.scripted_chat import chat_facts, chat_plan, converse
from omnirt.testing.scripted_service import RATE, ScriptedService


@pytest.fixture
def recording(tmp_path):
    (tmp_path / "q.wav").write_bytes(wav_header(RATE, RATE) + bytes(RATE))
    return str(tmp_path / "q.wav")


def run(*arguments):
    parser = argparse.ArgumentParser()
    chat.add_arguments(parser)
    return chat.run(parser.parse_args([*arguments, "--heard"]))


def test_what_was_heard_is_shown_before_the_answer(scripted, capsys, recording):
    scripted.script = lambda body: (200, b'{"text":" what is it?"}') if "form" in body else scripted.saying("a cat")
    assert run("--say", recording, "--url", scripted.url) == 0
    assert capsys.readouterr() == ("a cat\n", "(heard: what is it?)\n")
    assert [body["path"] for body in scripted.bodies] == ["/v1/audio/transcriptions", "/v1/chat/completions"]
    assert b'filename="q.wav"' in scripted.bodies[0]["form"]


def test_a_question_in_text_is_not_heard(scripted, capsys):
    assert run("hi", "--url", scripted.url) == 0
    assert capsys.readouterr().err == ""
    assert len(scripted.bodies) == 1


def test_an_answer_that_is_no_transcription_is_said(scripted, capsys, recording):
    scripted.script = lambda _: (200, b"[]")
    assert run("--say", recording, "--url", scripted.url) == 1
    assert "no transcription" in capsys.readouterr().err


def test_a_live_gateway_takes_the_recording(capsys, recording):
    with LiveGateway(lambda: ScriptedService(chat_plan(), chat_facts(), converse)) as gateway:
        assert run("what is this", "--say", recording, "--url", gateway.url) == 0
    assert capsys.readouterr() == ("what is this\n", "(heard: 0.50 seconds)\n")
