"""`omnirt run FILE`: serve a pipeline until it is told to stop.

The port is taken before anything is loaded, so a busy one is an error at once. SIGTERM or the first Ctrl-C drains, the
second one stops at once. Status: 0 after a drain, 1 when a stage is lost for good, 2 for a mistake in the call. Why it
gave up is the last line it writes.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import math
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import uvloop
from aiohttp import web

from omnirt.cli.examples import what_to_try
from omnirt.cli.options import add_address_arguments, add_pipeline_arguments, plan_from
from omnirt.clock import NS, monotonic_ns
from omnirt.errors import ConfigError
from omnirt.gateway.app import build
from omnirt.gateway.config import GatewayConfig
from omnirt.gateway.serve import bind, serve
from omnirt.gateway.speech_pipeline import speech_facts
from omnirt.loader import resolve
from omnirt.log import set_up
from omnirt.session.service import Service, ServiceState
from omnirt.wire.plan import Plan

DEFAULTS = GatewayConfig()
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
    parser.add_argument(
        "--media",
        action="append",
        default=[],
        metavar="DIR",
        help="where file:// references of requests may point; repeatable",
    )
    parser.add_argument("--private-media", action="store_true", help="fetch media from private addresses too")
    parser.add_argument(
        "--recording-seconds",
        type=_length_s,
        default=DEFAULTS.recording_s_max,
        metavar="S",
        help="longest recording to be transcribed (default %(default)g)",
    )
    parser.add_argument("--uploads", default="", metavar="DIR", help="where large uploads are while they are used")
    parser.add_argument("--trace", default="", metavar="DIR", help="write a timeline of every request, for Perfetto")
    parser.add_argument("--log", default="info", choices=("debug", "info", "warning", "error"))


def run(args: argparse.Namespace) -> int:
    plan = plan_from(args)
    config = config_from(args)
    set_up(process="head", level=args.log)
    listener = bind(args.host, args.port)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(plan, config, listener))


def config_from(args: argparse.Namespace) -> GatewayConfig:
    """Raises ConfigError for a directory that is none."""
    for directory in (*args.media, *([args.uploads] if args.uploads else [])):
        if not Path(directory).is_dir():
            raise ConfigError(f"{directory} is not a directory")
    return GatewayConfig(
        keys_file=args.keys,
        voices_dir=args.voices,
        public_discovery=args.public_discovery,
        trace_dir=args.trace,
        cors_origins=DEFAULTS.cors_origins if args.cors is None else tuple(args.cors),
        media_roots=tuple(str(Path(directory).resolve()) for directory in args.media),
        allow_private_media=args.private_media,
        recording_s_max=args.recording_seconds,
        recordings_s_max=max(DEFAULTS.recordings_s_max, args.recording_seconds),
        uploads_dir=args.uploads,
    )


def _length_s(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds")
    return seconds


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
        head.on_ready(lambda: _on_ready(head, config, listener, (monotonic_ns() - started_ns) / NS))
        status: int = await head.finished
    finally:
        if runner is not None:
            await _close(runner, stopper.hurry)
        head.close()
    if head.reason:
        print(f"error: {head.reason}", file=sys.stderr, flush=True)
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
        self._head.drain()
        print(_draining(self._head.state(), self._head.plan.limits.drain_s), file=sys.stderr, flush=True)


def _draining(state: ServiceState, limit_s: float) -> str:
    if not state.running + state.waiting:
        return "draining: no request running; ctrl-c once more to stop at once"
    count = f"{state.running} request{'' if state.running == 1 else 's'} running"
    waiting = f", {state.waiting} waiting" if state.waiting else ""
    return f"draining: {count}{waiting}, {limit_s:g} s at most; ctrl-c once more to stop at once"


def _on_ready(service: Service, config: GatewayConfig, listener: socket.socket, seconds: float) -> None:
    # What was loaded stays: keep the collector from walking through it, which would hold up every stream.
    gc.collect()
    gc.freeze()
    _banner(service, config, listener, seconds)


def _banner(service: Service, config: GatewayConfig, listener: socket.socket, seconds: float) -> None:
    host, port = listener.getsockname()[:2]
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    plan = service.plan
    ready = f"{plan.name} is ready after {seconds:.1f} s on {url}"
    lines = what_to_try(plan, url, speech_facts(plan, service.facts()), config)
    print("\n".join([ready, *lines]), file=sys.stderr, flush=True)
