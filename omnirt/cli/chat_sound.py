"""Where the voice of an answer goes: into a WAV file, and to whatever plays raw audio on this machine.

Invariants: a file has its true sizes once it is closed, however the answer ended; no player outlives its answer; text
never waits for a player, which takes sound only as fast as it is heard.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from omnirt.gateway.media import wav_header

WAITING_BYTES_MAX = 64 << 20
"""Sound that a player has not taken yet: 23 minutes at 24 kHz. Beyond that the answer waits."""


class SoundError(Exception):
    """The text says what to do about it."""


class Player(Struct, frozen=True):
    """A program that plays 16-bit mono samples from standard input. `{rate}` in its arguments is filled in."""

    name: str
    arguments: tuple[str, ...]
    raw: str = ""
    """An option its newer versions need, and older ones do not know."""


PLAYERS = (
    Player("pw-play", ("--rate", "{rate}", "--format", "s16", "--channels", "1", "-"), raw="--raw"),
    Player("paplay", ("--raw", "--rate={rate}", "--format=s16le", "--channels=1")),
    Player("aplay", ("-q", "-t", "raw", "-f", "S16_LE", "-r", "{rate}", "-c", "1", "-")),
    Player("ffplay", ("-v", "error", "-nodisp", "-autoexit", "-f", "s16le", "-sample_rate", "{rate}", "-i", "-")),
    Player("play", ("-q", "-t", "raw", "-r", "{rate}", "-e", "signed", "-b", "16", "-c", "1", "-")),
)
"""In the order they are looked for; the last is sox's."""


def find_player() -> list[str]:
    """The command line of the first player there is."""
    for player in PLAYERS:
        path = shutil.which(player.name)
        if path is not None:
            raw = [player.raw] if player.raw and player.raw in _help(path) else []
            return [path, *raw, *player.arguments]
    names = ", ".join(player.name for player in PLAYERS)
    raise SoundError(f"nothing here plays sound; install one of {names} (sox), or keep the voice with --save FILE.wav")


def _help(path: str) -> str:
    try:
        done = subprocess.run([path, "--help"], capture_output=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return (done.stdout + done.stderr).decode(errors="replace")


class WavFile:
    """Appears with the first sound."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._nbytes = 0
        self._rate = 0

    def feed(self, sound: bytes, rate: int) -> None:
        try:
            if self._file is None:
                self._file = self._path.open("wb")
                self._file.write(wav_header(rate, None))
                self._rate = rate
            self._file.write(sound)
        except OSError as error:
            raise SoundError(f"cannot use {self._path}: {error.strerror}") from error
        self._nbytes += len(sound)

    def close(self) -> str:
        """One line on what was kept; empty when there was no sound."""
        if self._file is None:
            return ""
        try:
            with self._file as file:
                if file.seekable():
                    file.seek(0)
                    file.write(wav_header(self._rate, self._nbytes))
        except OSError as error:
            raise SoundError(f"cannot use {self._path}: {error.strerror}") from error
        return f"{self._path}: {self._nbytes / 2 / self._rate:.2f} s of speech at {self._rate} Hz"


class Places:
    """A file name for each answer: FILE.wav, FILE-2.wav, ...; in a folder answer-1.wav, ... never one that exists."""

    def __init__(self, given: str) -> None:
        path = Path(given)
        self._is_folder = given.endswith("/") or os.path.isdir(path) or not path.suffix
        if not self._is_folder and path.suffix.lower() != ".wav":
            raise SoundError(f"{given} is neither a folder nor a .wav file; the voice is kept as WAV")
        self._path = path
        self._count = 0
        self._check()

    def next(self) -> Path:
        self._count += 1
        self._check()
        if not self._is_folder:
            return self._path if self._count == 1 else self._path.with_stem(f"{self._path.stem}-{self._count}")
        while (path := self._path / f"answer-{self._count}.wav").exists():
            self._count += 1
        return path

    def _check(self) -> None:
        """Before anything is asked: an answer that cannot be kept would be lost."""
        try:
            if self._is_folder:
                self._path.mkdir(parents=True, exist_ok=True)
            folder = self._path if self._is_folder else self._path.parent
            os.stat(os.path.join(folder, ""))  # with a slash at its end: a file is no place for another
            must_write = self._path if self._path.exists() else folder
            if not os.access(must_write, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        except OSError as error:
            raise SoundError(f"cannot use {self._path}: {error.strerror}") from error


class Speaker:
    """One run of a player, for one answer."""

    def __init__(self, command: list[str]) -> None:
        self._command = command
        self._process: asyncio.subprocess.Process | None = None
        self._complaint = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `stop`

    async def feed(self, sound: bytes, rate: int) -> None:
        """Raises SoundError once the player is gone."""
        process = self._process or await self._start(rate)
        stdin = process.stdin
        assert stdin is not None
        if process.returncode is not None or stdin.is_closing():
            raise SoundError(self._why())
        stdin.write(sound)
        if stdin.transport.get_write_buffer_size() > WAITING_BYTES_MAX:
            await self._drain(stdin)

    async def finish(self) -> None:
        """Returns when everything has been heard."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        if await self._process.wait() != 0:
            raise SoundError(self._why())

    async def stop(self) -> None:
        """Silence, at once. Also after `finish`."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        self._complaint.close()

    async def _start(self, rate: int) -> asyncio.subprocess.Process:
        command = [part.replace("{rate}", str(rate)) for part in self._command]
        try:
            self._process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=self._complaint,
                start_new_session=True,  # ctrl-c is for us; we stop the player
            )
        except OSError as error:
            raise SoundError(f"cannot start {command[0]}: {error.strerror}") from error
        return self._process

    async def _drain(self, stdin: asyncio.StreamWriter) -> None:
        try:
            await stdin.drain()
        except ConnectionError:
            raise SoundError(self._why()) from None

    def _why(self) -> str:
        self._complaint.seek(0)
        lines = self._complaint.read(1 << 16).decode(errors="replace").strip().splitlines()
        return f"{Path(self._command[0]).name} stopped: {lines[-1] if lines else 'without a word'}"
