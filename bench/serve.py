"""A server under load: latency percentiles, what a player hears, throughput, errors and goodput, in one table.

    python bench/serve.py WORKLOAD [--url http://127.0.0.1:8091] [--concurrency 1,8 | --rate 2.5]
                          [--requests 40 | --seconds 60] [--tokens 32] [--slo ttft_ms=200] [--json FILE]

Workloads: chat-text; chat-audio (asked in text, answered in text and voice); chat-spoken (a recorded question);
speech; transcription. Any server of the OpenAI API will do; what each figure means is in serve_figures.py. A closed
loop keeps so many requests under way; an open one (--rate) sends them at Poisson times, whatever comes back, and counts
from when they were due. Questions, order and times are the same for the same --seed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

import msgspec
import uvloop
from serve_ask import WORKLOADS, Recording, Settings, asks, prompts
from serve_client import Client
from serve_figures import parse_goals, summary, table
from serve_load import Cost, Extent, closed, opened
from serve_read import Record

RECORDINGS = 16


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--url", default="http://127.0.0.1:8091")
    parser.add_argument("--key-file", help="file that holds the API key")
    parser.add_argument("--model", default="")
    parser.add_argument("--voice", default="")
    load = parser.add_mutually_exclusive_group()
    load.add_argument("--concurrency", type=_counts, default=[1, 8], help="closed loop, a level each (default 1,8)")
    load.add_argument("--rate", type=_positive, help="open loop: requests a second")
    extent = parser.add_mutually_exclusive_group()
    extent.add_argument("--requests", type=_count, default=40, help="of a level (default 40)")
    extent.add_argument("--seconds", type=_positive, default=0.0, help="of a level, instead")
    parser.add_argument("--warmup", type=int, default=2, help="requests of each asker before any is counted")
    parser.add_argument("--tokens", type=int, default=0, help="exactly so many of an answer (ignore_eos)")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--temperature", type=float)
    parser.add_argument("--timeout", type=_positive, default=120.0, help="seconds for one request")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--slo", action="append", default=[], metavar="NAME=LIMIT", help="a goal of each request")
    parser.add_argument("--json", metavar="FILE", help="every number and setting, and every request")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    args = parsed(arguments)
    try:
        goals = parse_goals(args.slo, args.workload)
        client = Client(args.url, args.timeout, _key(args.key_file))
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    settings = Settings(
        args.workload, args.seed, args.model, args.voice, args.tokens, args.max_tokens, args.temperature
    )
    try:
        runs = uvloop.run(measured(args, client, settings, recordings_for(args)))
    except ConnectionError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    levels = {name: summary(records, goals) | {"client_share": share} for name, (records, share) in runs.items()}
    print(headline(args))
    print(table(levels, goals))
    if args.json:
        Path(args.json).write_text(json.dumps(document(args, levels, runs), indent=1) + "\n")
    return 0 if all(level["whole"] for level in levels.values()) else 1


async def measured(
    args: argparse.Namespace, client: Client, settings: Settings, recordings: list[Recording]
) -> dict[str, tuple[list[Record], float]]:
    """Of each level its records, and the client's own share of a core. Raises ConnectionError when nothing works."""
    make = asks(settings, recordings)
    extent = Extent(args.requests, args.seconds)
    runs: dict[str, tuple[list[Record], float]] = {}
    for level in [0] if args.rate else args.concurrency:
        askers = level or 1
        warm = await closed(client, lambda number: make(-1 - number), askers, Extent(askers * args.warmup))
        if warm and all(record.code for record in warm):
            raise ConnectionError(f"no request to {args.url} is answered: {warm[0].code}")
        cost = Cost()
        if level:
            records = await closed(client, make, level, extent)
        else:
            records = await opened(client, make, args.rate, args.seed, extent)
        runs[f"{level} at a time" if level else f"{args.rate:g} requests/s"] = records, cost.share()
    client.close()
    return runs


def recordings_for(args: argparse.Namespace) -> list[Recording]:
    if args.workload not in ("chat-spoken", "transcription"):
        return []
    import serve_voice

    return serve_voice.spoken(prompts(args.seed)[:RECORDINGS])


def headline(args: argparse.Namespace) -> str:
    length = f"{args.tokens} tokens each" if args.tokens else f"at most {args.max_tokens} tokens"
    extent = f"{args.seconds:g} s" if args.seconds else f"{args.requests} requests"
    chat = f", {length}" if args.workload.startswith("chat") else ""
    return f"{args.workload} at {args.url}: {extent} a level{chat}, seed {args.seed}"


def document(
    args: argparse.Namespace, levels: dict[str, dict[str, Any]], runs: dict[str, tuple[list[Record], float]]
) -> dict[str, Any]:
    machine = {"python": platform.python_version(), "cpus": os.cpu_count(), "machine": platform.machine()}
    requests = {name: [msgspec.to_builtins(record) for record in records] for name, (records, _) in runs.items()}
    return {"settings": vars(args), "machine": machine, "levels": levels, "requests": requests}


def _key(path: str | None) -> str:
    if path is None:
        return ""
    from omnirt.cli import server

    try:
        return server.key(path)
    except server.ServerError as error:
        raise ValueError(str(error)) from error


def _counts(text: str) -> list[int]:
    return [_count(part) for part in text.split(",")]


def _count(text: str) -> int:
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return int(text)


def _positive(text: str) -> float:
    if not 0 < float(text) < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return float(text)


if __name__ == "__main__":
    sys.exit(main())
