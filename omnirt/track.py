"""What one request at the gateway was like for its client, measured while it runs: the words are those of metrics.md.

    track = metrics.track("chat", request_id)     clock starts
    with track:                                   what is raised in here ends it, under its own code
        track.text(), track.audio(samples, rate)  as outputs are read
        track.done(reports)                       or track.ended(outcome): the first of them counts, and only it

Invariant: one thread, the gateway's loop. So counts are plain integers in lists; a token costs less than a microsecond.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate
from typing import Any, Self

from omnirt.clock import NS, monotonic_ns
from omnirt.errors import OmnirtError
from omnirt.player import Player
from omnirt.trace import Timeline

OK = "ok"
CLIENT_GONE = "client_gone"

LATENCY_S = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 7.5,
    10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0,
)  # fmt: skip
GAP_S = (
    0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0,
)  # fmt: skip
FACTORS = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.75, 0.9, 1.0, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0)

Reports = Mapping[str, Mapping[str, Any]]
"""Stage -> what it said of the request (`Done.reports`)."""


class Buckets:
    """A histogram. Values are in `unit`s per exposed unit: NS for nanoseconds shown as seconds."""

    __slots__ = ("counts", "edges", "names", "total", "unit")

    def __init__(self, edges: tuple[float, ...], unit: int = 1) -> None:
        self.names = tuple(f"{edge:g}" for edge in edges)
        self.edges = tuple(round(edge * unit) if unit > 1 else edge for edge in edges)
        self.unit = unit
        self.counts = [0] * (len(self.edges) + 1)
        self.total: float = 0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.edges, value)] += 1
        self.total += value

    def cumulative(self) -> Iterable[tuple[str, int]]:
        """Each edge in exposed units, and how many were at or below it; +Inf is the last."""
        return zip((*self.names, "+Inf"), accumulate(self.counts), strict=True)


class SurfaceFigures:
    """Everything counted about the requests of one surface."""

    def __init__(self) -> None:
        self.outcomes: dict[str, int] = {}
        self.queue = Buckets(LATENCY_S, NS)
        self.ttft = Buckets(LATENCY_S, NS)
        self.ttfp = Buckets(LATENCY_S, NS)
        self.text_gaps = Buckets(GAP_S, NS)
        self.audio_gaps = Buckets(GAP_S, NS)
        self.e2e = Buckets(LATENCY_S, NS)
        self.rtf = Buckets(FACTORS)
        self.tokens = 0
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.audio_s = 0.0
        self.heard_s = 0.0
        self.underruns = 0
        self.dry_ns = 0


class StageFigures:
    """What one stage said of the requests that ended well."""

    def __init__(self) -> None:
        self.wait = Buckets(LATENCY_S, NS)
        self.first_output = Buckets(LATENCY_S, NS)
        self.busy = Buckets(LATENCY_S, NS)
        self.whole = Buckets(LATENCY_S, NS)

    def add(self, report: Mapping[str, Any]) -> None:
        opened_ns, ended_ns = report.get("opened_ns", 0), report.get("ended_ns", 0)
        if not opened_ns or not ended_ns:
            return  # not of a cell: a scripted service has no times
        self.whole.add(ended_ns - opened_ns)
        self.busy.add(report.get("busy_ns", 0))
        if first_step_ns := report.get("first_step_ns", 0):
            self.wait.add(first_step_ns - opened_ns)
        if first_out_ns := report.get("first_out_ns", 0):
            self.first_output.add(first_out_ns - opened_ns)


class Track:
    """One request. Its clock starts when it is made, or at `arrived_ns`."""

    __slots__ = ("_audio_ns", "_ended", "_figures", "_now_ns", "_player", "_stages", "_text_ns", "timeline")

    def __init__(
        self,
        figures: SurfaceFigures,
        timeline: Timeline,
        stages: Callable[[str], StageFigures],
        ended: Callable[[Timeline], None],
        now_ns: Callable[[], int] = monotonic_ns,
    ) -> None:
        self.timeline = timeline
        self._figures = figures
        self._stages = stages
        self._ended = ended
        self._now_ns = now_ns
        self._text_ns = 0
        self._audio_ns = 0
        self._player: Player | None = None

    def text(self, tokens: int = 1) -> None:
        """A text output of the pipeline was read, of `tokens` tokens."""
        now_ns = self._now_ns()
        figures, timeline = self._figures, self.timeline
        if self._text_ns:
            figures.text_gaps.add(now_ns - self._text_ns)
        else:
            timeline.first_text_ns = now_ns
            figures.ttft.add(now_ns - timeline.arrived_ns)
        self._text_ns = now_ns
        figures.tokens += tokens
        timeline.tokens += tokens

    def audio(self, samples: int, rate: int) -> None:
        """An audio output of the pipeline was read: `samples` at `rate` per second. An empty one is nothing."""
        if samples <= 0:
            return
        now_ns = self._now_ns()
        figures, timeline = self._figures, self.timeline
        player = self._player
        if player is None:
            player = self._player = Player(rate)
            timeline.first_audio_ns = now_ns
            figures.ttfp.add(now_ns - timeline.arrived_ns)
        else:
            figures.audio_gaps.add(now_ns - self._audio_ns)
        self._audio_ns = now_ns
        dry_ns = player.feed(now_ns, samples)
        if dry_ns:
            figures.underruns += 1
            figures.dry_ns += dry_ns
            timeline.dry_ns += dry_ns
        figures.audio_s += samples / rate
        timeline.audio_s += samples / rate

    def done(self, *reports: Reports) -> None:
        """It ended well. `reports`: of `Done`; of each, where one request of a client was several of the pipeline."""
        if not self._end(OK):
            return
        timeline = self.timeline
        timeline.reports = tuple({stage: dict(own) for stage, own in each.items()} for each in reports)
        opened_ns = 0
        for each in reports:
            for stage, own in each.items():
                self._stages(stage).add(own)
                opened_ns = min(opened_ns or own.get("opened_ns", 0), own.get("opened_ns", 0))
        if opened_ns:
            timeline.admitted_ns = opened_ns
            self._figures.queue.add(max(0, opened_ns - timeline.arrived_ns))
        self._count(reports)
        self._ended(timeline)

    def _count(self, reports: Iterable[Reports]) -> None:
        timeline, figures = self.timeline, self._figures
        counted = _sum(reports, "completion_tokens")
        figures.tokens += max(0, counted - timeline.tokens)
        timeline.tokens = max(timeline.tokens, counted)
        figures.prompt_tokens += _sum(reports, "prompt_tokens")
        figures.cached_tokens += _sum(reports, "cached_tokens")
        heard_s = _sum(reports, "audio_s")
        figures.heard_s += heard_s
        # Of a transcription the audio is what came in.
        length_s = heard_s if timeline.surface == "transcription" else timeline.audio_s
        e2e_ns = timeline.ended_ns - timeline.arrived_ns
        figures.e2e.add(e2e_ns)
        if length_s > 0:
            figures.rtf.add(e2e_ns / NS / length_s)

    def ended(self, outcome: str, detail: str = "") -> None:
        """It ended otherwise. `outcome`: an error code, or `client_gone`; `detail`: for the trace."""
        if self._end(outcome):
            self.timeline.detail = detail
            self._ended(self.timeline)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OmnirtError):
            self.ended(error.code, f"{error.stage}: {error.message}" if error.stage else error.message)
        elif isinstance(error, asyncio.CancelledError | ConnectionError):
            self.ended(CLIENT_GONE)
        elif isinstance(error, Exception):
            self.ended(OmnirtError.code)

    def _end(self, outcome: str) -> bool:
        timeline = self.timeline
        if timeline.outcome:
            return False
        timeline.outcome = outcome
        timeline.ended_ns = self._now_ns()
        outcomes = self._figures.outcomes
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        return True


def _sum(reports: Iterable[Reports], name: str) -> Any:
    """Stages write their reports themselves: what is no count is left out."""
    values = [own[name] for each in reports for own in each.values() if name in own]
    return sum(value for value in values if isinstance(value, int | float) and value > 0)
