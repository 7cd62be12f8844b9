"""What a running server said of itself at one moment, and how much it grew since another. Pure.

Counters that fell began again (their process was started again): all they have now is growth.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Any

from msgspec import Struct
from prometheus_client.parser import text_string_to_metric_families

from omnirt.clock import NS

Labels = frozenset[tuple[str, str]]
Series = dict[str, dict[Labels, float]]
"""Name of a sample -> labels -> value."""


class Scrape(Struct, frozen=True):
    at_ns: int
    health: dict[str, Any]
    series: Series

    def value(self, name: str, **labels: str) -> float:
        """Summed over all series with these labels; 0 when there is none."""
        return sum(value for own, value in self.series.get(name, {}).items() if labels.items() <= own)

    def values_of(self, label: str, name: str) -> list[str]:
        """What `label` is in the series of this name, in order."""
        return list(dict.fromkeys(dict(own)[label] for own in self.series.get(name, {}) if label in dict(own)))


def parse(text: str) -> Series:
    """Raises ValueError for what is no metrics page."""
    series: Series = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            series.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
    return series


class History:
    """The scrapes of the last `keep_s` seconds, and the one before them."""

    def __init__(self, keep_s: float = 60.0) -> None:
        self._keep_ns = int(keep_s * NS)
        self._scrapes: deque[Scrape] = deque()

    def add(self, scrape: Scrape) -> None:
        self._scrapes.append(scrape)
        while len(self._scrapes) > 2 and self._scrapes[1].at_ns <= scrape.at_ns - self._keep_ns:
            self._scrapes.popleft()

    def clear(self) -> None:
        self._scrapes.clear()

    def before(self, seconds: float) -> Scrape | None:
        """The newest scrape that is at least `seconds` older than the last one, else the oldest there is."""
        if len(self._scrapes) < 2:
            return None
        limit_ns = self._scrapes[-1].at_ns - seconds * NS
        older = [scrape for scrape in self._scrapes if scrape.at_ns <= limit_ns]
        return older[-1] if older else self._scrapes[0]


def growth(now: Scrape, before: Scrape | None, name: str, **labels: str) -> float:
    """How much the counters of this name and these labels grew; without `before`, since their beginning."""
    return sum(_grown(now, before, name, labels).values())


def rate(now: Scrape, before: Scrape | None, name: str, **labels: str) -> float:
    """Growth per second; not a number when there is nothing to compare with."""
    if before is None or before.at_ns >= now.at_ns:
        return math.nan
    return growth(now, before, name, **labels) / ((now.at_ns - before.at_ns) / NS)


def quantile(now: Scrape, before: Scrape | None, name: str, share: float, **labels: str) -> float:
    """Of what a histogram took up since `before`; within a bucket as if spread evenly. NaN when it took up nothing,
    infinite beyond its last edge."""
    counts: dict[float, float] = {}
    for own, count in _grown(now, before, f"{name}_bucket", labels).items():
        edge = float(dict(own)["le"])
        counts[edge] = counts.get(edge, 0.0) + count
    total = counts.get(math.inf, 0.0)
    if total <= 0:
        return math.nan
    wanted, below, lower = share * total, 0.0, 0.0
    for edge in sorted(counts):
        if counts[edge] >= wanted:
            if edge == math.inf:
                return math.inf
            return lower + (edge - lower) * (wanted - below) / max(counts[edge] - below, 1e-9)
        below, lower = counts[edge], edge
    return math.inf


def _grown(now: Scrape, before: Scrape | None, name: str, labels: dict[str, str]) -> dict[Labels, float]:
    old = before.series.get(name, {}) if before else {}
    grown: dict[Labels, float] = {}
    for own, value in now.series.get(name, {}).items():
        if labels.items() <= own:
            was = old.get(own, 0.0)
            grown[own] = value - was if value >= was else value
    return grown
