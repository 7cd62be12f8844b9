"""`omnirt chat`: talk with a running server, in text and with the voice.

A prompt as argument, a recording (`--say`) or a pipe on standard input gets one answer; else it is a conversation:
ctrl-c stops the answer, ctrl-d leaves. Exit status 1 when the answer did not come to its end.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import sys
from collections.abc import Callable
from pathlib import Path

from omnirt.cli import server
from omnirt.cli.chat_events import Answer
from omnirt.cli.chat_heard import heard
from omnirt.cli.chat_history import Conversation, Recording, format_of
from omnirt.cli.chat_sound import Places, SoundError, WavFile, find_player
from omnirt.cli.chat_turn import RATE, Voice, body_of, receive
from omnirt.cli.server import ServerError

HELP = """/say FILE [TEXT]  ask with a recording
/save [FILE]      keep the conversation (.txt, .md, .json) or the last answer's voice (.wav)
/reset            forget the conversation
/quit             leave, as ctrl-d does"""
TALK_ENDINGS = ("", ".txt", ".md", ".markdown", ".json")
"""Of files that hold a conversation."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("prompt", nargs="?", help="one question; - reads standard input")
    parser.add_argument("--voice", action="store_true", help="ask for the voice too; played unless --save is given")
    parser.add_argument("--speaker", metavar="VOICE", help="one of the voices at URL/v1/audio/voices")
    parser.add_argument("--play", action="store_true", help="play the voice (also when it is saved)")
    parser.add_argument("--save", metavar="FILE.wav|FOLDER", help="keep the voice, a file for each answer")
    parser.add_argument("--say", metavar="FILE", help="a recorded question, in any audio format")
    parser.add_argument("--heard", action="store_true", help="show what was heard in a recording, before the answer")
    parser.add_argument("--system", metavar="TEXT", default="", help="what the model is told first")
    parser.add_argument("--model", help="where the server has several")
    parser.add_argument("--max-tokens", type=int)
    parser.add_argument("--temperature", type=float)
    parser.add_argument("--seed", type=int, help="the same seed gives the same answer")
    server.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    try:
        return Chat(args).run()
    except (ServerError, SoundError) as error:
        return complain(error)


def complain(text: object) -> int:
    print(f"omnirt chat: {text}", file=sys.stderr)
    return 1


class Chat:
    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self._conversation = Conversation(args.system)
        self._voice = _voice(args)
        self._sound = b""
        """Of the last answer."""
        self._commands: dict[str, Callable[[str], object]] = {
            "/say": self._say,
            "/save": self._save,
            "/reset": lambda _: self._conversation.reset(),
            "/help": lambda _: print(HELP),
        }

    def run(self) -> int:
        args = self._args
        if args.prompt is None and args.say is None and sys.stdin.isatty():
            return self._converse()
        recording = read_recording(args.say) if args.say is not None else None
        text = _prompt(args.prompt, "" if recording is not None else None)
        if not text.strip() and recording is None:
            raise ServerError("there is no question")
        return self._ask(text, recording)

    # ------------------------------------------------------------ a turn

    def _ask(self, text: str, recording: Recording | None = None) -> int:
        """Exit status. Raises ServerError, SoundError and KeyboardInterrupt; what came until then is remembered."""
        if recording is not None and self._args.heard:
            print(f"(heard: {_printable(asyncio.run(heard(self._args, recording)))})", file=sys.stderr)
        answer, voice = Answer(), self._voice.open() if self._voice is not None else None
        self._conversation.ask(text, recording)
        body = body_of(self._args, self._conversation.messages(), voice=voice is not None)
        try:
            asyncio.run(receive(self._args, body, answer, voice, _write))
        finally:
            self._conversation.answered(answer.text)
            self._sound = bytes(voice.sound) if voice is not None else b""
        if answer.finish_reason == "length":
            print("(cut: the answer reached its limit of tokens)", file=sys.stderr)
        return max([complain(text) for text in voice.complaints], default=0) if voice is not None else 0

    # ------------------------------------------------------------ a conversation

    def _converse(self) -> int:
        _edit_lines()
        print("/help names the commands; ctrl-c stops an answer, ctrl-d leaves")
        while True:
            try:
                line = input("> ").strip()
            except EOFError:
                print()
                return 0
            except KeyboardInterrupt:
                print()
                continue
            if line.partition(" ")[0] == "/quit":
                return 0
            if line:
                self._one_line(line)

    def _one_line(self, line: str) -> None:
        """Nothing a turn does ends the conversation."""
        name, _, rest = line.partition(" ")
        try:
            if not name.startswith("/"):
                self._ask(line)
            elif name in self._commands:
                self._commands[name](rest.strip())
            else:
                print(f"there is no {name}\n{HELP}")
        except (ServerError, SoundError) as error:
            complain(error)
        except KeyboardInterrupt:
            print("(stopped)", file=sys.stderr)

    def _say(self, rest: str) -> None:
        file, _, text = rest.partition(" ")
        if not file:
            raise ServerError("/say needs a FILE")
        try:
            recording = read_recording(file)
        except ServerError as error:
            raise ServerError(f"{error} (/say takes a recording)") from error
        self._ask(text.strip(), recording)

    def _save(self, file: str) -> None:
        path = Path(file) if file else _free(Path("chat.txt"))
        if path.suffix.lower() == ".wav":
            self._save_voice(path)
            return
        if path.suffix.lower() not in TALK_ENDINGS:
            known = ", ".join(ending for ending in TALK_ENDINGS if ending)
            raise SoundError(f"cannot save as {path}; the conversation takes {known}, the last answer's voice .wav")
        as_json = path.suffix.lower() == ".json"
        data = self._conversation.as_json() if as_json else self._conversation.as_text().encode()
        try:
            path.write_bytes(data)
        except OSError as error:
            raise SoundError(f"cannot use {path}: {error.strerror}") from error
        print(f"{path}: {len(self._conversation.messages())} messages", file=sys.stderr)

    def _save_voice(self, path: Path) -> None:
        if not self._sound:
            raise SoundError("the last answer had no voice; start with --voice")
        file = WavFile(path)
        file.feed(self._sound, RATE)
        print(file.close(), file=sys.stderr)


def read_recording(name: str) -> Recording:
    try:
        data = Path(name).read_bytes()
    except OSError as error:
        raise ServerError(f"cannot use {name}: {error.strerror}") from error
    if not data:
        raise ServerError(f"{name} is empty")
    kind = format_of(name, data)
    if not kind:
        raise ServerError(f"cannot tell what kind of audio {name} is; give it an ending such as .wav")
    return Recording(Path(name).name, data, kind)


def _voice(args: argparse.Namespace) -> Voice | None:
    if not (args.voice or args.play or args.save or args.speaker):
        return None
    places = Places(args.save) if args.save else None
    return Voice(places, find_player() if args.play or places is None else None)


def _prompt(given: str | None, without: str | None) -> str:
    """The question of a single turn; `without`: what stands for one that was not given, None to read it."""
    if given is None and without is not None:
        return without
    try:
        text = sys.stdin.read().rstrip("\r\n") if given in (None, "-") else given
        text.encode()  # bytes of the command line that are no text arrive as lone surrogates
    except UnicodeError as error:
        raise ServerError("the question is not UTF-8") from error
    return text


def _write(text: str) -> None:
    """At once. What could steer a terminal is left out."""
    if sys.stdout.isatty():
        text = _printable(text)
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
    sys.stdout.flush()


def _printable(text: str) -> str:
    return "".join(character for character in text if character.isprintable() or character in "\n\t")


def _free(path: Path) -> Path:
    count, free = 1, path
    while free.exists():
        count += 1
        free = path.with_stem(f"{path.stem}-{count}")
    return free


def _edit_lines() -> None:
    """Arrow keys and the lines before, where the platform can."""
    with contextlib.suppress(ImportError):
        importlib.import_module("readline")  # from then on `input` edits
