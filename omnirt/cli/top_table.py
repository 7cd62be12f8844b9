"""The table of `omnirt top`, as lines of at most a given width. Pure.

pipeline     state, running, waiting, and what it gives a second
surface      requests a second, how many failed, how many clients left first (no failure), times to the first text, the
             first audio and the end, real-time factor
stage        state, replicas, restarts, requests and chunks at it, steps a second, how busy, chunks out a second, and
             how many came when their request was over
link         how full ring and slots are, fullest first
and what the short names mean, where there is room
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from omnirt.cli.top_scrape import Scrape, growth, quantile, rate
from omnirt.track import CLIENT_GONE, OK

WIDTH_MIN = 40
RATES_S = 10.0
"""Rates are over the last this long, times over as long as the history is."""
STAGES = "stage           state      ready restarts rows wait step/s  busy  out/s stale"
SURFACES = "surface        req/s failed left TTFT p50    p99  TTFP p50    p99 E2E p50   RTF"
LINKS = "link                             ring    unread        of   slots   used    of"
"""As wide as the columns below."""
LEGEND = "left: clients gone first; out/s: chunks sent; stale: chunks of ended requests"


def table(now: Scrape, recent: Scrape | None, old: Scrape | None, width: int = 80, height: int = 0) -> list[str]:
    """`recent`: to take rates from; `old`: to take times from, None for all since the server's start. `height`: lines
    there are, 0 for any number."""
    lines = [*_pipeline(now, recent), "", *_surfaces(now, recent, old), "", *_stages(now, recent)]
    links = list(_links(now))
    if links:
        lines += ["", LINKS]
        room = len(links) if not height else height - len(lines)
        lines += links if room >= len(links) else [*links[: max(0, room - 1)], f"... {len(links) - room + 1} more"]
    if not height or len(lines) + 2 <= height:
        lines += ["", LEGEND]
    lines = lines[:height] if height else lines
    return [cut(line, max(WIDTH_MIN, width)) for line in lines]


def cut(line: str, width: int) -> str:
    return line if len(line) <= width else line[: width - 1] + "~"


def _pipeline(now: Scrape, recent: Scrape | None) -> Iterator[str]:
    name = next(iter(now.values_of("pipeline", "omnirt_info")), "")
    state = str(now.health.get("status", "unknown"))
    slots = now.value("omnirt_request_slots")
    yield (
        f"{name}: {state}   running {now.value('omnirt_requests_running'):.0f} of {slots:.0f}"
        f"   waiting {now.value('omnirt_requests_waiting'):.0f}"
    )
    dry = growth(now, recent, "omnirt_request_player_underruns_total")
    yield (
        f"{_rate(now, recent, 'omnirt_requests_total')} req/s"
        f"   {_rate(now, recent, 'omnirt_request_tokens_total')} tokens/s"
        f"   {_rate(now, recent, 'omnirt_request_audio_seconds_total')} s of audio/s"
        f"   underruns {dry:.0f}"
    )
    if reason := now.health.get("reason"):
        yield f"! {reason}"


def _surfaces(now: Scrape, recent: Scrape | None, old: Scrape | None) -> Iterator[str]:
    yield SURFACES
    names = now.values_of("surface", "omnirt_request_e2e_seconds_count")
    for name in sorted(names):
        ended = growth(now, old, "omnirt_requests_total", surface=name)
        well, left = (
            growth(now, old, "omnirt_requests_total", surface=name, outcome=outcome) for outcome in (OK, CLIENT_GONE)
        )
        times = [
            seconds(quantile(now, old, f"omnirt_request_{what}_seconds", share, surface=name))
            for what, share in (("ttft", 0.5), ("ttft", 0.99), ("ttfp", 0.5), ("ttfp", 0.99), ("e2e", 0.5))
        ]
        factor = number(quantile(now, old, "omnirt_request_rtf", 0.5, surface=name))
        yield (
            f"{name:<13} {_rate(now, recent, 'omnirt_requests_total', surface=name):>6} {ended - well - left:>6.0f}"
            f" {left:>4.0f} {times[0]:>8} {times[1]:>6}  {times[2]:>8} {times[3]:>6} {times[4]:>7} {factor:>5}"
        )
    if not names:
        yield "no request yet"


def _stages(now: Scrape, recent: Scrape | None) -> Iterator[str]:
    yield STAGES
    stages: list[dict[str, Any]] = now.health.get("stages", [])
    for stage in stages:
        name = str(stage.get("name", ""))
        answering = len(_processes(now, name))
        busy = rate(now, recent, "omnirt_stage_busy_seconds_total", stage=name) / max(1, answering)
        rows, waiting = (now.value(f"omnirt_stage_{what}", stage=name) for what in ("rows", "waiting"))
        yield (
            f"{cut(name, 15):<15} {cut(str(stage.get('state')), 10):<10}"
            f" {stage.get('ready')!s:>3}/{stage.get('replicas')!s} {stage.get('restarts')!s:>8}"
            f" {_or_silent(rows, answering):>4} {_or_silent(waiting, answering):>4}"
            f" {_rate(now, recent, 'omnirt_stage_steps_total', stage=name):>6}"
            f" {'-' if math.isnan(busy) else f'{min(busy, 1.0):.0%}':>5}"
            f" {_rate(now, recent, 'omnirt_stage_chunks_out_total', stage=name):>6}"
            f" {count(now.value('omnirt_stage_stale_total', stage=name)):>5}"
        )


def _processes(now: Scrape, stage: str) -> set[str]:
    """Those that answered for the stage."""
    rows = (dict(labels) for labels in now.series.get("omnirt_stage_rows", {}))
    return {labels["process"] for labels in rows if labels.get("stage") == stage}


def _links(now: Scrape) -> Iterator[str]:
    rows: list[tuple[float, str]] = []
    for labels, used in now.series.get("omnirt_link_out_bytes", {}).items():
        ends = dict(labels)
        size = now.value("omnirt_link_out_bytes_max", **ends)
        slots, slots_max = (now.value(f"omnirt_link_out_slots{end}", **ends) for end in ("", "_max"))
        ring, slab = used / size if size else 0.0, slots / slots_max if slots_max else 0.0
        name = cut(f"{ends['process']} > {ends['peer']}", 31)
        line = f"{name:<31} {ring:>5.0%} {count(used):>9} {count(size):>9}   "
        line += f"{slab:>5.0%} {slots:>6.0f} {slots_max:>5.0f}" if slots_max else f"{'-':>5} {'-':>6} {'-':>5}"
        rows.append((max(ring, slab), line))
    rows.sort(key=lambda row: -row[0])
    yield from (line for _, line in rows)


def _rate(now: Scrape, recent: Scrape | None, name: str, **labels: str) -> str:
    return number(rate(now, recent, name, **labels))


def _or_silent(value: float, answering: int) -> str:
    """A process in a long step does not answer in time."""
    return count(value) if answering else "?"


def seconds(value: float) -> str:
    if math.isnan(value):
        return "-"
    if math.isinf(value):
        return "long"
    if value < 0.0995:
        return f"{value * 1000:.1f}ms" if value < 0.00995 else f"{value * 1000:.0f}ms"
    return f"{value:.2f}s" if value < 9.995 else f"{value:.0f}s"


def number(value: float) -> str:
    """Three digits or so."""
    if math.isnan(value):
        return "-"
    if math.isinf(value):
        return "much"
    if value >= 1000:
        return count(value)
    return f"{value:.0f}" if value >= 100 or value == 0 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def count(value: float) -> str:
    """Whole, or with a letter where it is long."""
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= limit:
            scaled = value / (1e3 if letter == "k" else limit)
            return f"{scaled:.1f}{letter}" if scaled < 100 else f"{scaled:.0f}{letter}"
    return f"{value:.0f}"
