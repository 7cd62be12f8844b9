"""The fields of a transcription, checked: pure, every refusal names its field.

They come as JSON or as the parts of a form, where every value is a string and a list is a repeated part called
`name[]`. Empty strings and nulls mean absent. What is a wish (`prompt`, `language`, `temperature`, `keywords`,
`chunking_strategy`, ...) is ignored by a pipeline that cannot honour it; what would give something else than asked for
(words with their times, who spoke) is refused.

With `stream` the answer is events, whatever `response_format` says: that is how clients read it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Literal, cast

from msgspec import Struct

from omnirt.gateway.body import as_object
from omnirt.gateway.errors import invalid
from omnirt.gateway.fields import Fields, flat, text, unsupported

Format = Literal["json", "text", "srt", "verbose_json", "vtt"]
Task = Literal["transcribe", "translate"]
FORMATS: tuple[Format, ...] = ("json", "text", "srt", "verbose_json", "vtt")
FIELDS = frozenset(
    {"model", "response_format", "stream", "language", "prompt", "temperature", "timestamp_granularities"}
)
"""Those that are read; all others are ignored."""
GRANULARITIES = ("word", "segment")
TIMED = ("srt", "verbose_json", "vtt")
TRUE, FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")
PROMPT_CHARS_MAX = 8192
LANGUAGE = re.compile(r"[A-Za-z]{2,24}([-_][A-Za-z0-9]{2,8})*")


class TranscriptionRules(Struct, frozen=True):
    """What the running pipeline allows. `honoured`: names of parameters that the stages which hear act on."""

    honoured: frozenset[str] = frozenset()


class TranscriptionRequest(Struct, frozen=True):
    format: Format = "json"
    stream: bool = False
    words: bool = False
    """The times of words are wanted."""
    language: str = ""
    task: Task = "transcribe"
    params: dict[str, Any] = {}
    """For the stages, by name."""


def parse_transcription(body: object, rules: TranscriptionRules, task: Task = "transcribe") -> TranscriptionRequest:
    """The request in `body`: decoded JSON, or a form's fields as `form_fields` gives them. Raises a 400."""
    fields = {name: value for name, value in flat(body).items() if value != ""}
    form = _format(fields)
    words = "word" in _granularities(fields)
    if words and "timestamps" not in rules.honoured:
        raise unsupported("timestamp_granularities", "This model does not tell when each word was said.")
    stream = _flag(fields, "stream")
    language = _language(fields)
    wishes = {
        "language": language or None,
        "prompt": text(fields, "prompt", PROMPT_CHARS_MAX),
        "temperature": _temperature(fields),
        "timestamps": "word" if words else "segment" if stream or form in TIMED else "none",
    }
    params = {name: value for name, value in wishes.items() if value is not None and name in rules.honoured}
    if task == "translate":
        params["task"] = task  # only where a stage says that it can
    return TranscriptionRequest(form, stream, words, language, task, params)


def form_fields(parts: Mapping[str, list[str]]) -> dict[str, Any]:
    """A form's parts as JSON would have them: `name[]` is a list, of others the last one counts."""
    fields: dict[str, Any] = {}
    for name, values in parts.items():
        fields[name.removesuffix("[]")] = values if name.endswith("[]") else values[-1]
    return fields


def recording_in(body: object) -> str:
    """The base64 of a JSON body's `input_audio`. Its `format` does not matter: the bytes tell. Raises a 400."""
    given = flat(body).get("input_audio")
    if given is None:
        raise invalid("input_audio is required: the recording.", "input_audio", "missing_required_parameter")
    entry = as_object(given)
    if entry is None:
        raise invalid('input_audio must be an object: {"data": base64, "format": string}.', "input_audio")
    data = entry.get("data")
    if data is None:
        text = "input_audio.data is required: the recording in base64."
        raise invalid(text, "input_audio.data", "missing_required_parameter")
    if not isinstance(data, str):
        raise invalid("input_audio.data must be a string.", "input_audio.data")
    return data


def _format(fields: Fields) -> Format:
    value = fields.get("response_format", "json")
    if value == "diarized_json":
        raise unsupported("response_format", "This model does not tell who spoke: diarized_json is not supported.")
    if not isinstance(value, str) or value not in FORMATS:
        raise invalid(f"response_format must be one of: {', '.join(FORMATS)}.", "response_format")
    return value


def _granularities(fields: Fields) -> list[str]:
    name = "timestamp_granularities"
    value = fields.get(name)
    if value is None:
        return []
    given = cast("list[object]", value) if isinstance(value, list) else [value]
    for entry in given:
        if entry not in GRANULARITIES:
            raise invalid(f"{name} must hold only: {', '.join(GRANULARITIES)}.", name)
    return [str(entry) for entry in given]


def _language(fields: Fields) -> str:
    value = text(fields, "language", 64)
    if value is None or value.strip().lower() in ("", "auto"):
        return ""
    if not LANGUAGE.fullmatch(value.strip()):
        raise invalid("language must be a code such as en.", "language")
    return value.strip()


def _temperature(fields: Fields) -> float | None:
    value = fields.get("temperature")
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            value = math.nan
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 <= value <= 1.0:
        raise invalid("temperature must be a number from 0 to 1.", "temperature")
    return float(value)


def _flag(fields: Fields, name: str) -> bool:
    value = fields.get(name, False)
    if isinstance(value, str) and value.strip().lower() in (*TRUE, *FALSE):
        return value.strip().lower() in TRUE
    if not isinstance(value, bool):
        raise invalid(f"{name} must be true or false.", name)
    return value
