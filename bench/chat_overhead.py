"""What the server costs a chat: text through HTTP beside the bare engine, in turn in one run.

The server runs the thinker of a pipeline alone (client -> thinker -> client), cut out of pipelines/voice.toml; the bare
engine (serve_bare.py) is the same stage's engine, stepped in a loop in a process of its own. Both get the same
questions, forced lengths and pauses, eight askers in a closed loop. The pauses (uniform, up to --think-ms) make
questions fall due at any moment of a step on both sides; without them a loop that adds its next prompt exactly between
two steps would never wait for one, which no caller of an engine can arrange.

    python bench/chat_overhead.py [--rounds 5] [--requests 32] [--tokens 48] [--askers 8] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import uvloop
from serve_ask import Ask
from serve_client import Client
from serve_figures import percentile
from serve_process import Server, server
from serve_read import Record
from serve_round import Question, Round, round_of

from omnirt.pipeline.deploy import load_plan
from omnirt.runtime.children import child_environment

ROOT = Path(__file__).resolve().parent.parent
GOAL = 0.03


def main() -> None:
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    parser.add_argument("--pipeline", default=str(ROOT / "pipelines" / "voice.toml"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=32, help="of a round")
    parser.add_argument("--tokens", type=int, default=48, help="of an answer, on average")
    parser.add_argument("--askers", type=int, default=8)
    parser.add_argument("--think-ms", type=float, default=200.0, help="longest pause between two questions")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        pipeline = Path(folder) / "thinker.toml"
        pipeline.write_text(text_only(tomllib.loads(Path(args.pipeline).read_text())))
        with server(str(pipeline)) as started, bare(pipeline) as ask_bare:
            rounds = measured(args, started, ask_bare)
    report(args, rounds)
    if args.json:
        Path(args.json).write_text(json.dumps({"settings": vars(args), "rounds": rounds}, indent=1) + "\n")


def measured(args: argparse.Namespace, started: Server, ask_bare: Any) -> list[dict[str, dict[str, Any]]]:
    """Of each round both sides' figures; who goes first changes."""
    rounds: list[dict[str, dict[str, Any]]] = []
    for number in range(args.rounds + 1):
        count = args.requests if number else args.askers  # the first warms up
        wanted = round_of(args.seed + number, count, args.askers, args.tokens, args.think_ms)
        sides = {
            "server": lambda wanted=wanted: uvloop.run(served(started, wanted)),
            "bare": lambda wanted=wanted: ask_bare(wanted),
        }
        order = list(sides) if number % 2 else list(reversed(sides))
        figures = {side: figures_of(sides[side]()) for side in order}
        # Forced lengths and the same template: if these differ, the two did not do the same work.
        assert figures["server"]["tokens"] == figures["bare"]["tokens"], figures
        assert figures["server"]["prompt_tokens"] == figures["bare"]["prompt_tokens"], figures
        if number:
            rounds.append(figures)
    return rounds


async def served(started: Server, wanted: Round) -> dict[str, Any]:
    client = Client(started.url)
    records: list[Record] = []
    questions = iter(wanted.questions)
    used = _used_s(started)
    began_ns = time.monotonic_ns()

    async def asker() -> None:
        for question in questions:
            due_ns = time.monotonic_ns() + question.think_ns
            await asyncio.sleep(question.think_ns / 1e9)
            records.append(await client.ask(ask_of(wanted, question), due_ns))

    await asyncio.gather(*(asker() for _ in range(wanted.askers)))
    seconds = (time.monotonic_ns() - began_ns) / 1e9
    client.close()
    failed = [record.code for record in records if record.code]
    if failed:
        raise SystemExit(f"{len(failed)} of {len(records)} requests failed: {failed[0]}")
    return {
        "ttft_ns": [record.text_ns[0] - record.began_ns for record in records if record.text_ns],
        "tokens": sum(record.completion_tokens or 0 for record in records),
        "prompt_tokens": sum(record.prompt_tokens or 0 for record in records),
        "seconds": seconds,
        "used_s": {name: after - used[name] for name, after in _used_s(started).items()},
    }


def _used_s(started: Server) -> dict[str, float]:
    return {**started.used_s(), "client": time.process_time()}


def ask_of(wanted: Round, question: Question) -> Ask:
    body = {
        "messages": [{"role": "user", "content": question.text}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": wanted.temperature,
        "repetition_penalty": wanted.repetition_penalty,
        "seed": question.seed,
        "max_tokens": question.tokens,
        "min_tokens": question.tokens,
        "ignore_eos": True,
    }
    return Ask("/v1/chat/completions", "application/json", json.dumps(body).encode(), "events")


@contextmanager
def bare(pipeline: Path) -> Iterator[Any]:
    """A function that has the engine's own process run a round. Its environment is that of the stage's node."""
    command = [sys.executable, str(Path(__file__).with_name("serve_bare.py")), str(pipeline)]
    environment = child_environment(load_plan(str(pipeline)).nodes[0], 0, os.environ)
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
    assert process.stdin is not None
    assert process.stdout is not None

    def ask(wanted: Round) -> dict[str, Any]:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(msgspec.json.encode(wanted) + b"\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    try:
        json.loads(process.stdout.readline())
        yield ask
    finally:
        process.stdin.close()
        process.wait(20)


def figures_of(side: dict[str, Any]) -> dict[str, Any]:
    return {
        "ttft_ms": percentile([value / 1e6 for value in side["ttft_ns"]], 50),
        "ttft_p90_ms": percentile([value / 1e6 for value in side["ttft_ns"]], 90),
        "tokens_per_s": side["tokens"] / side["seconds"],
        "tokens": side["tokens"],
        "prompt_tokens": side["prompt_tokens"],
        "used_ms": {name: 1e3 * used / side["tokens"] for name, used in side["used_s"].items()},
    }


def report(args: argparse.Namespace, rounds: list[dict[str, dict[str, Any]]]) -> None:
    def median(side: str, name: str) -> float:
        return statistics.median(figures[side][name] for figures in rounds)

    def ratio(name: str) -> float:
        return statistics.median(figures["server"][name] / figures["bare"][name] for figures in rounds)

    print(f"{args.askers} askers, {args.requests} answers of about {args.tokens} tokens a round, {args.rounds} rounds")
    print(f"{'':20}{'server':>10}{'bare':>10}{'ratio':>8}   medians over rounds")
    rows = (("TTFT p50 ms", "ttft_ms"), ("TTFT p90 ms", "ttft_p90_ms"), ("tokens/s", "tokens_per_s"))
    for title, name in rows:
        print(f"{title:20}{median('server', name):10.1f}{median('bare', name):10.1f}{ratio(name):8.3f}")

    def used(side: str) -> dict[str, float]:
        rounds_used = [figures[side]["used_ms"] for figures in rounds]
        return {name: statistics.median(each[name] for each in rounds_used) for name in rounds_used[0]}

    costs = used("server") | used("bare")
    more = sum(used("server").values()) / costs["engine"]
    named = ", ".join(f"{name} {cost:.3f}" for name, cost in costs.items())
    print(f"processor time in ms a token: {named}; all of the server's / the engine's {more:.3f}")
    is_met = ratio("ttft_ms") <= 1 + GOAL and ratio("tokens_per_s") >= 1 - GOAL
    print(f"goal: TTFT p50 and tokens/s within {100 * GOAL:.0f} %  {'met' if is_met else 'MISS'}")


def text_only(pipeline: dict[str, Any]) -> str:
    """The pipeline file of the thinker alone, with its own settings."""
    stage = next(stage for stage in pipeline["stage"] if stage["actor"].endswith(":Thinker"))
    node = stage.get("node", stage["name"])
    lines = ['name = "thinker"', 'inputs = ["chat"]', 'outputs = ["text"]']
    lines += _table("[limits]", pipeline.get("limits", {})) + _table("[[stage]]", stage)
    lines += _table(f"[node.{node}]", pipeline.get("node", {}).get(node, {}))
    return "\n".join(lines) + "\n"


def _table(head: str, values: dict[str, Any]) -> list[str]:
    """What JSON writes of texts, numbers and lists of them is TOML too."""
    lines = ["", head]
    lines += [f"{name} = {json.dumps(value)}" for name, value in values.items() if not isinstance(value, dict)]
    for name, value in values.items():
        if isinstance(value, dict):
            lines += _table(f"[{head.strip('[]')}.{name}]", value)
    return lines


if __name__ == "__main__":
    main()
