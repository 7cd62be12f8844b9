"""Commands to paste into a shell, which work with the server that is ready: in its address, its key, and what its model
must be told. Where a recording of a voice is needed, `me.wav` stands for the reader's own.
"""

from __future__ import annotations

import json
import shlex

from omnirt.cli.called import called
from omnirt.gateway.abilities import chats, hears, speaks
from omnirt.gateway.config import GatewayConfig
from omnirt.gateway.facts import CLONE, DESIGN, PipelineFacts
from omnirt.wire.plan import Plan

RECORDING = "me.wav"
TRANSCRIPT = f"What is said in {RECORDING}."
VOICE = "A calm, low voice, speaking slowly."
LONG = "Hello there. Can you hear me?"
SHORT = "Hello there."


def what_to_try(plan: Plan, url: str, facts: PipelineFacts, config: GatewayConfig) -> list[str]:
    """Lines for a shell: how to use what the pipeline can do. `facts`: of the stages that speak."""
    shell = _Shell(url, config.keys_file)
    lines: list[str] = []
    if chats(plan):
        question = {"messages": [{"role": "user", "content": "What is the capital of France?"}]}
        lines += [shell.post("chat/completions", question), shell.omnirt("chat")]
    if speaks(plan):
        lines += _speech(shell, facts, keeps_voices=bool(config.voices_dir))
    if hears(plan):
        lines.append(shell.curl("audio/transcriptions", "-F file=@hello.wav"))
    return lines


def _speech(shell: _Shell, facts: PipelineFacts, *, keeps_voices: bool) -> list[str]:
    body: dict[str, str] = {"input": LONG, "response_format": "wav"}
    task = facts.task_types[0]
    if task == CLONE and not keeps_voices:
        # A recording is longer than an argument may be.
        more = f"--ref-audio {RECORDING} --ref-text {shlex.quote(TRANSCRIPT)}"
        return [shell.say(more), "  (with --voices DIR, recordings can be uploaded and then be named as `voice`)"]
    if task == CLONE:
        form = {"audio_sample": f"@{RECORDING}", "name": "me", "consent": "my own voice", "ref_text": TRANSCRIPT}
        upload = " ".join(f"-F {shlex.quote(f'{name}={value}')}" for name, value in form.items())
        spoken = shell.post("audio/speech", body | {"voice": "me"}, "-o hello.wav")
        return [shell.curl("audio/voices", upload), spoken, shell.say("--voice me")]
    if task == DESIGN:
        spoken = shell.post("audio/speech", body | {"instructions": VOICE}, "-o hello.wav")
        return [spoken, shell.say(f"--instructions {shlex.quote(VOICE)}")]
    return [shell.post("audio/speech", body, "-o hello.wav"), shell.say()]


class _Shell:
    def __init__(self, url: str, keys_file: str) -> None:
        self._url = url
        quoted = shlex.quote(keys_file)
        # The key itself is not shown: this is a log.
        self._header = f""" -H "Authorization: Bearer $(grep -m1 '^[^#]' {quoted})\"""" if keys_file else ""
        self._key = f" --key-file {quoted}" if keys_file else ""

    def curl(self, path: str, more: str) -> str:
        return f"  curl -s {self._url}/v1/{path}{self._header} {more}"

    def post(self, path: str, body: object, more: str = "") -> str:
        content = f"-H 'Content-Type: application/json' -d {shlex.quote(json.dumps(body))}"
        return self.curl(path, f"{content} {more}".rstrip())

    def omnirt(self, command: str) -> str:
        return f"  {called()} {command} --url {self._url}{self._key}"

    def say(self, more: str = "") -> str:
        return self.omnirt(" ".join(part for part in (f'say "{SHORT}" -o hello.wav', more) if part))
