"""The figures of `bench/tts` from streams alone, and its tables. Pure.

audio-s/s   seconds of audio of all whole answers over the time from the first request to the end of the last answer
TTFP        request sent (in an open loop: due) -> first samples
deficit     how much later than at its first packet a player would have had to start never to run dry
frame ms    what a frame takes as a client sees it: first to last packet over the frames between
wrong       whole answers that are not of the forced length
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any

from serve_figures import percentile
from tts_ask import FRAME_S
from tts_asker import Stream
from tts_load import Load

MS = 1e6
LENGTH_SLACK_S = 0.005
QUANTILES = (50, 95, 99)
DRY_SHARE_MAX = 0.005
"""Share of streams that may run dry, in the goals of an open loop."""
TTFP_MS_MAX = 80.0


def figures(load: Load, frames: int) -> dict[str, Any]:
    """Of one repetition of one level."""
    streams = load.streams
    whole = [stream for stream in streams if not stream.code]
    audio_s = sum(stream.samples / stream.rate for stream in whole)
    spread = {
        "ttfp_ms": [ttfp_ms(stream) for stream in whole],
        "total_ms": [(stream.ended_ns - stream.began_ns) / MS for stream in whole],
        "deficit_ms": [stream.deficit_ns / MS for stream in whole],
        "frame_ms": [value for stream in whole if (value := frame_ms(stream)) is not None],
        "packets": [float(stream.packets) for stream in whole],
    }
    return {
        "requests": len(streams),
        "whole": len(whole),
        "seconds": load.seconds,
        "audio_s_per_s": audio_s / load.seconds,
        "requests_per_s": len(whole) / load.seconds,
        "errors": len(streams) - len(whole),
        "codes": dict(Counter(stream.code for stream in streams if stream.code)),
        "wrong": sum(is_wrong(stream, frames) for stream in whole),
        "dry_share": sum(stream.underruns > 0 for stream in whole) / len(whole) if whole else 1.0,
        "worst_deficit_ms": max(spread["deficit_ms"], default=None),
        "client_share": sum(load.shares),
        "client_busiest": max(load.shares),
    } | {
        f"{name}_p{percent}": percentile(values, percent)
        for name, values in spread.items()
        if values
        for percent in QUANTILES
    }


def ttfp_ms(stream: Stream) -> float:
    return (stream.first_ns - stream.began_ns) / MS


def frame_ms(stream: Stream) -> float | None:
    frames = round((stream.samples - stream.first_samples) / stream.rate / FRAME_S)
    return (stream.last_ns - stream.first_ns) / MS / frames if frames else None


def is_wrong(stream: Stream, frames: int) -> bool:
    return abs(stream.samples / stream.rate - frames * FRAME_S) > LENGTH_SLACK_S


SUMMED = ("requests", "whole", "errors", "wrong")
WORST = ("worst_deficit_ms", "dry_share", "client_busiest", "gpu_mib")
"""Of these the largest of the repetitions; of what is summed the sum; of everything else the median."""


def merged(repetitions: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One level from its repetitions."""
    codes: Counter[str] = Counter()
    for repetition in repetitions:
        codes.update(repetition["codes"])
    level: dict[str, Any] = {"codes": dict(codes)}
    for name in dict.fromkeys(name for repetition in repetitions for name in repetition if name != "codes"):
        values = [repetition[name] for repetition in repetitions if repetition.get(name) is not None]
        combine = sum if name in SUMMED else max if name in WORST else statistics.median
        level[name] = combine(values) if values else None
    return level


def is_served(level: dict[str, Any]) -> bool:
    """Whether a level of an open loop is within the goal for the highest rate."""
    late = level.get("ttfp_ms_p95")
    return not level["errors"] and late is not None and late <= TTFP_MS_MAX and level["dry_share"] <= DRY_SHARE_MAX


# ------------------------------------------------------------------ tables

Column = tuple[str, str, str]
"""Title, name of the figure, format."""

CLOSED: tuple[Column, ...] = (
    ("", "name", "s"),
    ("requests", "requests", "d"),
    ("audio-s/s", "audio_s_per_s", ".1f"),
    ("floor", "floor_audio_s_per_s", ".0f"),
    ("of it", "floor_share", ".0%"),
    ("TTFP p50", "ttfp_ms_p50", ".1f"),
    ("p95", "ttfp_ms_p95", ".1f"),
    ("p99", "ttfp_ms_p99", ".1f"),
    ("frame ms", "frame_ms_p50", ".2f"),
    ("deficit", "worst_deficit_ms", ".1f"),
    ("dry", "dry_share", ".1%"),
    ("errors", "errors", "d"),
    ("wrong", "wrong", "d"),
    ("client", "client_busiest", ".0%"),
    ("head", "head_share", ".0%"),
    ("nodes", "nodes_share", ".0%"),
    ("GPU MiB", "gpu_mib", ".0f"),
)
OPEN: tuple[Column, ...] = tuple(column for column in CLOSED if column[1] not in ("floor_audio_s_per_s", "floor_share"))


def table(levels: Sequence[dict[str, Any]], columns: Sequence[Column]) -> str:
    """Columns that nothing has are left out."""
    shown = [column for column in columns if any(level.get(column[1]) is not None for level in levels)]
    rows = [[title for title, _, _ in shown], *([_cell(level, column) for column in shown] for level in levels)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(shown))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if not place else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


def _cell(level: dict[str, Any], column: Column) -> str:
    value = level.get(column[1])
    return "-" if value is None else format(value, column[2])
