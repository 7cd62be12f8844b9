"""`omnirt run FILE`: serve a pipeline until it is told to stop.

The port is taken before anything is loaded, so a busy one is an error at once. SIGTERM or the first Ctrl-C drains, the
second one stops at once. Status: 0 after a drain, 1 when a stage is lost for good, 2 for a mistake in the call.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import socket
import sys
from typing import Any

import uvloop
from aiohttp import web

from omnirt.cli.options import add_address_arguments, add_pipeline_arguments, plan_from
from omnirt.clock import NS, monotonic_ns
from omnirt.gateway.app import build
from omnirt.gateway.config import GatewayConfig
from omnirt.gateway.serve import bind, serve
from omnirt.loader import resolve
from omnirt.log import set_up
from omnirt.wire.plan import Plan

CLOSE_S = 5.0
"""For connections that are still open when the head has finished."""
LAST_WORDS_S = 0.2
"""The same, when there is no time left."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_pipeline_arguments(parser)
    add_address_arguments(parser)
    parser.add_argument("--keys", default="", metavar="FILE", help="API keys, one a line; a file only you may read")
    parser.add_argument("--voices", default="", metavar="DIR", help="where uploaded voices are kept")
    parser.add_argument("--cors", action="append", default=None, metavar="ORIGIN", help="web origins that may call")
    parser.add_argument("--public-discovery", action="store_true", help="lists of models and voices need no key")
    parser.add_argument("--trace", default="", metavar="DIR", help="write a timeline of every request, for Perfetto")
    parser.add_argument("--log", default="info", choices=("debug", "info", "warning", "error"))


def run(args: argparse.Namespace) -> int:
    plan = plan_from(args)
    set_up(process="head", level=args.log)
    listener = bind(args.host, args.port)
    config = GatewayConfig(
        keys_file=args.keys,
        voices_dir=args.voices,
        public_discovery=args.public_discovery,
        trace_dir=args.trace,
        cors_origins=("*",) if args.cors is None else tuple(args.cors),
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(plan, config, listener))


async def _serve(plan: Plan, config: GatewayConfig, listener: socket.socket) -> int:
    loop = asyncio.get_running_loop()
    started_ns = monotonic_ns()
    head: Any = resolve("omnirt.actors.head:Head")(plan, loop)
    runner = None
    stopper = _Stopper(head)
    try:
        for number in (signal.SIGTERM, signal.SIGINT):  # before there is anything to leave behind
            loop.add_signal_handler(number, stopper)
        head.start()
        runner = await serve(build(head, config), listener, CLOSE_S)
        head.on_ready(lambda: _banner(plan, listener, (monotonic_ns() - started_ns) / NS))
        status: int = await head.finished
    finally:
        if runner is not None:
            await _close(runner, stopper.hurry)
        head.close()
    return status


async def _close(runner: web.AppRunner, hurry: asyncio.Event) -> None:
    """Let the connections end, or not when there is no time for it."""
    closing = asyncio.ensure_future(runner.cleanup())
    hurried = asyncio.ensure_future(hurry.wait())
    await asyncio.wait((closing, hurried), return_when=asyncio.FIRST_COMPLETED)
    hurried.cancel()
    await asyncio.wait((closing,), timeout=LAST_WORDS_S)


class _Stopper:
    """First signal: drain. Second: stop now."""

    def __init__(self, head: Any) -> None:
        self._head = head
        self._asked = False
        self.hurry = asyncio.Event()

    def __call__(self) -> None:
        if self._asked:
            self.hurry.set()
            self._head.stop_now()
            return
        self._asked = True
        print("draining; once more to stop at once", file=sys.stderr, flush=True)
        self._head.drain()


def _banner(plan: Plan, listener: socket.socket, seconds: float) -> None:
    host, port = listener.getsockname()[:2]
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    lines = [f"{plan.name} is ready after {seconds:.1f} s on {url}"]
    if "audio" in plan.outputs and "text" in plan.inputs:
        body = '{"input": "Hello. This voice was made on a plain processor.", "response_format": "wav"}'
        lines.append(f"  curl -s {url}/v1/audio/speech -H 'Content-Type: application/json' -d '{body}' -o hello.wav")
        lines.append(f'  omnirt say "Hello there." -o hello.wav --url {url}')
    print("\n".join(lines), file=sys.stderr, flush=True)
