"""A body of `/v1/chat/completions`, checked: pure, every refusal names its field, unknown fields are ignored.

What this pipeline cannot honour is refused where ignoring it would silently give another answer than asked for (tools,
a response format, pictures), and ignored where it is a wish. An answer that is spoken is always text as well, because
its transcript is part of it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

from msgspec import Struct

from omnirt.gateway.chat_messages import Conversation, MessageRules, parse_messages
from omnirt.gateway.chat_sampling import (
    CHANGES_THE_ANSWER,
    SAMPLED,
    TOP_LOGPROBS_MAX,
    choices_of,
    sampling,
    wants_usage,
)
from omnirt.gateway.errors import invalid
from omnirt.gateway.fields import (
    Fields,
    choice,
    flag,
    flat,
    name_of,
    plain,
    record,
    seed_of,
    speed_of,
    text,
    unsupported,
    whole,
)

WHOLE_FORMATS = ("wav", "mp3", "flac", "opus", "aac", "pcm16")
STREAM_FORMATS = ("pcm16", "wav", "mp3", "opus", "aac")
"""Those that can be joined from pieces made one by one."""
REFUSED = (
    "tools",
    "functions",
    "web_search_options",
    "chat_template",
    "continue_final_message",
    "ref_audio",
    "ref_text",
)
OWN = frozenset({
    "voice", "seed", "n", "model", "messages", "modalities", "audio", "stream", "speed", "logprobs", "top_logprobs",
    "timestamps",
})  # fmt: skip
"""Names with a meaning of their own here, whatever a stage calls its parameters."""
TEXTS = ("language", "prompt", "instructions")
"""What stages take as text."""


class ChatRules(Struct, frozen=True):
    """What the running pipeline allows. `honoured`: names of parameters its stages act on. `speaks`: it makes audio."""

    messages: MessageRules = MessageRules()
    honoured: frozenset[str] = frozenset()
    speaks: bool = True


class Spoken(Struct, frozen=True):
    """How the answer is spoken. `voice`: None for the pipeline's own choice."""

    format: str
    voice: str | None = None


class ChatRequest(Struct, frozen=True):
    conversation: Conversation
    spoken: Spoken | None = None
    shows_text: bool = True
    """False where only audio was asked for: a stream then has the text as transcript alone."""
    stream: bool = False
    include_usage: bool = False
    n: int = 1
    seed: int | None = None
    logprobs: bool = False
    params: dict[str, Any] = {}
    """For the stages, by name."""


def parse_chat(body: object, rules: ChatRules) -> ChatRequest:
    """The request in `body` (decoded JSON). Raises a 400."""
    fields = flat(body)
    stream = bool(flag(fields, "stream"))
    modalities = _modalities(fields, rules)
    spoken = _spoken(fields, stream) if "audio" in modalities else None
    n = choices_of(fields)
    if n > 1 and spoken is not None:
        raise unsupported("n", "n must be 1 for a spoken answer.")
    conversation = parse_messages(fields.get("messages"), rules.messages)
    _refuse_what_is_not_here(fields, rules)
    logprobs = _logprobs(fields, rules)
    params = {**sampling(fields, rules.honoured), **logprobs, **_further(fields, rules, spoken is not None)}
    return ChatRequest(
        conversation=conversation,
        spoken=spoken,
        shows_text="text" in modalities,
        stream=stream,
        include_usage=wants_usage(fields),
        n=n,
        seed=seed_of(fields),
        logprobs=bool(logprobs),
        params=params,
    )


def _modalities(fields: Fields, rules: ChatRules) -> Collection[str]:
    value = fields.get("modalities")
    if value is None:
        return ("text",)
    names = cast("list[object]", value) if isinstance(value, list) else []
    if not names or not all(isinstance(name, str) for name in names):
        raise invalid("modalities must be a list of strings that is not empty.", "modalities")
    known = ("text", "audio") if rules.speaks else ("text",)
    for name in cast("list[str]", names):
        if name not in known:
            why = f"This model answers with {' and '.join(known)}, not with {name[:50]}."
            raise unsupported("modalities", why)
    return cast("list[str]", names)


def _spoken(fields: Fields, stream: bool) -> Spoken:
    audio: Fields = record(fields, "audio") or {}
    given = audio.get("format")
    known = STREAM_FORMATS if stream else WHOLE_FORMATS
    if given == "pcm":
        given = "pcm16"
    if stream and given == "flac":
        why = f"A stream cannot be flac; choose one of: {', '.join(known)}."
        raise unsupported("audio.format", why)
    chosen = choice({"format": given}, "format", known, "audio.") or ("pcm16" if stream else "wav")
    return Spoken(chosen, _voice(fields, audio))


def _voice(fields: Fields, audio: Fields) -> str | None:
    if audio.get("voice") is None:
        return name_of(fields.get("speaker"), "speaker")
    return name_of(audio["voice"], "audio.voice")


def _refuse_what_is_not_here(fields: Fields, rules: ChatRules) -> None:
    for name in REFUSED:
        dropped = (name == "tools" and fields.get("tool_choice") == "none") or (
            name == "functions" and fields.get("function_call") == "none"
        )
        if fields.get(name) and name not in rules.honoured and not dropped:
            raise unsupported(name)
    if fields.get("tool_choice") not in (None, "none", "auto"):
        raise unsupported("tool_choice", "This model does not support tools.")
    response_format = record(fields, "response_format")
    if response_format is not None and response_format.get("type") != "text":
        raise unsupported("response_format", 'This model answers with plain text: response_format must be "text".')


def _logprobs(fields: Fields, rules: ChatRules) -> dict[str, Any]:
    wanted = flag(fields, "logprobs")
    top = whole(fields, "top_logprobs", 0, TOP_LOGPROBS_MAX)
    if not wanted:
        if top:
            raise invalid("top_logprobs needs logprobs to be true.", "top_logprobs")
        return {}
    if "logprobs" not in rules.honoured:
        raise unsupported("logprobs")
    if top and "top_logprobs" not in rules.honoured:
        raise unsupported("top_logprobs")
    return {"logprobs": True, "top_logprobs": top or 0}


def _further(fields: Fields, rules: ChatRules, spoken: bool) -> dict[str, Any]:
    """What the stages add to the protocol, such as `normalize`."""
    speed = speed_of(fields, rules.honoured if spoken else ("speed",))
    for name in TEXTS:
        text(fields, name)
    tools = {name: fields[name] for name in REFUSED if name in rules.honoured and fields.get(name) is not None}
    further = plain(fields, rules.honoured - OWN - SAMPLED - {*CHANGES_THE_ANSWER, *REFUSED})
    return {**tools, **further, **({"speed": speed} if spoken else {})}
