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

from collections.abc import Collection, Mapping
from typing import Any, Literal

from msgspec import Struct

from omnirt.gateway.body import as_object
from omnirt.gateway.config import AUDIO_FORMATS
from omnirt.gateway.errors import invalid

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
SPEED_MIN, SPEED_MAX = 0.25, 4.0
RATE_MIN, RATE_MAX = 8_000, 96_000
NEW_TOKENS_MAX = 1 << 20
INT64_MAX = (1 << 63) - 1


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
    given = as_object(body)
    if given is None:
        raise invalid("The body must be a JSON object.", None)
    fields = _flat(given)
    return SpeechRequest(
        text=_input(fields.get("input"), rules.input_chars_max),
        voice=_voice(fields),
        format=_choice(fields, "response_format", AUDIO_FORMATS) or rules.default_format,
        speed=_speed(fields, rules),
        delivery=_delivery(fields),
        sample_rate=_whole(fields, "sample_rate", RATE_MIN, RATE_MAX),
        seed=_whole(fields, "seed", -INT64_MAX - 1, INT64_MAX),
        params=_params(fields, rules),
    )


def _flat(body: Mapping[str, Any]) -> dict[str, Any]:
    nested = body.get("extra_body")
    if nested is not None and not isinstance(nested, dict):
        raise invalid("extra_body must be an object.", "extra_body")
    merged: dict[str, Any] = {**(nested or {}), **{key: value for key, value in body.items() if value is not None}}
    return {key: value for key, value in merged.items() if value is not None and key != "extra_body"}


def _input(value: object, chars_max: int) -> str:
    if value is None:
        raise invalid("input is required: the text to speak.", "input", "missing_required_parameter")
    if not isinstance(value, str):
        raise invalid("input must be a string.", "input")
    if not value.strip():
        raise invalid("input must not be blank.", "input")
    if len(value) > chars_max:
        raise invalid(f"input has {len(value)} characters; the limit is {chars_max}.", "input")
    return value


def _voice(fields: Mapping[str, Any]) -> str | None:
    name = "voice" if "voice" in fields else "speaker"
    value = fields.get(name)
    entry = as_object(value)
    if entry is not None:
        value = entry.get("id", "")
    if value is None:
        return None
    if not isinstance(value, str):
        raise invalid(f'{name} must be a string or {{"id": string}}.', name)
    if not value.strip():
        raise invalid(f"{name} must not be empty.", name)
    return value


def _speed(fields: Mapping[str, Any], rules: SpeechRules) -> float:
    value = fields.get("speed", 1.0)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise invalid("speed must be a number.", "speed")
    if not SPEED_MIN <= value <= SPEED_MAX:
        raise invalid(f"speed must be from {SPEED_MIN} to {SPEED_MAX}.", "speed")
    if value != 1.0 and "speed" not in rules.honoured:
        raise invalid("This model speaks at speed 1.0 only.", "speed", "unsupported_parameter")
    return float(value)


def _delivery(fields: Mapping[str, Any]) -> Delivery:
    stream = _flag(fields, "stream")
    stream_format = _choice(fields, "stream_format", ("audio", "sse"))
    if stream_format == "sse" or (stream_format is None and stream):
        return "sse"
    return "complete" if stream is False else "audio"


def _params(fields: Mapping[str, Any], rules: SpeechRules) -> dict[str, Any]:
    params: dict[str, Any] = {}
    instructions = _text(fields, "instructions", rules.instructions_chars_max)
    language = _language(fields, rules.languages)
    _task_type(fields, rules.honoured)
    known = {
        "instructions": instructions,
        "language": language,
        "max_new_tokens": _whole(fields, "max_new_tokens", 1, NEW_TOKENS_MAX),
        "initial_codec_chunk_frames": _whole(fields, "initial_codec_chunk_frames", 0, NEW_TOKENS_MAX),
    }
    params.update({name: value for name, value in known.items() if value is not None})
    for name in CHANGES_THE_VOICE:
        value = fields.get(name)
        if value is None or value is False:
            continue
        if name not in rules.honoured:
            raise invalid(f"This model does not support {name}.", name, "unsupported_parameter")
        params[name] = value
    for name in sorted(rules.honoured - {*params, *CHANGES_THE_VOICE, "speed", "seed", "voice"}):
        value = fields.get(name)  # what a stage adds to the protocol, such as `normalize`
        if isinstance(value, dict | list):
            raise invalid(f"{name} must be a plain value.", name)
        if value is not None:
            params[name] = value
    return params


def _language(fields: Mapping[str, Any], known: tuple[str, ...]) -> str | None:
    value = _text(fields, "language")
    if value is None or value.lower() == "auto":
        return None
    if known and value.lower() not in {name.lower() for name in known}:
        raise invalid(f"language must be Auto or one of: {', '.join(known)}.", "language")
    return value


def _task_type(fields: Mapping[str, Any], honoured: Collection[str]) -> None:
    value = _choice(fields, "task_type", TASK_TYPES)
    if value in ("VoiceDesign", "Base") and "task_type" not in honoured:
        raise invalid(f"This model does not support task_type {value}.", "task_type", "unsupported_parameter")


def _text(fields: Mapping[str, Any], name: str, chars_max: int = 1024) -> str | None:
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise invalid(f"{name} must be a string.", name)
    if len(value) > chars_max:
        raise invalid(f"{name} has {len(value)} characters; the limit is {chars_max}.", name)
    return value


def _choice(fields: Mapping[str, Any], name: str, choices: Collection[str]) -> str | None:
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or value not in choices:
        raise invalid(f"{name} must be one of: {', '.join(choices)}.", name)
    return value


def _flag(fields: Mapping[str, Any], name: str) -> bool | None:
    value = fields.get(name)
    if value is None or isinstance(value, bool):
        return value
    raise invalid(f"{name} must be true or false.", name)


def _whole(fields: Mapping[str, Any], name: str, low: int, high: int) -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise invalid(f"{name} must be a whole number.", name)
    if not low <= value <= high:
        raise invalid(f"{name} must be from {low} to {high}.", name)
    return value
