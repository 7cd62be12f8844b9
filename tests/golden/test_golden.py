"""Recorded conversations, byte for byte but for names and times. A difference is a decision.

Each `*.txt` holds what a client sends (lines that begin with `> `) and what the server answers (`< `); those whose name
begins with `voice_` are with a pipeline that hears, thinks and speaks, the others with one that speaks. To record anew
after a decision, run this file with the environment's python; then read the difference.
"""

import re
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from omnirt.testing.live_gateway import LiveGateway
from omnirt.testing.scripted_chat import chatting
from omnirt.testing.scripted_service import Fail, Report, Say, SayText, SayTranscript, ScriptedService
from omnirt.wire.payload import Transcript

HERE = Path(__file__).parent
CONVERSATIONS = sorted(path.name for path in HERE.glob("*.txt"))
MASKS = (
    (rb"(x-request-id: )req_[0-9a-f]{24}", rb"\1<id>"),
    (rb'("request_id":")req_[0-9a-f]{24}', rb"\1<id>"),
    (rb"(Date: )[^\r]+", rb"\1<date>"),
    (rb"(openai-processing-ms: )\d+", rb"\1<ms>"),
    (rb'("(?:created|expires_at)": ?)\d+', rb"\1<s>"),
    (rb'("id":"(?:chatcmpl-|cmpl-|audio_))[0-9a-f]{24}', rb"\1<id>"),
    (rb"(Server: )[^\r]+", rb"\1<server>"),
)


def script(submit):
    """Two chunks of two samples; then a failure if the text asks for one."""
    yield Say(np.array([0x4141, 0x4242], np.int16))
    yield Say(np.array([0x4343, 0x4444], np.int16))
    if "fail" in submit.inputs[0][1].text:
        yield Fail("stage_failed", "scripted failure", "voice")


def talk(submit):
    """Two words, each spoken in two samples where that was asked for; then a failure if the message asks for one. Of
    a recording, what was said in it."""
    if submit.outputs == ("transcript",):
        yield SayTranscript(Transcript(" Hello there.", start_s=0.0, end_s=0.001, language="en", last=True))
        return
    yield SayText("Hello")
    if "audio" in submit.outputs:
        yield Say(np.array([0x4141, 0x4242], np.int16))
    yield SayText(" you")
    if "audio" in submit.outputs:
        yield Say(np.array([0x4343, 0x4444], np.int16))
    modality, asked = submit.inputs[0]
    if modality == "chat" and "fail" in str(asked.messages()):
        yield Fail("stage_failed", "scripted failure", "voice")
    yield Report("thinker", {"prompt_tokens": 5, "cached_tokens": 1, "completion_tokens": 2, "finish_reason": "stop"})


@contextmanager
def servers():
    """name of a conversation -> the server it is with"""
    with (
        LiveGateway(lambda: ScriptedService(script=script)) as speech,
        LiveGateway(lambda: ScriptedService(**chatting(script=talk))) as voice,
    ):
        yield lambda name: voice if name.startswith("voice_") else speech


@pytest.fixture(scope="module")
def server_of():
    with servers() as found:
        yield found


def sent_in(text):
    lines = [line[2:] for line in text.splitlines() if line.startswith(">")]
    head, body = lines, ""
    if "" in lines:
        head, body = lines[: lines.index("")], "\n".join(lines[lines.index("") + 1 :])
    length = [f"Content-Length: {len(body)}"] if body else []
    return ("\r\n".join([*head, "Connection: close", *length]) + "\r\n\r\n" + body).encode()


def readable(received):
    for pattern, mask in MASKS:
        received = re.sub(pattern, mask, received)
    text = received.decode("latin-1").replace("\r\n", "\n")
    text = "".join(c if c == "\n" or " " <= c <= "~" else f"\\x{ord(c):02x}" for c in text)
    return "".join(f"< {line}".rstrip() + "\n" for line in text.split("\n"))


def said(text):
    return "".join(line + "\n" for line in text.splitlines() if line.startswith(">"))


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_the_conversation_is_as_recorded(server_of, name):
    text = (HERE / name).read_text()
    assert said(text) + readable(server_of(name).exchange(sent_in(text))) == text


def record():
    with servers() as server_of:
        for name in CONVERSATIONS:
            text = (HERE / name).read_text()
            (HERE / name).write_text(said(text) + readable(server_of(name).exchange(sent_in(text))))


if __name__ == "__main__":
    record()
