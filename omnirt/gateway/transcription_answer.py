"""What a transcription is answered with: the five formats, the events of a stream, and usage. Pure."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from omnirt.gateway.chat_usage import Reports, reported
from omnirt.gateway.event_stream import event_bytes
from omnirt.gateway.subtitles import srt, vtt
from omnirt.gateway.transcription_request import TranscriptionRequest
from omnirt.gateway.transcription_text import Assembly
from omnirt.wire.payload import Transcript

SEEK_PER_SECOND = 100
"""Recognisers of Whisper's kind count positions in hundredths of a second."""
DIGITS = 3


class Transcription(Struct, frozen=True):
    """A finished one. `length_s`: of the recording."""

    asked: TranscriptionRequest
    heard: Assembly
    length_s: float
    reports: Reports = {}


def body_of(done: Transcription) -> tuple[bytes, str]:
    """The whole answer and its content type."""
    heard, length_s = done.heard, done.length_s
    match done.asked.format:
        case "json":
            return msgspec.json.encode({"text": heard.text(), "usage": usage_of(done)}), "application/json"
        case "verbose_json":
            return msgspec.json.encode(_verbose(done)), "application/json"
        case "text":
            return heard.text().encode(), "text/plain"
        case "srt":
            return srt(heard.segments, length_s).encode(), "text/plain"
        case "vtt":
            return vtt(heard.segments, length_s).encode(), "text/plain"


def delta_event(piece: str) -> bytes:
    return event_bytes({"type": "transcript.text.delta", "delta": piece})


def segment_event(index: int, segment: Transcript) -> bytes:
    """`speaker` is part of the event; nobody here tells speakers apart."""
    return event_bytes(
        {
            "type": "transcript.text.segment",
            "id": f"seg_{index}",
            "start": _rounded(segment.start_s),
            "end": _rounded(segment.end_s),
            "text": segment.text,
            "speaker": "",
        }
    )


def done_event(done: Transcription) -> bytes:
    fields: dict[str, Any] = {"type": "transcript.text.done", "text": done.heard.text(), "usage": usage_of(done)}
    if done.asked.format == "verbose_json":
        fields = {**_verbose(done), **fields}
    return event_bytes(fields)


def error_event(payload: object) -> bytes:
    return event_bytes({"type": "error", "error": payload})


def usage_of(done: Transcription) -> dict[str, Any]:
    """Tokens where a stage counted them, else the recording's length."""
    incoming, outgoing = reported(done.reports, "input_tokens"), reported(done.reports, "output_tokens")
    if incoming is None or outgoing is None:
        return _duration(done)
    return {
        "type": "tokens",
        "input_tokens": incoming,
        "output_tokens": outgoing,
        "total_tokens": incoming + outgoing,
        "input_token_details": {"audio_tokens": incoming, "text_tokens": 0},
    }


def _duration(done: Transcription) -> dict[str, Any]:
    return {"type": "duration", "seconds": _rounded(done.length_s)}


def _verbose(done: Transcription) -> dict[str, Any]:
    heard = done.heard
    fields: dict[str, Any] = {
        "task": done.asked.task,
        "language": heard.language or done.asked.language,
        "duration": _rounded(done.length_s),
        "text": heard.text(),
        "segments": [_segment(index, segment) for index, segment in enumerate(heard.segments)],
        "usage": _duration(done),
    }
    if done.asked.words:
        fields["words"] = [
            {"word": word.text.strip(), "start": _rounded(word.start_s), "end": _rounded(word.end_s)}
            for word in heard.words()
        ]
    return fields


def _segment(index: int, segment: Transcript) -> dict[str, Any]:
    return {
        "id": index,
        "seek": round(segment.start_s * SEEK_PER_SECOND),
        "start": _rounded(segment.start_s),
        "end": _rounded(segment.end_s),
        "text": segment.text,
        "tokens": list(segment.tokens),
        "temperature": segment.temperature,
        "avg_logprob": segment.avg_logprob,
        "compression_ratio": segment.compression_ratio,
        "no_speech_prob": segment.no_speech_prob,
    }


def _rounded(seconds: float) -> float:
    return round(seconds, DIGITS)
