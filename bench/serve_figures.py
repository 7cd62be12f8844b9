"""The figures of `bench/serve`, from records alone: percentiles, players, goals, one table. Pure.

TTFT   sent -> first text that is not empty          TTFP   sent -> first sound that is not empty
E2EL   sent -> end of the answer                     RTF    E2EL / seconds of sound received, by its samples
TPOT   (last text - first text) / (tokens - 1)       gaps   between pieces of text, or of sound, of one answer
player starts with the first sound: underruns, and how much later it should have started (the deficit)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

from serve_read import Record

from omnirt.player import Player

MS, NS = 1_000_000, 1_000_000_000
QUANTILES = (50, 90, 99)


def percentile(values: Sequence[float], percent: float) -> float:
    """Between the two nearest ranks, in proportion."""
    ordered = sorted(values)
    assert ordered, "no values, no percentile"
    place = (len(ordered) - 1) * percent / 100
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def played(record: Record) -> Player:
    player = Player(record.rate)
    for at_ns, samples in record.sound:
        player.feed(at_ns, samples)
    return player


# ------------------------------------------------------------ one request


def _ttft(record: Record) -> float | None:
    return (record.text_ns[0] - record.began_ns) / MS if record.text_ns else None


def _ttfp(record: Record) -> float | None:
    return (record.sound[0][0] - record.began_ns) / MS if record.sound else None


def _e2el(record: Record) -> float:
    return (record.ended_ns - record.began_ns) / MS


def _tpot(record: Record) -> float | None:
    tokens = record.completion_tokens or 0
    return (record.text_ns[-1] - record.text_ns[0]) / MS / (tokens - 1) if tokens > 1 and record.text_ns else None


def _rtf(record: Record) -> float | None:
    """Of what was spoken, else of what was heard."""
    seconds = record.received_s or (record.sent_s if not record.text_ns else 0.0)
    return (record.ended_ns - record.began_ns) / NS / seconds if seconds else None


def _deficit(record: Record) -> float | None:
    return 1e3 * played(record).deficit_s if record.sound else None


def _underruns(record: Record) -> float | None:
    return float(played(record).underruns) if record.sound else None


MEASURES: dict[str, Callable[[Record], float | None]] = {
    "ttft_ms": _ttft,
    "ttfp_ms": _ttfp,
    "e2el_ms": _e2el,
    "tpot_ms": _tpot,
    "rtf": _rtf,
    "deficit_ms": _deficit,
    "underruns": _underruns,
}
"""What a request has one value of; each may be a goal."""

TEXT, SOUND = ("ttft_ms", "tpot_ms"), ("ttfp_ms", "deficit_ms", "underruns")
MEASURED: dict[str, tuple[str, ...]] = {
    "chat-text": ("e2el_ms", *TEXT),
    "chat-audio": ("e2el_ms", "rtf", *TEXT, *SOUND),
    "chat-spoken": ("e2el_ms", "rtf", *TEXT, *SOUND),
    "speech": ("e2el_ms", "rtf", *SOUND),
    "transcription": ("e2el_ms", "rtf"),
}
"""Which of them a workload has."""


def parse_goals(given: Iterable[str], workload: str) -> dict[str, float]:
    """`ttft_ms=200` and the like. Raises ValueError that names the valid ones."""
    goals: dict[str, float] = {}
    valid = [name for name in MEASURES if name in MEASURED[workload]]
    for text in given:
        name, _, limit = text.partition("=")
        if name not in valid:
            raise ValueError(f"there is no goal {name!r} for {workload}; there are: {', '.join(valid)}")
        try:
            goals[name] = float(limit)
        except ValueError:
            raise ValueError(f"the goal {text!r} needs a number, as in {name}=200") from None
    return goals


def is_good(record: Record, goals: dict[str, float]) -> bool:
    """A whole answer within every goal; what it does not have, it does not meet."""
    if record.code:
        return False
    values = ((MEASURES[name](record), limit) for name, limit in goals.items())
    return all(value is not None and value <= limit for value, limit in values)


# ------------------------------------------------------------ many requests


def gaps_ms(times: Iterable[int]) -> list[float]:
    return [(after - before) / MS for before, after in pairwise(times)]


def summary(records: Sequence[Record], goals: dict[str, float]) -> dict[str, Any]:
    """Every number of one level of load. Latencies are of whole answers only."""
    whole = [record for record in records if not record.code]
    began, ended = min(record.began_ns for record in records), max(record.ended_ns for record in records)
    seconds = max(1, ended - began) / NS
    columns: dict[str, list[float]] = {
        name: [value for record in whole if (value := measure(record)) is not None]
        for name, measure in MEASURES.items()
    }
    columns["text_gap_ms"] = [gap for record in whole for gap in gaps_ms(record.text_ns)]
    columns["sound_gap_ms"] = [gap for record in whole for gap in gaps_ms(at_ns for at_ns, _ in record.sound)]
    spread = {
        name: {f"p{percent}": percentile(values, percent) for percent in QUANTILES}
        | {"mean": sum(values) / len(values)}
        for name, values in columns.items()
        if values
    }
    streams = [record for record in whole if record.sound]
    tokens = [record.completion_tokens for record in whole if record.completion_tokens is not None]
    good = sum(is_good(record, goals) for record in records)
    return {
        "requests": len(records),
        "whole": len(whole),
        "errors": dict(Counter(record.code for record in records if record.code)),
        "seconds": seconds,
        "requests_per_s": len(whole) / seconds,
        "tokens": sum(tokens) if tokens else None,
        "tokens_per_s": sum(tokens) / seconds if tokens else None,
        "audio_s": sum(record.received_s for record in whole),
        "audio_s_per_s": sum(record.received_s for record in whole) / seconds,
        "dry_share": sum(played(record).underruns > 0 for record in streams) / len(streams) if streams else None,
        "worst_deficit_ms": max(columns["deficit_ms"], default=None),
        "good_share": good / len(records),
        "good_per_s": good / seconds,
        "spread": spread,
    }


ROWS = (
    ("TTFT ms", "ttft_ms", 1), ("TTFP ms", "ttfp_ms", 1), ("E2EL ms", "e2el_ms", 1), ("TPOT ms", "tpot_ms", 2),
    ("gap between texts ms", "text_gap_ms", 2), ("gap between sounds ms", "sound_gap_ms", 2), ("RTF", "rtf", 3),
    ("player: deficit ms", "deficit_ms", 1), ("player: underruns", "underruns", 1),
)  # fmt: skip
WIDTH = 30


def table(levels: dict[str, dict[str, Any]], goals: dict[str, float]) -> str:
    """One column group for each level of load."""
    names = "".join(f"  {name:^{WIDTH - 2}}" for name in levels)
    heads = "".join(f"{'p50':>10}{'p90':>10}{'p99':>10}" for _ in levels)
    lines = [f"{'':24}{names}", f"{'':24}{heads}"]
    for title, name, digits in ROWS:
        spreads = [level["spread"].get(name) for level in levels.values()]
        if any(spreads):
            lines.append(f"{title:24}" + "".join(_spread(spread, digits) for spread in spreads))
    singles: list[tuple[str, Callable[[dict[str, Any]], str]]] = [
        ("whole answers/s", lambda level: f"{level['requests_per_s']:.3f}"),
        ("tokens/s", lambda level: _number(level["tokens_per_s"], 1)),
        ("audio s/s", lambda level: f"{level['audio_s_per_s']:.2f}" if level["audio_s"] else "-"),
        ("streams that ran dry", lambda level: _percent(level["dry_share"])),
        ("worst deficit ms", lambda level: _number(level["worst_deficit_ms"], 1)),
        ("errors", lambda level: ", ".join(f"{count} x {code}" for code, count in level["errors"].items()) or "none"),
        ("client, of one core", lambda level: _percent(level.get("client_share"))),
    ]
    if goals:
        named = ", ".join(f"{name} <= {limit:g}" for name, limit in goals.items())
        singles.insert(
            1, ("good answers/s", lambda level: f"{level['good_per_s']:.3f} ({_percent(level['good_share'])})")
        )
        lines.insert(0, f"good: {named}")
    for title, cell in singles:
        cells = [cell(level) for level in levels.values()]
        if set(cells) != {"-"}:
            lines.append(f"{title:24}" + "".join(f"{text:>{WIDTH}}" for text in cells))
    return "\n".join(lines)


def _spread(spread: dict[str, float] | None, digits: int) -> str:
    if spread is None:
        return f"{'-':>10}" * len(QUANTILES)
    return "".join(f"{spread[f'p{percent}']:10.{digits}f}" for percent in QUANTILES)


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"
