"""What the head counts about requests, and how `/metrics` is written. One registry per server, nothing global.

Counters and histograms move when a request ends; gauges of the pipeline and of its processes are read when somebody
asks. Real-time factor is the whole time of a request over the length of its audio, first packet included.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
NS = 1_000_000_000
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
FACTORS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 5.0)

COUNTED = frozenset({"steps", "chunks_in", "chunks_out", "stale", "failed", "dropped"})
"""Figures of a stage that only rise."""

Gauges = Mapping[str, float]
"""Name -> value."""
Figure = tuple[str, dict[str, str], float]
"""Name, labels, value."""


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        r = self.registry
        self.requests = Counter(
            "omnirt_http_requests", "Answers sent, by route and status.", ["route", "status"], registry=r
        )
        self.speech = Counter("omnirt_speech_requests", "Speech requests by outcome.", ["outcome"], registry=r)
        self.audio_s = Counter("omnirt_speech_audio_seconds", "Seconds of speech made.", registry=r)
        self.ttfp_s = Histogram(
            "omnirt_speech_ttfp_seconds", "Arrival to first audio byte.", buckets=SECONDS, registry=r
        )
        self.e2e_s = Histogram("omnirt_speech_e2e_seconds", "Arrival to last byte.", buckets=SECONDS, registry=r)
        self.rtf = Histogram("omnirt_speech_rtf", "e2e / audio duration.", buckets=FACTORS, registry=r)
        self._now = _Now()
        r.register(self._now)

    def speech_done(self, arrived_ns: int, first_ns: int, ended_ns: int, audio_s: float) -> None:
        """A speech request that ended well. `first_ns` is 0 when there was no audio."""
        e2e_s = (ended_ns - arrived_ns) / NS
        self.speech.labels("ok").inc()
        self.e2e_s.observe(e2e_s)
        if first_ns:
            self.ttfp_s.observe((first_ns - arrived_ns) / NS)
        if audio_s > 0:
            self.audio_s.inc(audio_s)
            self.rtf.observe(e2e_s / audio_s)

    def speech_ended(self, outcome: str) -> None:
        """A speech request that ended otherwise; `outcome` is an error code or `client_gone`."""
        self.speech.labels(outcome).inc()

    def expose(self, pipeline: Gauges, stages: Mapping[str, Gauges], processes: Mapping[str, Gauges]) -> bytes:
        """The text of `/metrics`, with what the pipeline, its stages and its processes say of themselves now.

        A process names its figures `steps`, `<stage>.steps` or `link.<peer>.bytes`.
        """
        figures: list[Figure] = [(f"omnirt_{name}", {}, value) for name, value in pipeline.items()]
        figures += [
            (f"omnirt_stage_{name}", {"stage": stage}, value)
            for stage, own in stages.items()
            for name, value in own.items()
        ]
        figures += [_figure(process, name, value) for process, own in processes.items() for name, value in own.items()]
        self._now.families = list(_families(figures))
        return generate_latest(self.registry)


class _Now(Collector):
    """Figures that exist only while a scrape is written."""

    def __init__(self) -> None:
        self.families: list[Metric] = []

    def collect(self) -> Iterable[Metric]:
        return self.families


def _figure(process: str, key: str, value: float) -> Figure:
    owner, _, name = key.rpartition(".")
    if not owner:
        return f"omnirt_process_{name}", {"process": process}, value
    if owner.startswith("link."):
        return f"omnirt_link_{name}", {"process": process, "peer": owner.removeprefix("link.")}, value
    return f"omnirt_stage_{name}", {"process": process, "stage": owner}, value


def _families(figures: Iterable[Figure]) -> Iterable[Metric]:
    """One family per name, over all its owners."""
    families: dict[str, Metric] = {}
    for raw, labels, value in figures:
        name = re.sub(r"[^a-zA-Z0-9_]", "_", raw)
        counts = name.endswith("_total") or name.rpartition("_stage_")[2] in COUNTED
        if name not in families:
            kind = CounterMetricFamily if counts else GaugeMetricFamily
            families[name] = kind(name, name, labels=list(labels))
        families[name].add_sample(name.removesuffix("_total") + "_total" if counts else name, labels, value)
    return families.values()
