"""An answer as server-sent events, for chat and completions.

    connection   |<- headers with the first event, or with the first comment after `keepalive_s` of silence
    per choice   |  begin, (text | audio)..., audio ends, end
    per answer   |  usage if asked for, [DONE]

Invariants: whatever fails before the headers keeps its status; what fails after is said in an event, and then the
connection breaks without [DONE]. The next output is read when the one before it was written, so a slow client holds its
own credit. Outputs that are ready together travel in one write. A token costs no task, no future and no timer here:
silence is watched by one timer per answer, and a write is timed only when it may have to wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from aiohttp import web

from omnirt.errors import StageFailed, error_from
from omnirt.gateway.chat_audio import AnswerAudio
from omnirt.gateway.chat_chunks import DONE, Chunks, Frame, encode
from omnirt.gateway.chat_usage import Counts, Reports, counts_of, usage_of
from omnirt.gateway.config import GatewayConfig
from omnirt.gateway.delivery import EVENT_HEADERS, KEEPALIVE, Outlet
from omnirt.gateway.errors import payload_of, refusal_of
from omnirt.gateway.identity import REQUEST_ID
from omnirt.session.service import Done, Live, Output
from omnirt.track import Track
from omnirt.wire.payload import Payload, Pcm, Text

TOGETHER_BYTES = 16 << 10
"""What is ready goes out in one write, up to about this much."""
CALM_BYTES = 32 << 10
"""A write that leaves fewer bytes than this in the transport cannot have to wait: it pauses at twice as many."""
T = TypeVar("T")


class EventStream:
    """A response of events under way. Use as a context manager."""

    def __init__(self, request: web.Request, config: GatewayConfig) -> None:
        self._request = request
        self._config = config
        self._loop = asyncio.get_running_loop()
        self._outlet: Outlet | None = None
        self._opening = asyncio.Lock()
        self._quiet_since = self._loop.time()
        self._timer = self._loop.call_later(config.keepalive_s, self._watch)
        self._comment: asyncio.Task[None] | None = None

    @property
    def response(self) -> web.StreamResponse | None:
        """None while the headers have not left."""
        return self._outlet.response if self._outlet is not None else None

    async def write(self, data: bytes) -> None:
        outlet = self._outlet or await self._open()
        self._quiet_since = self._loop.time()
        protocol, transport = self._request.protocol, self._request.transport
        calm = (
            transport is not None
            and not protocol.writing_paused
            and transport.get_write_buffer_size() + len(data) < CALM_BYTES
        )
        if calm:
            await outlet.response.write(data)
        else:
            await outlet.write(data)

    def __enter__(self) -> EventStream:
        return self

    def __exit__(self, *exc: object) -> None:
        self._timer.cancel()
        if self._comment is not None:
            self._comment.cancel()

    async def _open(self) -> Outlet:
        async with self._opening:  # a comment may be about to do the same
            if self._outlet is None:
                self._outlet = await Outlet.open(self._request, EVENT_HEADERS, self._config.stall_s)
            return self._outlet

    def _watch(self) -> None:
        """Runs once in a while, not once per event: it looks when the last one was."""
        quiet_s = self._loop.time() - self._quiet_since
        if quiet_s >= self._config.keepalive_s:
            quiet_s = 0.0
            if not self._request.protocol.writing_paused:  # else bytes are waiting anyhow
                self._comment = self._loop.create_task(self._say_nothing())
        self._timer = self._loop.call_later(self._config.keepalive_s - quiet_s, self._watch)

    async def _say_nothing(self) -> None:
        try:
            await self.write(KEEPALIVE)
        except ConnectionError:  # the handler hears of it too
            return


class Choice:
    """One answer of the pipeline on its way into a stream."""

    def __init__(self, live: Live, chunks: Chunks, track: Track, audio: AnswerAudio | None = None) -> None:
        self._live = live
        self._chunks = chunks
        self._track = track
        self._audio = audio
        self._said: list[str] = []
        self.counts = Counts()
        """Known once it is over."""
        self.reports: Reports = {}

    async def run(self, events: EventStream) -> bytes:
        """Until the last output was written; gives what is left to write. Raises what ended the request early."""
        live, data = self._live, self._chunks.begin()
        while True:
            event = await live.next()
            if isinstance(event, Output):
                data += await self._together(event)
                if data:
                    await events.write(data)
                    data = b""
            elif isinstance(event, Done):
                self.reports = event.reports
                self.counts = counts_of(event.reports)
                return data + await self._ending()
            else:
                raise error_from(event.failure)

    async def _together(self, event: Output) -> bytes:
        """What to write for it, and for what is ready behind it: text that nothing separates is one piece."""
        live, payload = self._live, event.payload
        if type(payload) is Text and not live.has_output():  # the common case: a token
            return self._text(payload)
        data, texts = b"", list[Text]()
        while True:
            if isinstance(payload, Text):
                texts.append(payload)
            else:
                data += self._texts(texts) + await self._sound(payload)
                texts.clear()
            if len(data) >= TOGETHER_BYTES or not live.has_output():
                return data + self._texts(texts)
            following = await live.next()
            assert isinstance(following, Output), "has_output promised one"
            payload = following.payload

    def _texts(self, texts: list[Text]) -> bytes:
        return self._text(Text.joined(texts)) if texts else b""

    def _text(self, payload: Text) -> bytes:
        self._track.text(len(payload.logprobs) or 1)
        if not payload.text and not payload.logprobs:
            return b""
        if self._audio is not None:
            self._said.append(payload.text)
        return self._chunks.text(payload.text, payload.logprobs)

    async def _sound(self, payload: Payload) -> bytes:
        if self._audio is None or not isinstance(payload, Pcm):
            raise StageFailed(f"nobody asked the pipeline for {type(payload).__name__}")
        self._track.audio(payload.samples.size, payload.rate)
        data = await self._audio.feed(payload)
        return self._chunks.audio(data) if data else b""

    async def _ending(self) -> bytes:
        data = b""
        if self._audio is not None:
            rest = await self._audio.flush()
            data = self._chunks.audio(rest) if rest else b""
            data += self._chunks.audio_ends(self._audio.keep("".join(self._said)))
        return data + self._chunks.end(self.counts.finish_reason)


async def send_stream(
    request: web.Request, config: GatewayConfig, frame: Frame, prompts: Sequence[Sequence[Choice]]
) -> web.StreamResponse:
    """`prompts`: per prompt, its answers."""
    choices = [choice for answers in prompts for choice in answers]
    with EventStream(request, config) as events:
        try:
            if len(choices) == 1:
                last = await choices[0].run(events)
            else:
                await all_of([_whole(choice, events) for choice in choices])
                last = b""
            if frame.include_usage:
                last += frame.usage(usage_of([[choice.counts for choice in answers] for answers in prompts]))
            await events.write(last + DONE)
        except ConnectionError:
            raise
        except Exception as error:
            if events.response is not None:
                said = {"error": payload_of(refusal_of(error), request[REQUEST_ID])}
                await events.write(b"data: " + encode(said) + b"\n\n")
            raise
    assert events.response is not None
    return events.response


async def all_of(works: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """All at once. The first failure is raised, when the others were cancelled and are over."""
    if len(works) == 1:
        return [await works[0]]
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _whole(choice: Choice, events: EventStream) -> None:
    await events.write(await choice.run(events))
