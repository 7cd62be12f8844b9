"""What a request may ask of the talker beside how its codes are drawn (see `SamplingDefaults.changed` for that)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from omnirt.errors import InvalidRequest

HONOURED = (
    "temperature",
    "top_k",
    "top_p",
    "repetition_penalty",
    "subtalker_temperature",
    "subtalker_top_k",
    "subtalker_top_p",
    "max_new_tokens",
    "ignore_eos",
    "instructions",
    "language",
    "task_type",
    "non_streaming_mode",
    "initial_codec_chunk_frames",
)
CLONE_HONOURED = ("ref_audio", "ref_text", "x_vector_only_mode")
FRAMES_A_TOKEN = 12
"""A token of text is a third of a second of speech, mostly; where each takes a whole second, the model is in a loop."""
FRAMES_SPARE = 50


class TalkerWishes(msgspec.Struct, frozen=True):
    """What one request asks for; None where it leaves the default. `frames_max`: 0 when it sets no limit."""

    frames_max: int
    ignore_stop: bool
    first_chunk: int
    """Frames of the first chunk; 0 for the usual."""
    non_streaming: bool | None
    language: str | None
    voice: str | None
    instructions: str
    ref_text: str
    has_recording: bool


def wishes(params: Mapping[str, Any]) -> TalkerWishes:
    """Raises InvalidRequest naming the parameter."""
    given = {name: value for name, value in params.items() if value is not None}
    return TalkerWishes(
        frames_max=_count(given, "max_new_tokens", 1),
        ignore_stop=_flag(given, "ignore_eos") or False,
        first_chunk=_count(given, "initial_codec_chunk_frames", 0),
        non_streaming=_flag(given, "non_streaming_mode"),
        language=_text(given, "language") or None,
        voice=_text(given, "voice") or None,
        instructions=_text(given, "instructions"),
        ref_text=_text(given, "ref_text"),
        has_recording=_flag(given, "reference") or False,
    )


def frames_for(tokens: int, asked: int, most: int) -> int:
    """Frames that a text of so many tokens may take: what is asked for, or what such a text needs at the very most."""
    return min(asked or FRAMES_SPARE + FRAMES_A_TOKEN * tokens, most)


def _count(given: Mapping[str, Any], name: str, low: int) -> int:
    """0 when it is not given."""
    value = given.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < low):
        raise InvalidRequest(f"{name} must be a whole number, {low} or more", param=name)
    return value or 0


def _flag(given: Mapping[str, Any], name: str) -> bool | None:
    value = given.get(name)
    if value is not None and not isinstance(value, bool):
        raise InvalidRequest(f"{name} must be true or false", param=name)
    return value


def _text(given: Mapping[str, Any], name: str) -> str:
    value = given.get(name, "")
    if not isinstance(value, str):
        raise InvalidRequest(f"{name} must be a string", param=name)
    return value
