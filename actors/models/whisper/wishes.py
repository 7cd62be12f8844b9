"""What a request may ask of the recogniser: its parameters, checked. Pure.

timestamps    "none", "segment" or "word"
language      a code ("en", "en-US"); left out, it is found out
prompt        text in whose manner and with whose words the recording goes on
temperature   0 to 1; 0 means the usual: certain first, then less so where that leaves doubt
task          "transcribe" or "translate" (to English)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omnirt.actors.models.whisper.model import Wish
from omnirt.errors import InvalidRequest

PARAMETERS = ("language", "prompt", "temperature", "timestamps")
TIMESTAMPS = ("none", "segment", "word")


def wish_of(params: Mapping[str, Any], usual: Wish, languages: tuple[str, ...]) -> Wish:
    """`usual`: of requests that ask for nothing. Raises InvalidRequest.

    Only what says `timestamps` is for the recogniser: other requests (a conversation) share these names with it, and
    mean a language model.
    """
    if "timestamps" not in params:
        return usual
    temperature = _temperature(params.get("temperature"))
    return usual._replace(
        language=_language(params.get("language"), languages) or usual.language,
        task=_task(params.get("task"), languages),
        prompt=_prompt(params.get("prompt")),
        words=_timestamps(params["timestamps"]) == "word",
        temperatures=(temperature,) if temperature else usual.temperatures,
    )


def _language(value: object, languages: tuple[str, ...]) -> str:
    if value is None or value == "":
        return ""
    code = value.strip().lower().replace("_", "-").partition("-")[0] if isinstance(value, str) else ""
    if code in languages:
        return code
    known = "English (en)" if languages == ("en",) else ", ".join(languages)
    raise InvalidRequest(f"language {value!r} is not heard here; this recogniser knows {known}", param="language")


def _task(value: object, languages: tuple[str, ...]) -> str:
    if value is None or value == "transcribe":
        return "transcribe"
    if value == "translate" and len(languages) > 1:
        return "translate"
    raise InvalidRequest(f"this recogniser cannot {value}", param="task")


def _prompt(value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InvalidRequest("prompt must be a string", param="prompt")
    return value


def _timestamps(value: object) -> str:
    if value not in TIMESTAMPS:
        raise InvalidRequest(f"timestamps must be one of: {', '.join(TIMESTAMPS)}", param="timestamps")
    return str(value)


def _temperature(value: object) -> float:
    if value is None:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= 1.0:
        raise InvalidRequest("temperature must be a number from 0 to 1", param="temperature")
    return float(value)
