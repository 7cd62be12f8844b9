"""`POST /v1/chat/completions`: check, decode what was said, submit, deliver. Leaving the handler ends the requests."""

from __future__ import annotations

import secrets
from contextlib import AsyncExitStack

import msgspec
from aiohttp import web
from msgspec import Struct, structs

from omnirt.clock import unix_s
from omnirt.gateway.abilities import chats, input_bytes_max, makes
from omnirt.gateway.audio_ids import AudioIds
from omnirt.gateway.audio_in import decode_base64, recording
from omnirt.gateway.body import read_json
from omnirt.gateway.chat_audio import AnswerAudio
from omnirt.gateway.chat_chunks import AnswerId, ChatChunks, Frame
from omnirt.gateway.chat_complete import Whole, chat_choice, chat_completion, read_whole
from omnirt.gateway.chat_messages import Conversation, MessageRules, Recording
from omnirt.gateway.chat_request import ChatRequest, ChatRules, parse_chat
from omnirt.gateway.chat_sampling import nth_seed
from omnirt.gateway.chat_stream import Choice, all_of, send_stream
from omnirt.gateway.chat_usage import usage_of
from omnirt.gateway.core import Core
from omnirt.gateway.errors import ApiError, invalid
from omnirt.gateway.fetch import fetch
from omnirt.gateway.holding import Share
from omnirt.gateway.identity import CALLER, REQUEST_ID
from omnirt.gateway.speaker import spoken_voice
from omnirt.pipeline.router import needed_stages
from omnirt.session.service import Live, Submit
from omnirt.track import Track
from omnirt.wire.payload import Chat as ChatPayload
from omnirt.wire.payload import Payload, Pcm
from omnirt.wire.plan import Plan

THREADED_BYTES = 256 << 10
"""An answer with more audio than this is put into JSON on a thread."""


class Abilities(Struct, frozen=True):
    """What a pipeline can do in a chat; found once, as its plan never changes. `stages`: those that may take part."""

    chats: bool = False
    hears: bool = False
    speaks: bool = False
    stages: tuple[str, ...] = ()

    @classmethod
    def of(cls, plan: Plan) -> Abilities:
        if not chats(plan):
            return cls()
        hears, speaks = makes(plan, "audio", "text"), makes(plan, "chat", "audio")
        given = ("chat", "audio") if hears else ("chat",)
        wanted = ("text", "audio") if speaks else ("text",)
        return cls(True, hears, speaks, needed_stages(plan, given, wanted))


class Chat:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._abilities = Abilities.of(core.service.plan)
        self._ids = AudioIds()

    async def create(self, request: web.Request) -> web.StreamResponse:
        core = self._core
        track = core.metrics.track("chat", request[REQUEST_ID])
        body = await read_json(request, core.config.json_bytes_max)
        model = core.check(body, self._abilities.chats, "does not support this endpoint")
        asked = parse_chat(body, self._rules())
        del body
        with core.recordings.share() as share:
            submits = await self._submits(request, asked, share)
            with track:
                async with AsyncExitStack() as stack:
                    lives = [await stack.enter_async_context(core.service.submit(submit)) for submit in submits]
                    # The pipeline lets go of what was said when it can; nobody else holds it.
                    del submits
                    asked = structs.replace(asked, conversation=Conversation(()))
                    return await self._answer(request, model, asked, lives, track)

    def _rules(self) -> ChatRules:
        config, abilities = self._core.config, self._abilities
        messages = MessageRules(
            hears=abilities.hears,
            messages_max=config.messages_max,
            chars_max=config.chat_chars_max,
            transcript_of=self._ids.transcript,
        )
        return ChatRules(messages, self._core.facts(abilities.stages).honoured, abilities.speaks)

    async def _submits(self, request: web.Request, asked: ChatRequest, share: Share) -> list[Submit]:
        params = dict(asked.params)
        if asked.spoken is not None:
            params.update(self._voice(asked.spoken.voice))
        inputs: list[tuple[str, Payload]] = [("chat", self._packed(asked))]
        inputs += [("audio", piece) for piece in await self._heard(asked.conversation.recordings, share)]
        return [
            Submit(
                inputs=tuple(inputs),
                outputs=("text",) if asked.spoken is None else ("text", "audio"),
                params=params,
                seed=nth_seed(asked.seed, index),
                key=request[CALLER],
                public_id=request[REQUEST_ID],
            )
            for index in range(asked.n)
        ]

    def _packed(self, asked: ChatRequest) -> ChatPayload:
        packed = ChatPayload.of(asked.conversation.messages)
        bytes_max = input_bytes_max(self._core.service.plan, "chat")
        if packed.nbytes() > bytes_max:
            text = f"The messages have {packed.nbytes()} bytes; this model takes {bytes_max}."
            raise invalid(text, "messages")
        return packed

    def _voice(self, name: str | None) -> dict[str, object]:
        try:
            return spoken_voice(name, self._core.facts(), self._core.voices)
        except ApiError as error:
            raise ApiError(structs.replace(error.refusal, param="audio.voice")) from error

    async def _heard(self, recordings: tuple[Recording, ...], share: Share) -> list[Pcm]:
        """What was said, in order; together no longer than the configured time."""
        pieces: list[Pcm] = []
        limit_s = left_s = self._core.config.chat_audio_s_max
        for clip, source in enumerate(recordings):
            if left_s <= 0:
                raise invalid(f"The recordings are longer than {limit_s:g} s together.", source.param)
            if source.url:
                data = await fetch(self._core, source.url, source.param)
            else:
                data = await self._core.threaded(decode_base64, source.data, source.param)
            for piece in await recording(self._core, data, source.param, left_s, share.take):
                left_s -= piece.samples.size / piece.rate
                pieces.append(structs.replace(piece, clip=clip))
        return pieces

    async def _answer(
        self, request: web.Request, model: str, asked: ChatRequest, lives: list[Live], track: Track
    ) -> web.StreamResponse:
        answer = AnswerId(f"chatcmpl-{secrets.token_hex(12)}", unix_s(), model)
        audio = None
        if asked.spoken is not None:
            rate = self._core.facts().sample_rate
            audio = AnswerAudio(self._core, self._ids, asked.spoken.format, rate, whole=not asked.stream)
        if asked.stream:
            return await self._stream(request, answer, asked, lives, track, audio)
        return await self._complete(answer, asked, lives, track, audio)

    async def _stream(
        self,
        request: web.Request,
        answer: AnswerId,
        asked: ChatRequest,
        lives: list[Live],
        track: Track,
        audio: AnswerAudio | None,
    ) -> web.StreamResponse:
        frame = Frame(answer, "chat.completion.chunk", asked.include_usage)
        audio_id = audio.id if audio is not None else ""
        choices = [
            Choice(live, ChatChunks(frame, index, audio_id, shows_text=asked.shows_text), track, audio)
            for index, live in enumerate(lives)
        ]
        response = await send_stream(request, self._core.config, frame, [choices])
        track.done(*(choice.reports for choice in choices))
        return response

    async def _complete(
        self, answer: AnswerId, asked: ChatRequest, lives: list[Live], track: Track, audio: AnswerAudio | None
    ) -> web.Response:
        bytes_max = self._core.config.complete_bytes_max
        wholes = await all_of([read_whole(live, track, bytes_max, audio) for live in lives])
        choices = [chat_choice(index, whole, audio, logprobs=asked.logprobs) for index, whole in enumerate(wholes)]
        value = chat_completion(answer, choices, usage_of([[whole.counts for whole in wholes]]))
        text = await self._encoded(value, wholes)
        track.done(*(whole.reports for whole in wholes))
        return web.Response(body=text, content_type="application/json")

    async def _encoded(self, value: dict[str, object], wholes: list[Whole]) -> bytes:
        if sum(len(whole.audio) for whole in wholes) > THREADED_BYTES:
            return await self._core.threaded(msgspec.json.encode, value)
        return msgspec.json.encode(value)
