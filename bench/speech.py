"""Time to the first sound of a 60-word text, beside the work the whole text takes.

The floor for the first sound is the work of its first clause in both stages; the goal is that it comes before 30 % of
the total work is done, through HTTP, with the stages in two processes. Total work: both stages run one after the other
in this process, nothing else around them (median). First byte of audio: POST to the first byte after the WAV header.

    python bench/speech.py [--rounds 9]
"""

from __future__ import annotations

import argparse
import http.client
import json
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from omnirt.actors.stages.acoustic import Acoustic
from omnirt.actors.stages.synthesis import Synthesis
from omnirt.ids import RequestId
from omnirt.runtime.stage import Chunk, Context, Emission, NoOptions, Request
from omnirt.wire.payload import Text

TEXT = (
    "The morning train was late again, so we waited on the platform and watched the rain. A woman with a red umbrella "
    "was reading a newspaper, and two children were counting the pigeons on the roof. When the train finally came, "
    "nobody hurried, because everyone knew that the whole day would be slow and quiet and a little bit sad anyway."
)
WAV_HEADER_BYTES = 44
RATE = 24_000


@contextmanager
def server() -> Iterator[int]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "omnirt.cli.main", "run", "speech", "--port", str(port), "--log", "error"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if "is ready" in line:
                break
        yield port
    finally:
        process.terminate()
        process.wait(20)


class Serial:
    """Both stages in this process, one after the other."""

    def __init__(self) -> None:
        self.ctx = Context("serial", "cpu", 0, 1, lambda _: None)
        self.acoustic, self.synthesis = Acoustic(NoOptions()), Synthesis(NoOptions())
        self.acoustic.start(self.ctx)
        self.synthesis.start(self.ctx)

    def work(self) -> tuple[float, float]:
        """Seconds to the first PCM, and in all."""
        start, first = time.perf_counter(), 0.0
        one, two = (Request(RequestId(1), "r", 1, {}, 0) for _ in range(2))
        self.acoustic.admit(self.ctx, Chunk(one, "text", Text(TEXT), 0))
        self.acoustic.close(self.ctx, one)
        end = False
        while not end:
            for emission in self.acoustic.step(self.ctx, [one]):
                end = emission.end
                heard: list[Emission] = []
                if emission.payload is not None:
                    heard = self.synthesis.step(self.ctx, [Chunk(two, "frames", emission.payload, 0)])
                if heard and not first:
                    first = time.perf_counter() - start
        self.synthesis.finish(self.ctx, two)
        return first, time.perf_counter() - start


def ask(port: int) -> tuple[float, float, float]:
    """Seconds to the first audio byte, to the end, and of audio."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    start, first, received = time.perf_counter(), 0.0, 0
    body = json.dumps({"input": TEXT, "response_format": "wav"})
    connection.request("POST", "/v1/audio/speech", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    while piece := answer.read1(1 << 16):
        received += len(piece)
        if not first and received > WAV_HEADER_BYTES:
            first = time.perf_counter() - start
    took = time.perf_counter() - start
    connection.close()
    return first, took, (received - WAV_HEADER_BYTES) / 2 / RATE


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    serial = Serial()
    serial.work()
    with server() as port:
        ask(port)
        served, worked = [], []
        for _ in range(rounds):  # in turn, so that a noisy moment meets both
            served.append(ask(port))
            worked.append(serial.work())
    first, took, audio = (statistics.median(column) for column in zip(*served, strict=True))
    floor, work = (statistics.median(column) for column in zip(*worked, strict=True))
    print(f"{len(TEXT.split())} words, {audio:.1f} s of audio, {rounds} rounds, medians in ms")
    print(f"  work of both stages, one after the other   {1e3 * work:8.1f}   its first sound {1e3 * floor:8.1f}")
    print(f"  through HTTP, two processes: first byte     {1e3 * first:8.1f}   whole answer    {1e3 * took:8.1f}")
    verdict = "met" if first < 0.3 * work else "MISS"
    print(f"  first byte / total work                     {first / work:8.2f}   goal < 0.30  {verdict}")
    print(f"  first byte / first sound's own work         {first / floor:8.2f}   real-time factor {took / audio:.3f}")


if __name__ == "__main__":
    main()
