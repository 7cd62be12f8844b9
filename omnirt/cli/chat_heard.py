"""What the server hears in a recording: asked for apart, since a chat's answer does not say it."""

from __future__ import annotations

import argparse

import aiohttp
import msgspec
from msgspec import Struct

from omnirt.cli import server
from omnirt.cli.chat_history import Recording
from omnirt.cli.server import ServerError


class Transcription(Struct):
    text: str


async def heard(args: argparse.Namespace, recording: Recording) -> str:
    """The words. Raises ServerError, also where the server's pipeline transcribes nothing."""
    form = aiohttp.FormData()
    form.add_field("file", recording.data, filename=recording.name)
    async with server.answer(args, "/v1/audio/transcriptions", form, pipeline="voice") as response:
        try:
            return msgspec.json.decode(await response.read(), type=Transcription).text.strip()
        except msgspec.MsgspecError as error:
            raise ServerError(f"{args.url} answers something that is no transcription: {error}") from error
