"""Worlds from the command line, through `scripts/sim`: many seeds, one seed, or the planted faults."""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from omnirt.clock import NS, monotonic_ns
from omnirt.testing.sim.planted import PLANTED, caught
from omnirt.testing.sim.world import run


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/sim", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    many = commands.add_parser("seeds", help="play many worlds")
    many.add_argument("count", type=int, nargs="?", default=1000)
    many.add_argument("--first", type=int, default=0)
    one = commands.add_parser("seed", help="play one world and say what was wrong")
    one.add_argument("seed", type=int)
    planted = commands.add_parser("planted", help="plant each fault and look for the first seed that shows it")
    planted.add_argument("names", nargs="*", help="parts of names; all when left out")
    planted.add_argument("--seeds", type=int, default=200)
    asked = parser.parse_args()
    if asked.command == "seeds":
        return _many(asked.first, asked.count)
    if asked.command == "seed":
        return _one(asked.seed)
    return _planted(
        [name for name in PLANTED if not asked.names or any(part in name for part in asked.names)], asked.seeds
    )


def _many(first: int, count: int) -> int:
    began_ns = monotonic_ns()
    totals: Counter[str] = Counter()
    bad = 0
    for seed in range(first, first + count):
        report = run(seed)
        totals.update(report.counts)
        if report.findings:
            bad += 1
            _say(f"seed {seed}: {report.findings[0]}")
    seconds = (monotonic_ns() - began_ns) / NS
    ends = ", ".join(
        f"{name.partition('.')[2]} {number}" for name, number in sorted(totals.items()) if "ended." in name
    )
    _say(f"{count} seeds in {seconds:.1f} s ({count / seconds:.1f}/s): {bad} with findings")
    _say(f"{totals['accepted']} requests ({ends}), {totals['records']} records, {totals['exits']} processes ended")
    return 1 if bad else 0


def _one(seed: int) -> int:
    report = run(seed)
    for finding in report.findings:
        _say(finding)
    size = f"{report.events} events, {report.virtual_s:.3f} s, trace {report.trace:08x}"
    _say(f"seed {seed}: {len(report.findings)} findings, {size}")
    _say(", ".join(f"{name} {number}" for name, number in sorted(report.counts.items())))
    return 1 if report.findings else 0


def _planted(names: list[str], seeds: int) -> int:
    missed = 0
    for name in names:
        found = caught(name, seeds)
        missed += found is None
        _say(f"{name:42} {f'seed {found[0]:3}  {found[1][:110]}' if found else f'not caught in {seeds} seeds'}")
    _say(f"{len(names) - missed} of {len(names)} caught")
    return 1 if missed else 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
