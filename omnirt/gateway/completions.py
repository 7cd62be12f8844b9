"""`POST /v1/completions`: raw prompts in, text out. Each answer to each prompt is a request of its own."""

from __future__ import annotations

import secrets
from contextlib import AsyncExitStack
from typing import Any, TypeVar, cast

import msgspec
from aiohttp import web
from msgspec import Struct

from omnirt.clock import unix_s
from omnirt.gateway.abilities import input_bytes_max, prompt_input
from omnirt.gateway.body import read_json
from omnirt.gateway.chat_chunks import AnswerId, Frame, encode
from omnirt.gateway.chat_complete import read_whole
from omnirt.gateway.chat_sampling import (
    CHOICES_MAX,
    choices_of,
    nth_seed,
    sampling,
    wants_usage,
)
from omnirt.gateway.chat_stream import Choice, all_of, send_stream
from omnirt.gateway.chat_usage import usage_of
from omnirt.gateway.core import Core
from omnirt.gateway.errors import invalid
from omnirt.gateway.fields import Fields, flag, flat, seed_of, unsupported, whole
from omnirt.gateway.identity import CALLER, REQUEST_ID
from omnirt.pipeline.router import needed_stages
from omnirt.session.service import Live, Submit
from omnirt.track import Track
from omnirt.wire.payload import Payload, Prompt, Text, TokenLogprob

LOGPROBS_MAX = 20
ANSWERS_MAX = 32
"""Of one request, over all of its prompts."""
T = TypeVar("T")


class CompletionRules(Struct, frozen=True):
    chars_max: int = 1 << 20
    honoured: frozenset[str] = frozenset()


class CompletionRequest(Struct, frozen=True):
    prompts: tuple[str, ...]
    n: int = 1
    stream: bool = False
    include_usage: bool = False
    seed: int | None = None
    logprobs: bool = False
    params: dict[str, Any] = {}


def parse_completion(body: object, rules: CompletionRules) -> CompletionRequest:
    """The request in `body` (decoded JSON). Raises a 400 that names the field."""
    fields = flat(body)
    prompts, n = _prompts(fields, rules.chars_max), choices_of(fields)
    if len(prompts) * n > ANSWERS_MAX:
        raise invalid(f"{len(prompts)} prompts with n {n} are more than {ANSWERS_MAX} answers.", "prompt")
    for name in ("suffix", "echo"):
        if fields.get(name):
            raise unsupported(name)
    # The best of as many as are returned is all of them.
    best_of = whole(fields, "best_of", 1, CHOICES_MAX)
    given = {name: value for name, value in fields.items() if name != "best_of" or best_of != n}
    logprobs = _logprobs(fields, rules)
    return CompletionRequest(
        prompts=prompts,
        n=n,
        stream=bool(flag(fields, "stream")),
        include_usage=wants_usage(fields),
        seed=seed_of(fields),
        logprobs=bool(logprobs),
        params={**sampling(given, rules.honoured), **logprobs},
    )


def _prompts(fields: Fields, chars_max: int) -> tuple[str, ...]:
    value = fields.get("prompt")
    if value is None:
        raise invalid("prompt is required.", "prompt", "missing_required_parameter")
    prompts = cast("list[object]", value) if isinstance(value, list) else [value]
    if not prompts:
        raise invalid("prompt must not be an empty list.", "prompt")
    for index, prompt in enumerate(prompts):
        param = f"prompt[{index}]" if isinstance(value, list) else "prompt"
        if isinstance(prompt, int | list):
            raise unsupported(param, "Prompts of token ids are not supported; send text.")
        if not isinstance(prompt, str) or not prompt:
            raise invalid(f"{param} must be a string that is not empty.", param)
    texts = cast("list[str]", prompts)
    if sum(map(len, texts)) > chars_max:
        raise invalid(f"prompt has more than {chars_max} characters.", "prompt")
    return tuple(texts)


def _logprobs(fields: Fields, rules: CompletionRules) -> dict[str, Any]:
    top = whole(fields, "logprobs", 0, LOGPROBS_MAX)
    if top is None:
        return {}
    if not {"logprobs", "top_logprobs"} <= rules.honoured:
        raise unsupported("logprobs")
    return {"logprobs": True, "top_logprobs": top}


class CompletionChunks:
    """The events of one choice."""

    def __init__(self, frame: Frame, index: int) -> None:
        self._head, self._tail, self._end = frame.around(index, "text")
        self._offset = 0

    def begin(self) -> bytes:
        return b""

    def text(self, text: str, logprobs: tuple[TokenLogprob, ...]) -> bytes:
        if not logprobs:
            return self._head + encode(text) + self._tail
        said = encode(completion_logprobs(logprobs, self._offset))
        self._offset += len(text)
        return self._head + encode(text) + b',"logprobs":' + said + b',"finish_reason":null}' + self._end

    def audio(self, data: bytes) -> bytes:
        raise NotImplementedError("completions are text")

    def audio_ends(self, expires_at_s: int) -> bytes:
        raise NotImplementedError("completions are text")

    def end(self, finish_reason: str) -> bytes:
        return self._head + b'"","logprobs":null,"finish_reason":' + encode(finish_reason) + b"}" + self._end


def completion_logprobs(tokens: tuple[TokenLogprob, ...], offset: int = 0) -> dict[str, object]:
    """`offset`: characters of the answer before these."""
    offsets: list[int] = []
    for token in tokens:
        offsets.append(offset)
        offset += len(token.token)
    return {
        "tokens": [token.token for token in tokens],
        "token_logprobs": [token.logprob for token in tokens],
        "top_logprobs": [{top.token: top.logprob for top in token.top} for token in tokens],
        "text_offset": offsets,
    }


class Completions:
    def __init__(self, core: Core) -> None:
        self._core = core
        plan = core.service.plan  # it never changes
        self._modality = prompt_input(plan)
        self._stages = needed_stages(plan, (self._modality,), ("text",)) if self._modality else ()

    async def create(self, request: web.Request) -> web.StreamResponse:
        core = self._core
        track = core.metrics.track("completion", request[REQUEST_ID])
        body = await read_json(request, core.config.json_bytes_max)
        model = core.check(body, bool(self._modality), "does not support this endpoint")
        rules = CompletionRules(core.config.chat_chars_max, core.facts(self._stages).honoured)
        asked = parse_completion(body, rules)
        answer = AnswerId(f"cmpl-{secrets.token_hex(12)}", unix_s(), model)
        with track:
            async with AsyncExitStack() as stack:
                submits = self._submits(request, asked)
                lives = [await stack.enter_async_context(core.service.submit(submit)) for submit in submits]
                if asked.stream:
                    return await self._stream(request, answer, asked, lives, track)
                return await self._complete(answer, asked, lives, track)

    def _submits(self, request: web.Request, asked: CompletionRequest) -> list[Submit]:
        """All answers to the first prompt, then those to the second, ..."""
        return [
            Submit(
                inputs=((self._modality, payload),),
                outputs=("text",),
                params=asked.params,
                seed=nth_seed(asked.seed, index),
                key=request[CALLER],
                public_id=request[REQUEST_ID],
            )
            for payload in [self._payload(prompt) for prompt in asked.prompts]
            for index in range(asked.n)
        ]

    def _payload(self, prompt: str) -> Payload:
        if self._modality != "prompt":
            return Text(prompt)
        payload, bytes_max = Prompt.of(prompt), input_bytes_max(self._core.service.plan, "prompt")
        if payload.nbytes() > bytes_max:
            raise invalid(f"prompt has {payload.nbytes()} bytes; this model takes {bytes_max}.", "prompt")
        return payload

    async def _stream(
        self, request: web.Request, answer: AnswerId, asked: CompletionRequest, lives: list[Live], track: Track
    ) -> web.StreamResponse:
        frame = Frame(answer, "text_completion", asked.include_usage)
        choices = [Choice(live, CompletionChunks(frame, index), track) for index, live in enumerate(lives)]
        response = await send_stream(request, self._core.config, frame, _by_prompt(choices, asked.n))
        track.done(*(choice.reports for choice in choices))
        return response

    async def _complete(
        self, answer: AnswerId, asked: CompletionRequest, lives: list[Live], track: Track
    ) -> web.Response:
        bytes_max = self._core.config.complete_bytes_max
        wholes = await all_of([read_whole(live, track, bytes_max) for live in lives])
        value = {
            "id": answer.id,
            "object": "text_completion",
            "created": answer.created_s,
            "model": answer.model,
            "choices": [
                {
                    "index": index,
                    "text": whole.text,
                    "logprobs": completion_logprobs(whole.logprobs) if asked.logprobs else None,
                    "finish_reason": whole.counts.finish_reason,
                }
                for index, whole in enumerate(wholes)
            ],
            "usage": usage_of(_by_prompt([whole.counts for whole in wholes], asked.n)),
            "system_fingerprint": None,
        }
        track.done(*(whole.reports for whole in wholes))
        return web.Response(body=msgspec.json.encode(value), content_type="application/json")


def _by_prompt(answers: list[T], n: int) -> list[list[T]]:
    return [answers[start : start + n] for start in range(0, len(answers), n)]
