"""The head under many streams: 64 tone requests over HTTP at once, and one listener that never reads among 16.

The pipeline is pipelines/tone.toml; client and server are separate processes of this machine. Reported: chunks (20 ms
of audio each) a second through the head, the server's loop lag while it does that (a /healthz asked every 10 ms over
its own connection, minus the quiet median), and what an unread listener costs the other 15.

    python bench/head.py [--seconds 60] [--rounds 3]
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import aiohttp

CHUNK_BYTES = 960


@contextmanager
def server(*sets: str) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "omnirt.cli.main", "run", "tone", "--port", str(port), "--log", "error"]
    for value in sets:
        command += ["--set", value]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if "is ready" in line:
                break
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


def body(hertz: int, seconds: float) -> dict[str, object]:
    return {"input": f"{hertz} Hz for {seconds} s", "response_format": "pcm"}


async def read_stream(http: aiohttp.ClientSession, url: str, hertz: int, seconds: float) -> int:
    async with http.post(f"{url}/v1/audio/speech", json=body(hertz, seconds)) as answer:
        assert answer.status == 200, await answer.text()
        return sum([len(part) async for part in answer.content.iter_any()])


async def lag(http: aiohttp.ClientSession, url: str, stop: asyncio.Event) -> list[float]:
    taken: list[float] = []
    while not stop.is_set():
        start = time.perf_counter()
        async with http.get(f"{url}/healthz") as answer:
            await answer.read()
        taken.append(1e3 * (time.perf_counter() - start))
        await asyncio.sleep(0.01)
    return taken


async def many(url: str, streams: int, seconds: float) -> tuple[float, float, float]:
    """Chunks a second, and the lag's p50 and p99 in ms above the quiet median."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as http, aiohttp.ClientSession() as probe:
        stop = asyncio.Event()
        quiet = asyncio.ensure_future(lag(probe, url, stop))
        await asyncio.sleep(1)
        stop.set()
        base = statistics.median(await quiet)
        stop = asyncio.Event()
        watching = asyncio.ensure_future(lag(probe, url, stop))
        start = time.perf_counter()
        read = await asyncio.gather(*(read_stream(http, url, 200 + 10 * n, seconds) for n in range(streams)))
        took = time.perf_counter() - start
        stop.set()
        lags = sorted(await watching)
        return sum(read) / CHUNK_BYTES / took, statistics.median(lags) - base, lags[int(len(lags) * 0.99)] - base


async def of_sixteen(url: str, unread: bool, seconds: float) -> float:
    """Chunks a second of each of 15 readers; the sixteenth client reads too, or has stopped reading."""
    host, port = url.removeprefix("http://").split(":")
    silent: list[asyncio.StreamWriter] = []
    if unread:
        link = socket.socket()
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # so that it stands still soon
        link.connect((host, int(port)))
        _, writer = await asyncio.open_connection(sock=link, limit=1024)
        text = '{"input": "440 Hz for 3600 s", "response_format": "pcm"}'
        writer.write(
            f"POST /v1/audio/speech HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(text)}\r\n\r\n{text}".encode()
        )
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        silent.append(writer)
        await asyncio.sleep(3)  # what the kernel holds for it is full by then
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        start = time.perf_counter()
        sixteenth = [] if unread else [asyncio.ensure_future(read_stream(http, url, 999, 2 * seconds))]
        read = await asyncio.gather(*(read_stream(http, url, 200 + 10 * n, seconds) for n in range(15)))
        took = time.perf_counter() - start
        await asyncio.gather(*sixteenth)
    for writer in silent:
        writer.transport.abort()
    return sum(read) / CHUNK_BYTES / took / 15


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=20.0, help="of audio per stream")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    print(f"{args.rounds} rounds; streams of {args.seconds} s of audio in 20 ms chunks")
    with server("limits.requests_max=80", "limits.deadline_s=600") as url:
        runs = [asyncio.run(many(url, 64, args.seconds)) for _ in range(args.rounds)]
        rate, p50, p99 = (statistics.median(column) for column in zip(*runs, strict=True))
        print(f"{'64 streams, as fast as they go':44}{rate:9.0f} chunks/s   lag p50 {p50:6.2f} ms   p99 {p99:6.2f} ms")
    with server("limits.requests_max=80", "limits.deadline_s=600", "stage.tone.options.step_ms=2") as url:
        ratios: list[float] = []
        for _ in range(args.rounds):
            reading = asyncio.run(of_sixteen(url, unread=False, seconds=args.seconds))
            unread = asyncio.run(of_sixteen(url, unread=True, seconds=args.seconds))
            ratios.append(unread / reading)
        loss = 100 * (1 - statistics.median(ratios))
        verdict = "met" if loss <= 2 else "MISS"
        print(f"{'one of 16 stops reading: the other 15':44}{loss:9.2f} % of their rate lost   goal <= 2 %  {verdict}")


if __name__ == "__main__":
    main()
