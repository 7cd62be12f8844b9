"""One run, one table: our ring beside its peers and the machine's ceilings, then every goal with its verdict.

    python bench/transport.py [--reps 3] [--scale 0.4] [--only omnirt,memcpy] [--vllm-source DIR]

A machine shared with other jobs spoils wake latencies (and can flatter a median: a busy CPU never sleeps). So every
job waits, bounded, for a quiet machine, notes the share of the CPUs that foreign processes took meanwhile, and medians
are over the quiet runs of interleaved repeats; a row without a quiet run is marked *. Exit status 1 when a goal is
missed.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from typing import NamedTuple

import transport_ceilings
import transport_peers
from transport_goals import Rows, goals
from transport_measure import KB, MB, measure

QUIET = 0.08
CEILINGS = ["memcpy", *(f"wake {kind}" for kind in transport_ceilings.WAKES), "batch", "down"]
COLUMNS = (
    ("RTT 64B", "rtt 64", 0), ("p99", "rtt 64", 1), ("1-way 64B", "one 64", 0), ("p99", "one 64", 1),
    ("4KB", f"one {4 * KB}", 0), ("64KB", f"one {64 * KB}", 0), ("1MB", f"one {MB}", 0), ("16MB", f"one {16 * MB}", 0),
    ("64B k/s", "rate 64", 0), ("1KB k/s", f"rate {KB}", 0), ("4KB GB/s", f"rate {4 * KB}", 1),
    ("64KB", f"rate {64 * KB}", 1), ("1MB", f"rate {MB}", 1), ("16MB", f"rate {16 * MB}", 1),
)  # fmt: skip


class Run(NamedTuple):
    foreign: float
    rows: dict[str, list[float]]


def jobs() -> list[str]:
    return CEILINGS + [f"{name}/{mode}" for name, peer in transport_peers.PEERS.items() for mode in peer.modes]


def busy_s() -> float:
    """CPU seconds the machine has spent working, all processes."""
    with open("/proc/stat") as file:
        user, nice, system, _, _, irq, soft, *_ = (int(field) for field in file.readline().split()[1:])
    return (user + nice + system + irq + soft) / os.sysconf("SC_CLK_TCK")


def own_s() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def wait_for_quiet(limit_s: float) -> None:
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        before, began = busy_s(), time.monotonic()
        time.sleep(0.5)
        if (busy_s() - before) / (time.monotonic() - began) / (os.cpu_count() or 1) < QUIET:
            return


def run_job(job: str, options: argparse.Namespace) -> Run | None:
    wait_for_quiet(options.gate)
    busy, own, began = busy_s(), own_s(), time.monotonic()
    command = [
        sys.executable,
        __file__,
        "--job",
        job,
        "--scale",
        str(options.scale),
        "--vllm-source",
        options.vllm_source,
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    except subprocess.TimeoutExpired:
        print(f"{job}: no answer in 90 s", file=sys.stderr)
        return None
    elapsed = time.monotonic() - began
    foreign = max(0.0, (busy_s() - busy) - (own_s() - own)) / elapsed / (os.cpu_count() or 1)
    if done.returncode or not done.stdout:
        print(f"{job}: failed\n{done.stderr[-600:]}", file=sys.stderr)
        return None
    print(f"{job:32} {elapsed:5.1f} s, foreign {foreign:4.0%}", file=sys.stderr, flush=True)
    return Run(foreign, json.loads(done.stdout.splitlines()[-1]))


def measure_job(job: str, options: argparse.Namespace) -> dict[str, list[float]]:
    if job in CEILINGS:
        return transport_ceilings.run(job, options.scale)
    name, mode = job.rsplit("/", 1)
    transport_peers.MessageQueue.source = options.vllm_source
    peer = transport_peers.PEERS[name]()
    try:
        return measure(peer, mode, options.scale)
    finally:
        transport_peers.sweep_names()


def medians(runs: list[Run]) -> tuple[dict[str, list[float]], str]:
    quiet = [run for run in runs if run.foreign <= QUIET]
    used = quiet or runs
    rows = {row: [statistics.median(column) for column in zip(*(run.rows[row] for run in used), strict=True)]
            for row in used[0].rows}  # fmt: skip
    return rows, f"{'' if quiet else '*'} {len(quiet)}/{len(runs)}"


def collect(options: argparse.Namespace) -> dict[str, list[Run]]:
    wanted = [job for job in jobs() if any(part in job for part in options.only.split(","))]
    skipped = {job: transport_peers.missing(job.rsplit("/", 1)[0], options.vllm_source) for job in wanted}
    for job in wanted:
        if skipped[job]:
            print(f"{job}: skipped, {skipped[job]}", file=sys.stderr)
    results: dict[str, list[Run]] = {}
    end = time.monotonic() + options.limit
    for repeat in range(options.reps + options.extra):
        for job in wanted:
            enough = sum(run.foreign <= QUIET for run in results.get(job, [])) >= options.reps
            if skipped[job] or time.monotonic() > end or (repeat >= options.reps and enough):
                continue
            if (run := run_job(job, options)) is not None:
                results.setdefault(job, []).append(run)
    return results


def show(results: dict[str, list[Run]]) -> int:
    table: Rows = {}
    notes: dict[str, str] = {}
    for job, runs in results.items():
        rows, notes[job] = medians(runs)
        table.update({(job, row): values for row, values in rows.items()})
    print("\n| ceiling | values | quiet runs |\n|---|---|---|")
    for (job, row), values in table.items():
        if job in CEILINGS:
            scaled = [values[0] / 1e6] if job == "batch" else values
            print(f"| {_title(row)} | {' / '.join(f'{value:.2f}' for value in scaled)} | {notes[job]} |")
    print(
        "\n| transport / consumer (us, k records/s, GB/s) |", *(f"{title} |" for title, _, _ in COLUMNS), "quiet runs |"
    )
    print("|---|" + "---|" * (len(COLUMNS) + 1))
    for job in results:
        if job not in CEILINGS:
            print(
                f"| {job} |", *(f"{_cell(table, job, row, column)} |" for _, row, column in COLUMNS), f"{notes[job]} |"
            )
    print("\n| goal | measured | ratio | bound | |\n|---|---|---|---|---|")
    missed = 0
    for goal in goals(table):
        missed += goal.verdict == "MISS"
        ratio = "-" if goal.measured is None else f"{goal.measured:.3g}"
        bound = f"{'>=' if goal.at_least else '<='} {goal.bound}"
        print(f"| {goal.what} | {goal.shown} | {ratio} | {bound} | {goal.verdict} |")
    return 1 if missed else 0


def _title(row: str) -> str:
    kind, _, rest = row.partition(" ")
    if kind == "memcpy":
        return f"memcpy {int(rest) // KB} KB, GB/s: same place / rotating 64 MB / fresh pages"
    if kind == "batch":
        return "omnirt, native batches of 64 B records: M/s"
    return "SIGKILL -> DOWN p50 / p99 us" if kind == "down" else f"wake {rest} p50 / p99 us"


def _cell(table: Rows, job: str, row: str, column: int) -> str:
    values = table.get((job, row))
    if values is None:
        return "-"
    value = values[column] / 1e3 if row.startswith("rate") and column == 0 else values[column]
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 1000 else f"{value:.0f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reps", type=int, default=3, help="quiet runs wanted of each job")
    parser.add_argument("--extra", type=int, default=3, help="further rounds for jobs that had too few quiet runs")
    parser.add_argument("--scale", type=float, default=0.4, help="share of the full number of messages")
    parser.add_argument("--only", default="", help="comma-separated parts of job names")
    parser.add_argument("--gate", type=float, default=6, help="seconds to wait for a quiet machine before each job")
    parser.add_argument("--limit", type=float, default=1500, help="seconds after which no further job starts")
    parser.add_argument("--vllm-source", default="", help="folder of an unpacked vllm wheel")
    parser.add_argument("--job", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        print(json.dumps(measure_job(options.job, options)), flush=True)
        os._exit(0)  # destructors of some peers hang
    return show(collect(options))


if __name__ == "__main__":
    sys.exit(main())
