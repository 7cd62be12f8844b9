"""`omnirt say "text" -o out.wav`: speak through a running server and keep the audio.

The file appears under its name only when the whole answer arrived. A WAV that was streamed gets its real sizes, so any
reader takes it. `-o -` writes to standard output as it comes, and so does the name of a device or a pipe, which stays
what it is.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import math
import mimetypes
import os
import sys
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec import Struct

from omnirt.cli import server
from omnirt.cli.server import ServerError
from omnirt.clock import NS, monotonic_ns
from omnirt.gateway.config import AUDIO_FORMATS
from omnirt.gateway.media import wav_header

WAV_HEADER_BYTES = 44
FIELDS = ("voice", "speed", "seed", "instructions", "language", "ref_text", "max_new_tokens")
"""Arguments that are sent under their own names."""
SEED = "the same seed gives the same speech, but for rounding in the last bit"


class Heard(Struct):
    """What came back. Times in ns since the request left."""

    nbytes: int = 0
    first_ns: int = 0
    total_ns: int = 0
    rate: int = 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("text", nargs="?", help="what to say; - or none reads standard input")
    parser.add_argument("-o", "--output", default="speech.wav", help="file to write, - for standard output")
    parser.add_argument("--voice", help="one of the voices at URL/v1/audio/voices")
    parser.add_argument("--speed", type=_speed, help="0.25 to 4.0")
    parser.add_argument("--format", choices=AUDIO_FORMATS, help="default: by the file's ending, else wav")
    parser.add_argument("--instructions", help="the manner of speaking, or the voice itself where a model designs one")
    parser.add_argument("--language", help="one of the languages at URL/v1/audio/voices")
    parser.add_argument("--ref-audio", metavar="FILE", help="a recording of the voice to copy, where a model can")
    parser.add_argument("--ref-text", help="what is said in it; without, only the sound of the voice is copied")
    parser.add_argument("--max-new-tokens", type=int, metavar="N", help="an end for the speech, in the model's frames")
    parser.add_argument("--seed", type=int, help=SEED)
    server.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    body: dict[str, object] = {"stream_format": "audio"}
    body |= {name: getattr(args, name) for name in FIELDS if getattr(args, name) is not None}
    try:
        if args.ref_audio is not None:
            body["ref_audio"] = _data_url(args.ref_audio)
            if args.ref_text is None:
                body["x_vector_only_mode"] = True
        audio_format = args.format or _format_of(args.output)
        body["response_format"] = audio_format
        body["input"] = _text(args.text)
        heard = asyncio.run(_say(args, body, audio_format))
    except ServerError as error:
        print(f"omnirt say: {error}", file=sys.stderr)
        return 1
    print(_summary(heard, args.output, audio_format), file=sys.stderr)
    return 0


async def _say(args: argparse.Namespace, body: dict[str, object], audio_format: str) -> Heard:
    if args.output == "-":
        return await _receive(args, body, sys.stdout.buffer)
    target, is_device = _target(args.output)
    if is_device:
        return await _into_device(args, body, target)
    partial = target.with_name(target.name + ".part")
    try:
        with partial.open("wb") as file:
            heard = await _receive(args, body, file)
            if audio_format == "wav":
                file.seek(0)
                file.write(wav_header(heard.rate, heard.nbytes - WAV_HEADER_BYTES))
        os.replace(partial, target)
    except OSError as error:
        raise ServerError(f"cannot use {args.output}: {error.strerror}") from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()
    return heard


def _target(output: str) -> tuple[Path, bool]:
    """Where the audio goes, and whether that is a device or a pipe. A link keeps its place."""
    target = Path(output).resolve()
    if os.path.isdir(target):
        raise ServerError(f"{output} is a directory; name a file with -o")
    return target, os.path.exists(target) and not os.path.isfile(target)


async def _into_device(args: argparse.Namespace, body: dict[str, object], target: Path) -> Heard:
    """As it comes: what is no file of data can neither be replaced nor corrected."""
    try:
        with target.open("wb") as file:
            return await _receive(args, body, file)
    except OSError as error:
        raise ServerError(f"cannot use {args.output}: {error.strerror}") from error


async def _receive(args: argparse.Namespace, body: dict[str, object], file: BinaryIO) -> Heard:
    heard = Heard()
    began_ns = monotonic_ns()
    async with server.answer(args, "/v1/audio/speech", msgspec.json.encode(body), pipeline="speech") as response:
        heard.rate = int(response.headers.get("X-Sample-Rate", "0"))
        async for piece in response.content.iter_any():
            heard.first_ns = heard.first_ns or monotonic_ns() - began_ns
            heard.nbytes += len(piece)
            file.write(piece)
    heard.total_ns = monotonic_ns() - began_ns
    return heard


def _text(given: str | None) -> str:
    if given is None and sys.stdin.isatty():
        raise ServerError("there is no text; name it, or pipe it in")
    try:
        text = sys.stdin.read().rstrip("\r\n") if given in (None, "-") else given
        text.encode()  # bytes of the command line that are no text arrive as lone surrogates
    except UnicodeError as error:
        raise ServerError("the text is not UTF-8") from error
    return text


def _data_url(path: str) -> str:
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ServerError(f"cannot use {path}: {error.strerror}") from error
    kind = mimetypes.guess_type(path)[0] or "application/octet-stream"
    return f"data:{kind};base64,{base64.b64encode(data).decode('ascii')}"


def _speed(given: str) -> float:
    speed = float(given)
    if not math.isfinite(speed):
        raise ValueError(given)
    return speed


def _format_of(output: str) -> str:
    ending = Path(output).suffix.lstrip(".").lower()
    ending = {"ogg": "opus"}.get(ending, ending or "wav")
    if ending not in AUDIO_FORMATS:
        known = ", ".join(AUDIO_FORMATS)
        raise ServerError(f"{output} ends in no audio format that is spoken here ({known}); choose one with --format")
    return ending


def _summary(heard: Heard, output: str, audio_format: str) -> str:
    first_s, total_s = heard.first_ns / NS, heard.total_ns / NS
    head = f"{output}: " if output != "-" else ""
    times = f"first audio after {first_s:.3f} s, all after {total_s:.3f} s"
    if audio_format not in ("wav", "pcm") or not heard.rate:
        return f"{head}{heard.nbytes} bytes of {audio_format}; {times}"
    samples = (heard.nbytes - (WAV_HEADER_BYTES if audio_format == "wav" else 0)) // 2
    seconds = samples / heard.rate
    return f"{head}{seconds:.2f} s of speech at {heard.rate} Hz; {times}"
