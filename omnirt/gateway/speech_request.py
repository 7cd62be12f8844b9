"""A body of `/v1/audio/speech`, checked: pure, every refusal names its field.

Rules that apply to all fields: an explicit null means absent; fields nested in `extra_body` count, the top level wins;
unknown fields are ignored. What this pipeline cannot honour is refused where ignoring it would silently give other
speech than asked for (a reference voice, another speed), and ignored where it is a wish (`instructions`).

How the answer is delivered:

    stream_format  stream   delivery
    sse            any      sse
    audio          false    complete        whole body, Content-Length, exact WAV sizes
    audio          else     audio           chunked
    absent         true     sse
    absent         false    complete
    absent         absent   audio
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

from msgspec import Struct

from omnirt.gateway.config import AUDIO_FORMATS
from omnirt.gateway.errors import invalid
from omnirt.gateway.fields import (
    Fields,
    choice,
    flag,
    flat,
    name_of,
    plain,
    seed_of,
    speed_of,
    text,
    unsupported,
    whole,
)

Delivery = Literal["audio", "sse", "complete"]

CHANGES_THE_VOICE = (
    "ref_audio",
    "ref_audio_2",
    "ref_text",
    "references",
    "speaker_embedding",
    "x_vector_only_mode",
    "duration_seconds",
    "ambient_sound",
    "word_timestamps",
)
"""Refused unless a stage says it honours them."""
TASK_TYPES = ("CustomVoice", "VoiceDesign", "Base")
RATE_MIN, RATE_MAX = 8_000, 96_000
NEW_TOKENS_MAX = 1 << 20


class SpeechRules(Struct, frozen=True):
    """What the running pipeline allows. `honoured`: names of parameters its stages act on."""

    input_chars_max: int = 4096
    instructions_chars_max: int = 4096
    default_format: str = "mp3"
    honoured: frozenset[str] = frozenset()
    languages: tuple[str, ...] = ()


class SpeechRequest(Struct, frozen=True):
    text: str
    voice: str | None = None
    format: str = "mp3"
    speed: float = 1.0
    delivery: Delivery = "audio"
    sample_rate: int | None = None
    seed: int | None = None
    params: dict[str, Any] = {}
    """Further parameters for the stages, by name."""


def parse_speech(body: object, rules: SpeechRules) -> SpeechRequest:
    """The request in `body` (decoded JSON). Raises a 400."""
    fields = flat(body)
    return SpeechRequest(
        text=_input(fields, rules.input_chars_max),
        voice=_voice(fields),
        format=choice(fields, "response_format", AUDIO_FORMATS) or rules.default_format,
        speed=speed_of(fields, rules.honoured),
        delivery=_delivery(fields),
        sample_rate=whole(fields, "sample_rate", RATE_MIN, RATE_MAX),
        seed=seed_of(fields),
        params=_params(fields, rules),
    )


def _input(fields: Fields, chars_max: int) -> str:
    value = text(fields, "input", chars_max)
    if value is None:
        raise invalid("input is required: the text to speak.", "input", "missing_required_parameter")
    if not value.strip():
        raise invalid("input must not be blank.", "input")
    return value


def _voice(fields: Fields) -> str | None:
    name = "voice" if "voice" in fields else "speaker"
    return name_of(fields.get(name), name)


def _delivery(fields: Fields) -> Delivery:
    stream = flag(fields, "stream")
    stream_format = choice(fields, "stream_format", ("audio", "sse"))
    if stream_format == "sse" or (stream_format is None and stream):
        return "sse"
    return "complete" if stream is False else "audio"


def _params(fields: Fields, rules: SpeechRules) -> dict[str, Any]:
    params: dict[str, Any] = {}
    instructions = text(fields, "instructions", rules.instructions_chars_max)
    language = _language(fields, rules.languages)
    _task_type(fields, rules.honoured)
    known = {
        "instructions": instructions,
        "language": language,
        "max_new_tokens": whole(fields, "max_new_tokens", 1, NEW_TOKENS_MAX),
        "initial_codec_chunk_frames": whole(fields, "initial_codec_chunk_frames", 0, NEW_TOKENS_MAX),
    }
    params.update({name: value for name, value in known.items() if value is not None})
    for name in CHANGES_THE_VOICE:
        value = fields.get(name)
        if value is None or value is False:
            continue
        if name not in rules.honoured:
            raise unsupported(name)
        params[name] = value
    # What a stage adds to the protocol, such as `normalize`.
    return params | plain(fields, rules.honoured - {*params, *CHANGES_THE_VOICE, "speed", "seed", "voice"})


def _language(fields: Fields, known: tuple[str, ...]) -> str | None:
    value = text(fields, "language")
    if value is None or value.lower() == "auto":
        return None
    if known and value.lower() not in {name.lower() for name in known}:
        raise invalid(f"language must be Auto or one of: {', '.join(known)}.", "language")
    return value


def _task_type(fields: Fields, honoured: Collection[str]) -> None:
    value = choice(fields, "task_type", TASK_TYPES)
    if value in ("VoiceDesign", "Base") and "task_type" not in honoured:
        raise unsupported("task_type", f"This model does not support task_type {value}.")
