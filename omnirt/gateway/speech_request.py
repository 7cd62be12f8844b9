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

from collections.abc import Callable
from functools import cache
from typing import Any, Literal

from msgspec import Struct

from omnirt.gateway.chat_sampling import NUMBERS, TOKENS_MAX
from omnirt.gateway.config import AUDIO_FORMATS
from omnirt.gateway.errors import invalid
from omnirt.gateway.facts import CLONE, TASK_TYPES, PipelineFacts
from omnirt.gateway.fields import (
    Fields,
    choice,
    flag,
    flat,
    name_of,
    number,
    plain,
    seed_of,
    share,
    speed_of,
    text,
    unsupported,
    whole,
)
from omnirt.gateway.speech_reference import CANNOT, Reference, reference_of

Delivery = Literal["audio", "sse", "complete"]

CHANGES_THE_VOICE = ("ref_audio_2", "speaker_embedding", "duration_seconds", "ambient_sound", "word_timestamps")
"""Refused unless a stage says it honours them."""
ELSEWHERE = frozenset(
    {*CHANGES_THE_VOICE, "speed", "seed", "voice", "ref_audio", "references", "ref_text", "x_vector_only_mode"}
    | {"task_type", "language", "instructions"}
)
"""Read by their own rules, so never passed on as they are."""
TOP_P = ("top_p", "subtalker_top_p")
TOP_K = ("top_k", "subtalker_top_k")
FLAGS = ("ignore_eos", "non_streaming_mode")
RECORDING = "ref_audio"
"""The field that stages name when a recording is at fault, wherever it came from."""
RATE_MIN, RATE_MAX = 8_000, 96_000
NEW_TOKENS_MAX = 1 << 20


class SpeechRules(Struct, frozen=True):
    """What the running pipeline allows."""

    input_chars_max: int = 4096
    instructions_chars_max: int = 4096
    default_format: str = "mp3"
    facts: PipelineFacts = PipelineFacts()


class SpeechRequest(Struct, frozen=True):
    """What was asked for, field by field; who speaks then is another question (see `speaker`).

    `voice`: a name. `reference`, `ref_text`, `x_vector_only`: a recording to speak like. `heard_of`: the field that
    brought the recording, once that is known."""

    text: str = ""
    voice: str | None = None
    format: str = "mp3"
    speed: float = 1.0
    delivery: Delivery = "audio"
    sample_rate: int | None = None
    seed: int | None = None
    params: dict[str, Any] = {}
    """Further parameters for the stages, by name."""
    task_type: str | None = None
    reference: Reference | None = None
    ref_text: str | None = None
    x_vector_only: bool | None = None
    heard_of: str = RECORDING


def parse_speech(body: object, rules: SpeechRules) -> SpeechRequest:
    """The request in `body` (decoded JSON). Raises a 400."""
    fields = flat(body)
    said = _input(fields, rules.input_chars_max)
    return parse_settings(fields, rules, said)


def parse_settings(fields: Fields, rules: SpeechRules, said: str = "") -> SpeechRequest:
    """`said`: the text, which is not looked for in `fields`."""
    facts = rules.facts
    reference, ref_text = reference_of(fields, facts.cloning)
    return SpeechRequest(
        text=said,
        voice=_voice(fields),
        format=choice(fields, "response_format", AUDIO_FORMATS) or rules.default_format,
        speed=speed_of(fields, facts.honoured),
        delivery=_delivery(fields),
        sample_rate=whole(fields, "sample_rate", RATE_MIN, RATE_MAX),
        seed=seed_of(fields),
        params=_params(fields, rules),
        task_type=_task_type(fields, facts),
        reference=reference,
        ref_text=ref_text,
        x_vector_only=_x_vector_only(fields, facts),
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
    honoured = rules.facts.honoured
    known = {
        "instructions": text(fields, "instructions", rules.instructions_chars_max),
        "language": _language(fields, rules.facts.languages),
        "max_new_tokens": whole(fields, "max_new_tokens", 1, NEW_TOKENS_MAX),
        "initial_codec_chunk_frames": whole(fields, "initial_codec_chunk_frames", 0, NEW_TOKENS_MAX),
    }
    params: dict[str, Any] = {name: value for name, value in known.items() if value is not None}
    # What only tunes how frames are chosen; other servers' clients send it everywhere, so it is ignored where no stage
    # acts on it.
    params |= {name: TUNING[name](fields, name) for name in fields if name in TUNING and name in honoured}
    for name in CHANGES_THE_VOICE:
        value = fields.get(name)
        if value is None or value is False:
            continue
        if name not in honoured:
            raise unsupported(name)
        params[name] = value
    # What a stage adds to the protocol, such as `normalize`.
    return params | plain(
        fields, [name for name in fields if name in honoured and name not in ELSEWHERE and name not in params]
    )


def _top_k(fields: Fields, name: str) -> int | None:
    value = whole(fields, name, -1, TOKENS_MAX)
    return 0 if value == -1 else value  # two ways to say "all"


def _within(low: float, high: float) -> Callable[[Fields, str], float | None]:
    return lambda fields, name: number(fields, name, low, high)


TUNING: dict[str, Callable[[Fields, str], Any]] = {
    **{name: _within(*bounds) for name, bounds in NUMBERS.items()},
    "subtalker_temperature": _within(*NUMBERS["temperature"]),
    **dict.fromkeys(TOP_P, share),
    **dict.fromkeys(TOP_K, _top_k),
    **dict.fromkeys(FLAGS, flag),
}


def _language(fields: Fields, known: tuple[str, ...]) -> str | None:
    """By name or code; the region behind a code (`en-GB`, `zh_CN`) is no matter here."""
    value = text(fields, "language")
    if value is None or value.lower() == "auto":
        return None
    if known and not _lowered(known) & {value.lower(), value.lower().replace("_", "-").partition("-")[0]}:
        names = ", ".join(name for name in known if name.lower() != "auto")
        raise invalid(f"language must be Auto or one of: {names}.", "language")
    return value


@cache
def _lowered(names: tuple[str, ...]) -> frozenset[str]:
    return frozenset(name.lower() for name in names)


def _task_type(fields: Fields, facts: PipelineFacts) -> str | None:
    value = choice(fields, "task_type", TASK_TYPES)
    if value is not None and value not in facts.task_types:
        able = ", ".join(facts.task_types)
        raise unsupported("task_type", f"This model does not support task_type {value}; it supports: {able}.")
    return value


def _x_vector_only(fields: Fields, facts: PipelineFacts) -> bool | None:
    value = flag(fields, "x_vector_only_mode")
    if value and CLONE not in facts.task_types:
        raise unsupported("x_vector_only_mode", CANNOT)
    if value and "x_vector_only_mode" not in facts.honoured:
        raise unsupported("x_vector_only_mode")
    return value
