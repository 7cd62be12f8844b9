"""The three ways an answer travels: chunked audio, server-sent events, one whole body.

Invariants: headers leave with the first byte of audio, so whatever fails before keeps its status (on an event stream
a client that waits longer than `keepalive_s` gets the headers and a comment instead). What fails after is never a
clean end: an event stream says so, then the connection breaks without the last chunk. A client that takes nothing for
`stall_s` is closed; until then at most the transport's buffer waits for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from omnirt.errors import StageFailed
from omnirt.gateway.config import GatewayConfig
from omnirt.gateway.event_stream import EventStream, event_bytes
from omnirt.gateway.media import content_type_of, wav_header
from omnirt.gateway.outlet import Outlet
from omnirt.gateway.speech_audio import SpeechAudio

Send = Callable[[web.Request, SpeechAudio, GatewayConfig], Awaitable[web.StreamResponse]]


async def send_audio(request: web.Request, audio: SpeechAudio, config: GatewayConfig) -> web.StreamResponse:
    """Encoded pieces as they are made."""
    piece = await audio.next()
    out = await Outlet.open(request, audio_headers(audio), config.stall_s)
    while piece is not None:
        await out.write(piece)
        piece = await audio.next()
    return out.response


async def send_complete(request: web.Request, audio: SpeechAudio, config: GatewayConfig) -> web.StreamResponse:
    """The whole answer at once, with its length. For wav the pieces are bare samples and the header is exact."""
    body = bytearray()
    while (piece := await audio.next()) is not None:
        body += piece
        if len(body) > config.complete_bytes_max:
            raise StageFailed(f"the audio is over {config.complete_bytes_max} bytes; ask for a stream")
    whole = wav_header(audio.rate, len(body)) + body if audio.asked_format == "wav" else bytes(body)
    return web.Response(body=whole, headers=audio_headers(audio) | usage_headers(audio.usage()))


async def send_events(request: web.Request, audio: SpeechAudio, config: GatewayConfig) -> web.StreamResponse:
    """`speech.audio.delta` for each piece, then one `speech.audio.done`, or one `speech.audio.error`."""
    async with EventStream(request, config, _failure) as events:
        while (piece := await audio.next()) is not None:
            await events.write(_delta(piece, audio.asked_format))
        return await events.end(event_bytes({"type": "speech.audio.done", "usage": audio.usage()}))


SENDERS: dict[str, Send] = {"audio": send_audio, "sse": send_events, "complete": send_complete}


def audio_headers(audio: SpeechAudio) -> dict[str, str]:
    kind = content_type_of(audio.asked_format, audio.rate)
    return {"Content-Type": kind, "X-Sample-Rate": str(audio.rate), "X-Channels": "1"}


def usage_headers(usage: dict[str, Any]) -> dict[str, str]:
    """For clients that know these from another server; an answer that is streamed says its usage at its end."""
    details = usage["input_token_details"]
    counts = {"Input": usage["input_tokens"], "Output": usage["output_tokens"], "Total": usage["total_tokens"]}
    counts |= {"Input-Text": details["text_tokens"], "Input-Audio": details["audio_tokens"]}
    return {f"X-VLLM-Omni-{name}-Tokens": str(count) for name, count in counts.items()}


def _delta(piece: bytes, format: str) -> bytes:
    # The encoder makes bytes base64.
    return event_bytes({"type": "speech.audio.delta", "audio": piece, "response_format": format})


def _failure(payload: dict[str, object]) -> bytes:
    return event_bytes({"type": "speech.audio.error", "error": payload})
