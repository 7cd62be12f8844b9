"""A node: the process around its cells. `python -m omnirt.runtime.node <control descriptor> <head's pid>`.

    Boot (fence page, board) -> Attach per link -> Load: stages start, one after the other -> Ready -> requests
    Drain: stages stop, exit 0            the head is gone: exit at once

One thread. Its loop sleeps until a doorbell or the control socket is readable; steps run in it, one per turn. Nothing
is timed: an idle node never wakes.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import socket
import sys
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import uvloop

from omnirt.clock import monotonic_ns
from omnirt.connectors.base import LinkBroken, link_figures
from omnirt.connectors.ring import RingLink
from omnirt.errors import ConfigError, NoDevice, OmnirtError, StageFailed
from omnirt.extras import extra, needs
from omnirt.ids import Fence
from omnirt.loader import resolve
from omnirt.log import set_up
from omnirt.runtime.cells import Cells
from omnirt.runtime.channel import Channel, ChannelError
from omnirt.runtime.guard import die_with_parent
from omnirt.runtime.stage import Context, Stage
from omnirt.shm.board import Board
from omnirt.shm.fences import FencePage
from omnirt.wire.messages import (
    Ask,
    Attach,
    Boot,
    Close,
    Detach,
    Drain,
    Hello,
    Load,
    LoadFailed,
    Loading,
    Opens,
    Ready,
    ToHead,
    decode_to_node,
    encode,
)
from omnirt.wire.plan import StagePlan

log = logging.getLogger("omnirt.node")

FLUSH_S = 2.0
"""How long a dying node tries to get its last words to the head."""
EXIT_LOAD_FAILED = 3
EXIT_BROKEN = 4


class NodeProcess:
    """Implements `NodeWorld` with real time, rings and death."""

    def __init__(self, loop: asyncio.AbstractEventLoop, control: socket.socket) -> None:
        self._loop = loop
        self._channel = Channel(control, loop, self._on_control, self._on_head_gone)
        self._boot: Boot | None = None
        self._fences: FencePage | None = None
        self._board: Board | None = None
        self._cells: Cells | None = None
        self._links: dict[str, RingLink] = {}
        self._started: list[tuple[Stage, Context]] = []
        self._woken = False
        self._spin_ns = 0
        self.tell_head(Hello(os.getpid()))

    # ------------------------------------------------------------ control

    def _on_control(self, data: bytes, fds: list[int]) -> None:
        message = decode_to_node(data)
        if isinstance(message, Attach):
            self._attach(message, fds)
        elif isinstance(message, Boot):
            self._on_boot(message, fds)
        elif isinstance(message, Detach):
            self._detach(message.peer)
        elif isinstance(message, Load):
            self._load()
        elif isinstance(message, Drain):
            self._drain()
        elif self._cells is not None and isinstance(message, Ask):
            self._cells.ask(message, link_figures(self._links) if message.what == "stats" else None)
        elif self._cells is not None:
            handler: Callable[[Any], None] = _CELLS[type(message)].__get__(self._cells)
            handler(message)

    def _on_boot(self, boot: Boot, fds: list[int]) -> None:
        self._boot = boot
        set_up(process=boot.node.name, level=boot.log)
        self._fences = FencePage.attach(fds[0], boot.slots)
        self._board = Board.attach(fds[1], boot.lines)
        self._spin_ns = boot.node.spin_us * 1000
        self._cells = Cells(boot, self)

    def _attach(self, message: Attach, fds: list[int]) -> None:
        self._detach(message.peer)
        link = RingLink.attach(message, fds)
        self._links[message.peer] = link
        self._loop.add_reader(link.fileno(), partial(self._pump, link))

    def _detach(self, peer: str) -> None:
        link = self._links.pop(peer, None)
        if link is not None:
            self._loop.remove_reader(link.fileno())
            link.close()

    def _on_head_gone(self, why: ChannelError | None) -> None:
        log.error("the head is gone%s", f": {why}" if why else "")
        os._exit(EXIT_BROKEN)

    # ------------------------------------------------------------ life

    def _load(self) -> None:
        boot = self._boot
        assert boot is not None
        facts: dict[str, dict[str, Any]] = {}
        for plan in boot.stages:
            try:
                self._start_stage(plan)
                facts[plan.name] = self._started[-1][0].facts()
                encode(Ready(facts))  # here, where what cannot be sent is the stage's own mistake
            except (Exception, SystemExit) as error:  # noqa: BLE001 - the head is told, and this process ends
                why = _load_error(error, plan)
                if isinstance(why, StageFailed) and why is not error:
                    _log_trace(error, plan.name)
                self.tell_head(LoadFailed(why.failure()))
                self._channel.flush(FLUSH_S)
                os._exit(EXIT_LOAD_FAILED)
        # Whatever was loaded stays: keep the collector from walking through it again and again.
        gc.collect()
        gc.freeze()
        self.tell_head(Ready(facts))

    def _start_stage(self, plan: StagePlan) -> None:
        boot, cells = self._boot, self._cells
        assert boot is not None
        assert cells is not None
        self._report(plan.name, "starting")
        kind: type[Stage] = resolve(plan.actor)
        stage = kind(msgspec.convert(plan.options, kind.Options))
        device = "cuda:0" if boot.node.device.startswith("cuda") else boot.node.device
        context = Context(plan.name, device, boot.rank, boot.node.threads, partial(self._report, plan.name))
        stage.start(context)
        self._started.append((stage, context))
        if boot.rank == 0:
            cells.add(plan, stage, context)

    def _report(self, stage: str, text: str) -> None:
        self.tell_head(Loading(stage, text))

    def _drain(self) -> None:
        for stage, context in reversed(self._started):
            try:
                stage.stop(context)
            except Exception:
                log.exception("stage=%s did not stop cleanly", context.stage)
        self._loop.stop()

    # ------------------------------------------------------------ NodeWorld

    def is_stale(self, fence: Fence) -> bool:
        assert self._fences is not None
        return self._fences.is_stale(fence)

    def now_ns(self) -> int:
        return monotonic_ns()

    def link(self, process: str) -> RingLink | None:
        return self._links.get(process)

    def drain(self) -> None:
        cells = self._cells
        assert cells is not None
        for link in self._links.values():
            try:
                while link.drain(cells.record):
                    pass
            except LinkBroken as error:
                self.die(f"the link from {link.peer} is broken: {error}")

    def tell_head(self, message: ToHead) -> None:
        self._channel.send(encode(message))

    def execute(self, slots: list[int], work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        boot, board = self._boot, self._board
        assert boot is not None
        assert board is not None
        board.begin_step(boot.line, slots)
        try:
            result = work()
        finally:
            board.end_step(boot.line)
        done(result)

    def wake(self) -> None:
        if not self._woken:
            self._woken = True
            self._loop.call_soon(self._turn)

    def die(self, reason: str) -> None:
        log.critical("giving up: %s", reason)
        self._channel.flush(FLUSH_S)
        os._exit(EXIT_BROKEN)

    # ------------------------------------------------------------ the loop's callbacks

    def _turn(self) -> None:
        assert self._cells is not None
        self._woken = False
        self._cells.turn()

    def _pump(self, link: RingLink) -> None:
        """What arrived is worked on before anything else: looking for more, and going to sleep, can wait."""
        cells = self._cells
        assert cells is not None
        try:
            if link.clear():
                self._take(partial(link.drain, cells.record))
                link.pump(cells.record)
        except LinkBroken as error:
            self.die(f"the link from {link.peer} is broken: {error}")
        if self._spin_ns:
            self._spin(cells)

    def _take(self, drain: Callable[[], int]) -> int:
        """Hand records over, then turn at once; but not when a turn is due: each turn asks for the next one while there
        is work, so a second chain of them would never end, and control would wait behind both."""
        is_due, self._woken = self._woken, True
        count = drain()
        if not is_due:
            self._turn()
        return count

    def _spin(self, cells: Cells) -> None:
        """Look for more before sleeping, for hosts with cores to spare (`spin_us`)."""
        until = monotonic_ns() + self._spin_ns
        while monotonic_ns() < until:
            if self._take(lambda: sum(link.drain(cells.record) for link in self._links.values())):
                until = monotonic_ns() + self._spin_ns


_CELLS: dict[type, Callable[[Cells, Any], None]] = {Opens: Cells.open, Close: Cells.close}


def _load_error(error: BaseException, plan: StagePlan) -> OmnirtError:
    """Why the stage did not start, for the one who started it."""
    if isinstance(error, NoDevice):
        return ConfigError(f"{error.message}; on a processor: --set node.{plan.group}.device=cpu", stage=plan.name)
    if isinstance(error, OmnirtError):
        error.stage = error.stage or plan.name
        return error
    missing = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if missing and missing not in sys.modules:
        fix = extra(needs(plan.actor)[0]) if plan.actor.startswith("omnirt.") else "install it"
        text = f"it needs the package that brings {missing!r}, which is not installed: {fix}"
        return ConfigError(f"{text} (`omnirt doctor` checks what is there)", stage=plan.name)
    return StageFailed(f"{type(error).__name__}: {error}", stage=plan.name)


def _log_trace(error: BaseException, stage: str) -> None:
    """Each line of it a line of the log, to be read as it stands."""
    for line in "".join(traceback.format_exception(error)).replace('"', "'").splitlines():
        log.error("%s", line, extra={"stage": stage})


def _let_it_crash(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """An exception nobody expected leaves this process in an unknown state: the supervisor starts a clean one."""
    log.critical("crashed: %s", context.get("message"), exc_info=context.get("exception"))
    os._exit(EXIT_BROKEN)


def main() -> None:
    control, parent = int(sys.argv[1]), int(sys.argv[2])
    die_with_parent(parent)
    loop = uvloop.new_event_loop()
    loop.set_exception_handler(_let_it_crash)
    NodeProcess(loop, socket.socket(fileno=control))
    loop.run_forever()


if __name__ == "__main__":
    main()
