"""Transcripts as subtitles: SubRip and WebVTT. Pure.

Invariants: no cue is empty or ends before it began; no line of a cue's text is blank or holds an arrow, which would end
the cue or begin another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from omnirt.wire.payload import Transcript

UNTIMED_S = 1.0
"""Of a last stretch that says no times."""


class Cue(Struct, frozen=True):
    start_ms: int
    end_ms: int
    text: str


def srt(segments: Sequence[Transcript], length_s: float) -> str:
    """`length_s`: of the recording."""
    return "\n".join(
        f"{number}\n{_time(cue.start_ms, ',')} --> {_time(cue.end_ms, ',')}\n{cue.text}\n"
        for number, cue in enumerate(cues_of(segments, length_s), start=1)
    )


def vtt(segments: Sequence[Transcript], length_s: float) -> str:
    cues = [
        f"\n{_time(cue.start_ms, '.')} --> {_time(cue.end_ms, '.')}\n{_escaped(cue.text)}\n"
        for cue in cues_of(segments, length_s)
    ]
    return "WEBVTT\n" + "".join(cues)


def cues_of(segments: Sequence[Transcript], length_s: float) -> Iterator[Cue]:
    """One for each stretch with text."""
    spoken = [segment for segment in segments if segment.text.strip()]
    for index, segment in enumerate(spoken):
        start_ms, end_ms = _ms(segment.start_s), _ms(segment.end_s)
        if end_ms <= start_ms:  # a recogniser without times: until the next one
            following = _ms(spoken[index + 1].start_s) if index + 1 < len(spoken) else _ms(length_s)
            end_ms = following if following > start_ms else start_ms + _ms(UNTIMED_S)
        yield Cue(start_ms, end_ms, " ".join(segment.text.split()).replace("-->", "->"))


def _ms(seconds: float) -> int:
    return max(0, round(seconds * 1000))


def _time(ms: int, point: str) -> str:
    seconds, ms = divmod(ms, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{seconds:02}{point}{ms:03}"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
