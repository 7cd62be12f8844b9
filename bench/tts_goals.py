"""What a full-size 1.7B checkpoint on one H200 is to reach, and whether it did. Pure.

Each goal reads one figure from the document that `bench/tts` writes; what was not measured is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tts_figures import is_served

Document = dict[str, Any]


class Goal(NamedTuple):
    title: str
    limit: float
    is_least: bool
    """Whether more is better."""
    of: Callable[[Document], float | None]
    first_mark: float | None = None


def level(part: str, name: str, figure: str) -> Callable[[Document], float | None]:
    """A figure of the level called `name` of a part."""

    def read(document: Document) -> float | None:
        found = [row for row in document.get(part, {}).get("levels", ()) if row["name"] == name]
        return found[0].get(figure) if found else None

    return read


def worst_deficit_ms(document: Document) -> float | None:
    rows = [row for part in ("closed", "engine") for row in document.get(part, {}).get("levels", ())]
    return max((row["worst_deficit_ms"] for row in rows if row.get("worst_deficit_ms") is not None), default=None)


def http_share(document: Document) -> float | None:
    """Of what the engine alone gives at C=64."""
    ours = level("closed", "C=64", "audio_s_per_s")(document)
    engine = level("engine", "C=64", "audio_s_per_s")(document)
    return ours / engine if ours and engine else None


def highest_rate(document: Document) -> float | None:
    rows = document.get("open", {}).get("levels", ())
    return max((row["rate"] for row in rows if is_served(row)), default=0.0 if rows else None)


def memory_gb(document: Document) -> float | None:
    taken = document.get("server", {}).get("gpu_mib")
    return taken * 1.048576e-3 if taken is not None else None


CUSTOM = (
    Goal("audio-s/s at C=1", 40, True, level("closed", "C=1", "audio_s_per_s"), 28),
    Goal("audio-s/s at C=16", 350, True, level("closed", "C=16", "audio_s_per_s"), 250),
    Goal("audio-s/s at C=64", 1400, True, level("closed", "C=64", "audio_s_per_s"), 850),
    Goal("TTFP p50 at C=1, engine alone, ms", 8, False, level("engine", "C=1", "ttfp_ms_p50")),
    Goal("TTFP p50 at C=1, ms", 12, False, level("closed", "C=1", "ttfp_ms_p50")),
    Goal("TTFP p50 at C=64, ms", 30, False, level("closed", "C=64", "ttfp_ms_p50")),
    Goal("p95 first packet at 1 a second, ms", 12, False, level("open", "1 a second", "ttfp_ms_p95")),
    Goal("p95 first packet at 10 a second, ms", 15, False, level("open", "10 a second", "ttfp_ms_p95")),
    Goal("p95 first packet at 20 a second, ms", 25, False, level("open", "20 a second", "ttfp_ms_p95")),
    Goal("highest rate with p95 <= 80 ms and 0.5 % dry, a second", 100, True, highest_rate),
    Goal("through HTTP, of the engine alone, at C=64", 0.85, True, http_share),
)
ALL = (
    Goal("worst play-out deficit, ms", 0, False, worst_deficit_ms),
    Goal(
        "cost of one unread listener to the others",
        0.02,
        False,
        lambda document: document.get("unread", {}).get("cost"),
    ),
    Goal("start to ready, s", 25, False, lambda document: document.get("server", {}).get("ready_s")),
    Goal("GPU memory, GB", 16, False, memory_gb),
)
CLONE = (
    Goal("audio-s/s at C=64, cloned", 900, True, level("closed", "C=64", "audio_s_per_s")),
    Goal("TTFP p50 at C=64, cloned, ms", 60, False, level("closed", "C=64", "ttfp_ms_p50")),
    Goal("TTFP p50 at C=1, new recordings, ms", 60, False, level("cold", "C=1, new recordings", "ttfp_ms_p50")),
)


def verdicts(document: Document, *, is_clone: bool) -> list[str]:
    """A line for each goal that was measured."""
    lines: list[str] = []
    for goal in (*(CLONE if is_clone else CUSTOM), *ALL):
        value = goal.of(document)
        if value is None:
            continue
        is_met = value >= goal.limit if goal.is_least else value <= goal.limit
        mark = "met" if is_met else "MISS"
        if not is_met and goal.first_mark is not None and value >= goal.first_mark:
            mark = f"MISS (first mark of {goal.first_mark:g} met)"
        sign = ">=" if goal.is_least else "<="
        lines.append(f"{goal.title:58} {value:9.3g}   goal {sign} {goal.limit:<6g} {mark}")
    return lines
