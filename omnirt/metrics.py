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

Gauges = Mapping[str, float]
"""Name -> value."""


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
        """The text of `/metrics`, with the pipeline's state and each stage's and process's own figures as of now."""
        self._now.families = [
            *(_gauge(f"omnirt_{name}", value) for name, value in pipeline.items()),
            *_families("omnirt_stage_", "stage", stages),
            *_families("omnirt_process_", "process", processes),
        ]
        return generate_latest(self.registry)


class _Now(Collector):
    """Figures that exist only while a scrape is written."""

    def __init__(self) -> None:
        self.families: list[Metric] = []

    def collect(self) -> Iterable[Metric]:
        return self.families


def _gauge(name: str, value: float) -> Metric:
    family = GaugeMetricFamily(name, name)
    family.add_metric([], value)
    return family


def _families(prefix: str, label: str, owners: Mapping[str, Gauges]) -> Iterable[Metric]:
    """One family per figure, over all its owners; a name ending in `_total` is a counter."""
    families: dict[str, Metric] = {}
    for owner, figures in owners.items():
        for raw, value in figures.items():
            name = prefix + re.sub(r"[^a-zA-Z0-9_]", "_", raw)
            counts = name.endswith("_total")
            if name not in families:
                kind = CounterMetricFamily if counts else GaugeMetricFamily
                families[name] = kind(name, name, labels=[label])
            families[name].add_sample(name, {label: owner}, value)
    return families.values()
