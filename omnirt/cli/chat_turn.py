"""One turn of a chat: the conversation goes out, text and sound come back and go where they belong.

Invariants: text is written the moment it arrives; whatever ends the turn (an error, ctrl-c) leaves files with true
sizes, a silent player, and in `answer` all that came until then.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

import msgspec

from omnirt.cli import server
from omnirt.cli.chat_events import Answer, Piece
from omnirt.cli.chat_sound import Places, SoundError, Speaker, WavFile
from omnirt.cli.server import ServerError

RATE = 24_000
"""Of the format pcm16."""


class Voice:
    """What happens to the sound of each answer: kept in a file, played, or both."""

    def __init__(self, places: Places | None, player: list[str] | None) -> None:
        self._places = places
        self._player = player

    def open(self) -> VoiceOfTurn:
        file = WavFile(self._places.next()) if self._places is not None else None
        return VoiceOfTurn(file, Speaker(self._player) if self._player is not None else None)


class VoiceOfTurn:
    def __init__(self, file: WavFile | None, speaker: Speaker | None) -> None:
        self._file = file
        self._speaker = speaker
        self.sound = bytearray()
        """All of it, for who wants to keep it later."""
        self.complaints: list[str] = []

    async def feed(self, sound: bytes) -> None:
        self.sound += sound
        if self._file is not None:
            self._file.feed(sound, RATE)
        if self._speaker is not None:
            await self._playing(self._speaker, sound)

    async def finish(self) -> None:
        if self._speaker is not None:
            await self._playing(self._speaker, b"")

    async def close(self) -> str:
        """What was kept, in a line."""
        try:
            return self._file.close() if self._file is not None else ""
        finally:
            if self._speaker is not None:
                await self._speaker.stop()

    async def _playing(self, speaker: Speaker, sound: bytes) -> None:
        """A player that fails is told of once; the answer goes on without it."""
        try:
            await (speaker.feed(sound, RATE) if sound else speaker.finish())
        except SoundError as error:
            self.complaints.append(str(error))
            self._speaker = None
            await speaker.stop()


def body_of(args: argparse.Namespace, messages: list[dict[str, Any]], *, voice: bool) -> dict[str, Any]:
    """The request; what was not asked for is the server's choice."""
    body: dict[str, Any] = {"messages": messages, "stream": True, "modalities": ["text"]}
    if voice:
        body["modalities"] = ["text", "audio"]
        body["audio"] = {"format": "pcm16"} | ({"voice": args.speaker} if args.speaker else {})
    given = {name: getattr(args, name) for name in ("model", "max_tokens", "temperature", "seed")}
    return body | {name: value for name, value in given.items() if value is not None}


async def receive(
    args: argparse.Namespace,
    body: dict[str, Any],
    answer: Answer,
    voice: VoiceOfTurn | None,
    write: Callable[[str], object],
) -> None:
    """Fills `answer`. Raises ServerError when it does not come to its end, SoundError when it cannot be kept."""
    try:
        await _listen(args, body, answer, voice, write)
        if not answer.complete:
            raise ServerError("the answer broke off; the server's log says why")
        if voice is not None:
            await voice.finish()
    finally:
        kept = await _end(answer, voice, write)
        if kept:
            print(kept, file=sys.stderr)


async def _end(answer: Answer, voice: VoiceOfTurn | None, write: Callable[[str], object]) -> str:
    """The text has its line to itself before anything is said of the voice."""
    try:
        if answer.text and not answer.text.endswith("\n"):
            write("\n")
    finally:
        kept = await voice.close() if voice is not None else ""
    return kept


async def _listen(
    args: argparse.Namespace,
    body: dict[str, Any],
    answer: Answer,
    voice: VoiceOfTurn | None,
    write: Callable[[str], object],
) -> None:
    async with server.answer(args, "/v1/chat/completions", msgspec.json.encode(body), pipeline="voice") as response:
        async for received in response.content.iter_any():
            for piece in _pieces(args, answer, received):
                if piece.text:
                    write(piece.text)
                if piece.sound and voice is not None:
                    await voice.feed(piece.sound)
            if answer.error:
                raise ServerError(answer.error)


def _pieces(args: argparse.Namespace, answer: Answer, received: bytes) -> list[Piece]:
    try:
        return answer.feed(received)
    except (msgspec.MsgspecError, ValueError) as error:
        raise ServerError(f"{args.url} answers something that is no chat: {error}") from error
