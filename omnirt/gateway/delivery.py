"""The three ways an answer travels: chunked audio, server-sent events, one whole body.

Invariants: headers leave with the first byte of audio, so whatever fails before keeps its status (on an event stream
a client that waits longer than `keepalive_s` gets the headers and a comment instead). What fails after is never a
clean end: an event stream says so, then the connection breaks without the last chunk. A client that takes nothing for
`stall_s` is closed; until then at most the transport's buffer waits for it.
"""

from __future__ import annotations

import asyncio
import base64
import socket
import struct
from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import HttpVersion11, web

from omnirt.errors import StageFailed
from omnirt.gateway.config import GatewayConfig
from omnirt.gateway.errors import payload_of, refusal_of
from omnirt.gateway.media import content_type_of, wav_header
from omnirt.gateway.speech_audio import SpeechAudio

RESET = struct.pack("ii", 1, 0)
"""Linger for no time: what closes then is a reset."""
KEEPALIVE = b": keep-alive\n\n"
EVENT_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",
}

Send = Callable[[web.Request, SpeechAudio, GatewayConfig, str], Awaitable[web.StreamResponse]]


class ClientStalledError(ConnectionError):
    """The client takes no bytes."""


class Outlet:
    """A response under way."""

    def __init__(self, request: web.Request, response: web.StreamResponse, stall_s: float) -> None:
        self._request = request
        self._stall_s = stall_s
        self.response = response

    @classmethod
    async def open(cls, request: web.Request, headers: dict[str, str], stall_s: float) -> Outlet:
        response = web.StreamResponse(headers=headers)
        if request.version < HttpVersion11:
            response.force_close()  # without chunks the end of the connection is the end of the answer
        await response.prepare(request)
        return cls(request, response, stall_s)

    async def write(self, data: bytes) -> None:
        try:
            async with asyncio.timeout(self._stall_s):
                await self.response.write(data)
        except TimeoutError:
            break_off(self._request, 0.0)
            raise ClientStalledError(f"the client took nothing for {self._stall_s} s") from None


async def send_audio(request: web.Request, audio: SpeechAudio, config: GatewayConfig, _: str) -> web.StreamResponse:
    """Encoded pieces as they are made."""
    piece = await audio.next()
    out = await Outlet.open(request, audio_headers(audio), config.stall_s)
    while piece is not None:
        await out.write(piece)
        piece = await audio.next()
    return out.response


async def send_complete(request: web.Request, audio: SpeechAudio, config: GatewayConfig, _: str) -> web.StreamResponse:
    """The whole answer at once, with its length. For wav the pieces are bare samples and the header is exact."""
    body = bytearray()
    while (piece := await audio.next()) is not None:
        body += piece
        if len(body) > config.complete_bytes_max:
            raise StageFailed(f"the audio is over {config.complete_bytes_max} bytes; ask for a stream")
    whole = wav_header(audio.rate, len(body)) + body if audio.asked_format == "wav" else bytes(body)
    return web.Response(body=whole, headers=audio_headers(audio))


async def send_events(
    request: web.Request, audio: SpeechAudio, config: GatewayConfig, request_id: str
) -> web.StreamResponse:
    """`speech.audio.delta` for each piece, then one `speech.audio.done`, or one `speech.audio.error`."""
    out: Outlet | None = None
    pending = asyncio.ensure_future(audio.next())
    try:
        while True:
            # `next` stays pending over a keep-alive: a wait that cancelled it could lose an event.
            done, _ = await asyncio.wait((pending,), timeout=config.keepalive_s)
            piece = pending.result() if done else KEEPALIVE
            out = out or await Outlet.open(request, EVENT_HEADERS, config.stall_s)
            if piece is None:
                await out.write(_event({"type": "speech.audio.done", "usage": audio.usage()}))
                return out.response
            await out.write(_delta(piece, audio.asked_format) if done else piece)
            if done:
                pending = asyncio.ensure_future(audio.next())
    except ConnectionError:
        raise
    except Exception as error:
        if out is not None:
            payload = payload_of(refusal_of(error), request_id)
            await out.write(_event({"type": "speech.audio.error", "error": payload}))
        raise
    finally:
        if not pending.done():
            pending.cancel()
            await asyncio.wait((pending,))


SENDERS: dict[str, Send] = {"audio": send_audio, "sse": send_events, "complete": send_complete}


def audio_headers(audio: SpeechAudio) -> dict[str, str]:
    kind = content_type_of(audio.asked_format, audio.rate)
    return {"Content-Type": kind, "X-Sample-Rate": str(audio.rate), "X-Channels": "1"}


def break_off(request: web.BaseRequest, flush_s: float) -> None:
    """End the connection so that the client sees a broken answer, not a short one.

    What was written still arrives if the client takes it within `flush_s`; the last chunk is never sent.
    """
    transport = request.transport
    if transport is None or transport.is_closing():
        return
    if flush_s and request.version >= HttpVersion11:
        transport.close()
        asyncio.get_running_loop().call_later(flush_s, transport.abort)
    else:  # without chunks only a reset tells a broken answer from a whole one
        connection = transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        transport.abort()


def _delta(piece: bytes, format: str) -> bytes:
    audio = base64.b64encode(piece).decode("ascii")
    return _event({"type": "speech.audio.delta", "audio": audio, "response_format": format})


def _event(value: object) -> bytes:
    return b"data: " + msgspec.json.encode(value) + b"\n\n"
