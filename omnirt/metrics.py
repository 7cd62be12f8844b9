"""What the head counts about requests, and how `/metrics` is written. One per server, nothing global.

Counters and histograms are plain integers that move while requests run (`track`); what the pipeline, its stages, its
processes and their links say of themselves is asked when somebody looks. Every name is defined in metrics.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from omnirt.clock import monotonic_ns, unix_s
from omnirt.metrics_names import (
    ANSWERS,
    ASKED,
    REQUESTS,
    STAGE_COUNTED,
    STAGE_HISTOGRAMS,
    SURFACE_COUNTERS,
    SURFACE_HISTOGRAMS,
)
from omnirt.metrics_text import Family, text_of
from omnirt.trace import Timeline
from omnirt.track import Buckets, StageFigures, SurfaceFigures, Track

SURFACES = frozenset({"chat", "completion", "speech", "transcription"})

Gauges = Mapping[str, float]
"""Name -> value."""
Figure = tuple[str, dict[str, str], float]
"""Name, labels, value."""


class Metrics:
    def __init__(
        self, ended: Callable[[Timeline], None] = lambda timeline: None, now_ns: Callable[[], int] = monotonic_ns
    ) -> None:
        """`ended`: told about every request that was tracked to its end."""
        self._now_ns = now_ns
        self._on_ended = ended
        self._surfaces: dict[str, SurfaceFigures] = {}
        self._stages: dict[str, StageFigures] = {}
        self._answers: dict[tuple[str, str], int] = {}

    # ------------------------------------------------------------ counting

    def track(self, surface: str, request_id: str = "", arrived_ns: int = 0) -> Track:
        """Measure one request of a client: of `chat`, `completion`, `speech` or `transcription`.

        Its clock starts now, or at `arrived_ns`. A track that is dropped without an end counts nothing."""
        assert surface in SURFACES, surface
        figures = self._surfaces.get(surface)
        if figures is None:
            figures = self._surfaces[surface] = SurfaceFigures()
        timeline = Timeline(surface, request_id, arrived_ns or self._now_ns(), unix_s())
        return Track(figures, timeline, self._stage, self._on_ended, self._now_ns)

    def answered(self, route: str, status: int) -> None:
        """An answer was sent."""
        key = (route, str(status))
        self._answers[key] = self._answers.get(key, 0) + 1

    def _stage(self, name: str) -> StageFigures:
        figures = self._stages.get(name)
        if figures is None:
            figures = self._stages[name] = StageFigures()
        return figures

    # ------------------------------------------------------------ telling

    def expose(
        self,
        pipeline: Gauges,
        stages: Mapping[str, Gauges],
        processes: Mapping[str, Gauges],
        about: Mapping[str, str] | None = None,
    ) -> bytes:
        """The text of `/metrics`, with what the pipeline, its stages and its processes say of themselves now.

        A process names its figures `lag`, `<stage>.steps` or `link.<peer>.out_bytes`. `about`: what runs here.
        """
        figures: list[Figure] = [(f"omnirt_{name}", {}, value) for name, value in pipeline.items()]
        figures += [
            (f"omnirt_stage_{name}", {"stage": stage}, value)
            for stage, own in stages.items()
            for name, value in own.items()
        ]
        figures += [_figure(process, name, value) for process, own in processes.items() for name, value in own.items()]
        if about:
            figures.append(("omnirt_info", dict(about), 1.0))
        return text_of((*self._counted(), *_families(figures)))

    def _counted(self) -> Iterable[Family]:
        yield _counter(ANSWERS, (({"route": a, "status": b}, count) for (a, b), count in self._answers.items()))
        outcomes = ((surface, figures.outcomes.items()) for surface, figures in self._surfaces.items())
        yield _counter(
            REQUESTS,
            (({"surface": surface, "outcome": name}, count) for surface, own in outcomes for name, count in own),
        )
        for attribute, (name, phrase, unit) in SURFACE_COUNTERS.items():
            owners = self._surfaces.items()
            yield _counter(
                (name, phrase),
                (({"surface": surface}, getattr(figures, attribute) / unit) for surface, figures in owners),
            )
        yield from _histograms(SURFACE_HISTOGRAMS, "surface", self._surfaces)
        yield from _histograms(STAGE_HISTOGRAMS, "stage", self._stages)


def _counter(names: tuple[str, str], samples: Iterable[tuple[dict[str, str], float]]) -> Family:
    name, phrase = names
    family = Family(f"{name}_total", "counter", phrase, [])
    for labels, value in samples:
        family.add(labels, value)
    return family


def _histograms(names: Mapping[str, tuple[str, str]], label: str, owners: Mapping[str, object]) -> Iterable[Family]:
    for attribute, (name, phrase) in names.items():
        family = Family(name, "histogram", phrase, [])
        for owner, figures in owners.items():
            buckets: Buckets = getattr(figures, attribute)
            family.add_histogram({label: owner}, buckets.cumulative(), buckets.total / buckets.unit)
        yield family


def _figure(process: str, key: str, value: float) -> Figure:
    owner, _, name = key.rpartition(".")
    if not owner:
        return f"omnirt_process_{name}", {"process": process}, value
    if owner.startswith("link."):
        return f"omnirt_link_{name}", {"process": process, "peer": owner.removeprefix("link.")}, value
    return f"omnirt_stage_{name}", {"process": process, "stage": owner}, value


def _families(figures: Iterable[Figure]) -> Iterable[Family]:
    """One family per name, over all its owners."""
    families: dict[str, Family] = {}
    for raw, labels, value in figures:
        family = families.get(raw)
        if family is None:
            name = re.sub(r"[^a-zA-Z0-9_]", "_", raw)
            counts = name.endswith("_total") or name.rpartition("_stage_")[2] in STAGE_COUNTED
            name = name.removesuffix("_total")
            full, kind = (f"{name}_total", "counter") if counts else (name, "gauge")
            family = families[raw] = Family(full, kind, ASKED.get(name, name), [])
        family.add(labels, value)
    return families.values()
