"""`omnirt top`: how a running server does, as a table that is drawn again and again; q or Ctrl-C leaves.

Where the output is no terminal, or with `--once`, one table is printed (of two looks, `--interval` apart). A server
that goes away is waited for. The terminal is left as it was found.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import math
import os
import shutil
import signal
import sys
import termios
import tty
from collections.abc import Generator

import aiohttp
import msgspec

from omnirt.cli import server
from omnirt.cli.called import called
from omnirt.cli.top_scrape import History, Scrape, parse
from omnirt.cli.top_table import LEGEND, RATES_S, cut, table
from omnirt.clock import monotonic_ns

INTERVAL_S = 2.0
LOOK_S = 5.0
"""A server that does not answer within this is treated like one that is gone."""
ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
"""The second screen, without a cursor; and back."""
HOME, LINE_END, BELOW = "\x1b[H", "\x1b[K\r\n", "\x1b[J"
BOLD, PLAIN = "\x1b[1m", "\x1b[0m"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = LEGEND
    server.add_arguments(parser)
    parser.add_argument("--interval", type=_interval, default=INTERVAL_S, metavar="S", help="default: %(default)s")
    parser.add_argument("--once", action="store_true", help="print one table and leave")


def run(args: argparse.Namespace) -> int:
    try:
        asyncio.run(_once(args) if args.once or not sys.stdout.isatty() else _live(args))
    except server.ServerError as error:
        print(f"omnirt top: {error}", file=sys.stderr)
        return 1
    return 0


async def _once(args: argparse.Namespace) -> None:
    async with _session(args) as http:
        before = await look(http, args.url)
        await asyncio.sleep(args.interval)
        now = await look(http, args.url)
    print("\n".join(table(now, before, None)))


async def _live(args: argparse.Namespace) -> None:
    leave = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, leave.set)
    history = History()
    with _terminal(leave):
        async with _session(args) as http:
            while not leave.is_set():
                looking = asyncio.ensure_future(look(http, args.url))
                leaving = asyncio.ensure_future(leave.wait())
                await asyncio.wait((looking, leaving), return_when=asyncio.FIRST_COMPLETED)
                if looking.done():
                    _draw(args, history, looking)
                    await asyncio.wait((leaving,), timeout=args.interval)
                for task in (looking, leaving):
                    task.cancel()


def _draw(args: argparse.Namespace, history: History, looking: asyncio.Future[Scrape]) -> None:
    """One screen: the table, or why there is none."""
    width, height = shutil.get_terminal_size()
    try:
        now = looking.result()
    except server.ServerError as error:
        history.clear()
        lines = [*(cut(line, width) for line in str(error).splitlines()), "waiting for it; q leaves"]
    else:
        history.add(now)
        lines = table(now, history.before(RATES_S), history.before(math.inf), width, height - 1)
        lines.append(cut(f"{args.url}   rates: last {RATES_S:.0f} s, times: last minute   q leaves", width))
    first, *rest = lines[:height]
    screen = LINE_END.join([BOLD + first + PLAIN, *rest])
    sys.stdout.write(HOME + screen + "\x1b[K" + BELOW)
    sys.stdout.flush()


@contextlib.contextmanager
def _terminal(leave: asyncio.Event) -> Generator[None]:
    """Another screen, and keys as they are pressed; everything is put back."""
    loop = asyncio.get_running_loop()
    keys = sys.stdin.fileno() if sys.stdin.isatty() else -1
    before = termios.tcgetattr(keys) if keys >= 0 else None

    def pressed() -> None:
        key = os.read(keys, 64)
        if not key or key[:1] in (b"q", b"Q", b"\x04"):  # its end, q, or Ctrl-D
            leave.set()

    sys.stdout.write(ENTER)
    try:
        if keys >= 0:
            tty.setcbreak(keys)
            loop.add_reader(keys, pressed)
        yield
    finally:
        if before is not None:
            loop.remove_reader(keys)
            termios.tcsetattr(keys, termios.TCSADRAIN, before)
        sys.stdout.write(LEAVE)
        sys.stdout.flush()


def _session(args: argparse.Namespace) -> aiohttp.ClientSession:
    headers = {"Authorization": f"Bearer {server.key(args.key_file)}"} if args.key_file else {}
    return aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(total=LOOK_S))


async def look(http: aiohttp.ClientSession, url: str) -> Scrape:
    """One look at the server. Raises ServerError."""
    base = server.base(url)
    try:
        async with http.get(f"{base}/health") as answer:  # 503 while it does not serve, and says why all the same
            health = await answer.read()
        async with http.get(f"{base}/metrics") as answer:
            if answer.status != 200:
                raise server.ServerError(server.reason(answer.status, await answer.read()))
            text = await answer.text()
        return Scrape(monotonic_ns(), msgspec.json.decode(health, type=dict[str, object]), parse(text))
    except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError) as error:
        raise server.ServerError(f"{url} is not a URL such as {server.DEFAULT_URL}") from error
    except (aiohttp.ClientError, TimeoutError) as error:
        raise server.ServerError(f"no server answers at {url}; start one with: {called()} run voice") from error
    except (ValueError, msgspec.MsgspecError) as error:
        raise server.ServerError(f"{url} answered something else than metrics; is it omnirt?") from error


def _interval(given: str) -> float:
    interval_s = float(given)
    if not 0.1 <= interval_s <= 3600:
        raise ValueError(given)
    return interval_s
