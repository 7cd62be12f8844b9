"""One request as a timeline that anybody can open: trace events in JSON, for chrome://tracing or ui.perfetto.dev.

    gateway     [ waiting | request .................... ]     ! first text   ! first audio
    thinker        [ waiting | working ........ ]                ! first output
    acoustic           [ waiting ..... | working ... ]

Pure: a `Timeline` in, bytes out. Times are those of the machine's monotonic clock, which all processes share; in the
file they are microseconds since the request arrived.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

US = 1000
"""Nanoseconds of one."""
GATEWAY = 0
"""The track above those of the stages."""


class Timeline(Struct):
    """What is known of one request; times are 0 for what did not happen."""

    surface: str
    request: str
    """Its public id."""
    arrived_ns: int
    arrived_unix_s: int = 0
    admitted_ns: int = 0
    """When the first stage opened it: it had its slot."""
    first_text_ns: int = 0
    first_audio_ns: int = 0
    ended_ns: int = 0
    outcome: str = ""
    """`ok`, an error code, or `client_gone`."""
    detail: str = ""
    tokens: int = 0
    audio_s: float = 0.0
    dry_ns: int = 0
    reports: tuple[dict[str, dict[str, Any]], ...] = ()
    """Of the stages, when it ended well. Several where it was several requests of the pipeline."""


Event = dict[str, Any]

TIMES = frozenset({"opened_ns", "first_step_ns", "first_out_ns", "ended_ns"})
"""Drawn, not listed."""


def trace_json(timeline: Timeline) -> bytes:
    """The file."""
    about = {
        "request": timeline.request,
        "surface": timeline.surface,
        "outcome": timeline.outcome,
        "arrived_unix_s": timeline.arrived_unix_s,
    }
    events = list(trace_events(timeline))
    return msgspec.json.encode({"traceEvents": events, "displayTimeUnit": "ms", "otherData": about})


def trace_events(timeline: Timeline) -> Iterator[Event]:
    at = _Scale(timeline.arrived_ns)
    yield _named("process_name", GATEWAY, f"{timeline.surface} {timeline.request}")
    yield from _gateway(timeline, at)
    track = GATEWAY
    for number, reports in enumerate(timeline.reports, 1):
        several = f" #{number}" if len(timeline.reports) > 1 else ""
        for stage, report in sorted(reports.items(), key=lambda item: _began_ns(item[1])):
            if _ns(report, "opened_ns") and _ns(report, "ended_ns"):
                track += 1
                yield _named("thread_name", track, stage + several)
                yield {**_named("thread_sort_index", track, ""), "args": {"sort_index": track}}
                yield from _stage(report, track, at)


def _gateway(timeline: Timeline, at: _Scale) -> Iterator[Event]:
    yield _named("thread_name", GATEWAY, "gateway")
    about = {"outcome": timeline.outcome, "tokens": timeline.tokens, "audio_s": round(timeline.audio_s, 3)}
    if timeline.detail:
        about["detail"] = timeline.detail
    if timeline.dry_ns:
        about["player_dry_s"] = round(timeline.dry_ns / 1e9, 3)
    began_ns = timeline.admitted_ns or timeline.arrived_ns
    yield at.span("request", GATEWAY, timeline.arrived_ns, timeline.ended_ns, about)
    if began_ns > timeline.arrived_ns:
        yield at.span("waiting", GATEWAY, timeline.arrived_ns, began_ns)
    marks = {
        "arrived": timeline.arrived_ns,
        "admitted": timeline.admitted_ns,
        "first text": timeline.first_text_ns,
        "first audio": timeline.first_audio_ns,
        f"end: {timeline.outcome}": timeline.ended_ns,
    }
    for name, ns in marks.items():
        if ns:
            yield at.mark(name, GATEWAY, ns)


def _stage(report: Mapping[str, Any], track: int, at: _Scale) -> Iterator[Event]:
    opened_ns, ended_ns = _ns(report, "opened_ns"), _ns(report, "ended_ns")
    began_ns = _began_ns(report)
    yield at.span("waiting", track, opened_ns, began_ns)
    if began_ns < ended_ns:
        said = {name: value for name, value in report.items() if name not in TIMES}
        yield at.span("working", track, began_ns, ended_ns, said)
    if first_ns := _ns(report, "first_out_ns"):
        yield at.mark("first output", track, first_ns)


class _Scale:
    """From the machine's clock to the file's."""

    def __init__(self, zero_ns: int) -> None:
        self._zero_ns = zero_ns

    def span(self, name: str, track: int, from_ns: int, to_ns: int, about: Mapping[str, Any] | None = None) -> Event:
        event = _event("X", name, track, ts=self._us(from_ns), dur=max(0, to_ns - from_ns) / US)
        return {**event, "args": dict(about)} if about else event

    def mark(self, name: str, track: int, at_ns: int) -> Event:
        return _event("i", name, track, ts=self._us(at_ns), s="t")

    def _us(self, ns: int) -> float:
        return (ns - self._zero_ns) / US


def _named(kind: str, track: int, name: str) -> Event:
    return _event("M", kind, track, args={"name": name})


def _event(phase: str, name: str, track: int, **values: Any) -> Event:
    return {"ph": phase, "name": name, "pid": 1, "tid": track, **values}


def _began_ns(report: Mapping[str, Any]) -> int:
    """The first step; of a stage that had none, its end."""
    return _ns(report, "first_step_ns") or _ns(report, "ended_ns")


def _ns(report: Mapping[str, Any], name: str) -> int:
    value = report.get(name, 0)
    return value if isinstance(value, int) else 0
