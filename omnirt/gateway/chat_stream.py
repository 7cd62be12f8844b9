"""An answer as server-sent events, for chat and completions.

    per choice   |  begin, (text | audio)..., audio ends, end
    per answer   |  usage if asked for, [DONE]

Invariants: an answer that fails has no [DONE]. The next output is read when the one before it was written, so a slow
client holds its own credit. Outputs that are ready together travel in one write. A token costs no task, no future and
no timer here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from aiohttp import web

from omnirt.errors import StageFailed, error_from
from omnirt.gateway.chat_audio import AnswerAudio
from omnirt.gateway.chat_chunks import DONE, Chunks, Frame
from omnirt.gateway.chat_usage import Counts, Reports, counts_of, usage_of
from omnirt.gateway.config import GatewayConfig
from omnirt.gateway.event_stream import EventStream, event_bytes
from omnirt.session.service import Done, Live, Output
from omnirt.track import Track
from omnirt.wire.payload import Payload, Pcm, Text

TOGETHER_BYTES = 16 << 10
"""What is ready goes out in one write, up to about this much."""
T = TypeVar("T")


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
    async with EventStream(request, config, lambda failure: event_bytes({"error": failure})) as events:
        if len(choices) == 1:
            last = await choices[0].run(events)
        else:
            await all_of([_whole(choice, events) for choice in choices])
            last = b""
        if frame.include_usage:
            last += frame.usage(usage_of([[choice.counts for choice in answers] for answers in prompts]))
        return await events.end(last + DONE)


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
