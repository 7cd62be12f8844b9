"""Simulated processes: a node with one thread that crashes, hangs and fails to load, and the head's view of it.

While a step runs, while it loads and while it is stopped, a node handles nothing; what arrives waits. A step's work is
done when it begins and its results leave when it ends, so that the fence page can change in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from omnirt.errors import Failure
from omnirt.ids import Fence
from omnirt.runtime.stage import Context, Stage
from omnirt.testing.faults import LoadFault
from omnirt.testing.sim.cells import Died, SimCells
from omnirt.testing.sim.ground import Ground
from omnirt.testing.sim.links import SimLink
from omnirt.testing.sim.pipe import Socket
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

EXIT_LOAD_FAILED = 3
EXIT_BROKEN = 4


class SimNode:
    """One process. Implements `NodeWorld`."""

    def __init__(
        self, ground: Ground, name: str, incarnation: int, socket: Socket, load_fault: LoadFault | None
    ) -> None:
        self.ground = ground
        self.clock = ground.clock
        self.random: Random = ground.random
        self.name = name
        self.incarnation = incarnation
        self.alive = True
        self.stopped = False
        """By a SIGSTOP; `hung_ns` says since when."""
        self.hung_ns: int | None = None
        self.deaf_to_pings = False
        self.busy = False
        self.loading = False
        self.cells: SimCells | None = None
        self.stages: list[tuple[Stage, Context]] = []
        self.links: dict[str, SimLink] = {}
        self.epochs: dict[tuple[str, int], Fence] = {}
        """(stage, request) -> the fence of its last Open, for marking payloads."""
        self._socket = socket
        self._boot: Boot | None = None
        self._load_fault = load_fault
        self._woken = False
        self._late: list[Callable[[], None]] = []
        """Ends of steps and loads that came while the process was stopped."""
        self.old_links: list[SimLink] = []
        """Links it dropped; payloads may still be held from them."""
        self.is_dying = False
        self._ambush: Callable[[], None] | None = None
        self.on_exit: Callable[[SimNode, str, int], None] = lambda node, kind, code: None
        socket.to_node.readable = self._control_readable
        self.tell_head(Hello(1))

    @property
    def blocked(self) -> bool:
        return self.busy or self.loading or self.stopped or not self.alive

    # ------------------------------------------------------------ life and death

    def end(self, kind: str, code: int) -> None:
        """The process is gone, now; everybody hears of it later."""
        if not self.alive:
            return
        self.alive = False
        self._socket.to_node.readable = None
        for link in self.links.values():
            link.die()
        self.on_exit(self, kind, code)

    def stop(self, for_ns: int | None) -> None:
        """SIGSTOP; with `for_ns` a SIGCONT follows."""
        if not self.alive or self.stopped:
            return
        self.stopped = True
        if for_ns is None:
            self.hung_ns = self.clock.now_ns()
        else:
            self.clock.after(for_ns, self._resume)

    def _resume(self) -> None:
        self.stopped = False
        late, self._late = self._late, []
        for end in late:
            self._run(end)
        self._look_around()

    def _run(self, callback: Callable[[], None]) -> None:
        """One callback of the node's loop."""
        if not self.alive:
            return
        try:
            callback()
        except Died:
            self.end("exit", EXIT_BROKEN)
        except Exception as error:  # noqa: BLE001  production code that raises here is a finding
            self.ground.observer.crashed(f"node {self.name}", error)
            self.end("exit", 1)

    def _later(self, delay_ns: int, callback: Callable[[], None]) -> None:
        def due() -> None:
            if self.stopped:
                self._late.append(callback)
            else:
                self._run(callback)

        self.clock.after(delay_ns, due)

    # ------------------------------------------------------------ what arrives

    def _control_readable(self) -> None:
        if not self.blocked:
            self._run(self._read_control)

    def _link_readable(self, link: SimLink) -> None:
        if not self.blocked:
            self._run(lambda: self._pump(link))

    def _look_around(self) -> None:
        """The loop's next turn after something that took time: whatever is readable, in any order, then the turn."""
        if self.blocked:
            return
        ready: list[Callable[[], None]] = [self._read_control] if self._socket.to_node.has_arrived() else []
        ready += [lambda link=link: self._pump(link) for link in self.links.values() if link.has_arrived()]
        self.random.shuffle(ready)
        for callback in ready:
            if not self.blocked:
                self._run(callback)
        self._turn_soon()

    def _read_control(self) -> None:
        for data, fds in self._socket.to_node.arrived():
            self._on_control(decode_to_node(data), fds)
            if self.blocked:
                break

    def _on_control(self, message: Any, fds: Sequence[Any]) -> None:
        if isinstance(message, Attach):
            self._detach(message.peer)
            self.links[message.peer] = link = fds[0]
            link.watch(lambda: self._link_readable(link))
        elif isinstance(message, Boot):
            self._boot = message
            self.cells = SimCells(message, self, self.ground.observer)
        elif isinstance(message, Detach):
            self._detach(message.peer)
        elif isinstance(message, Load):
            self._load()
        elif isinstance(message, Drain):
            for stage, context in reversed(self.stages):
                stage.stop(context)
            self.end("exit", 0)
        elif self.cells is not None:
            self._to_cells(self.cells, message)

    def _to_cells(self, cells: SimCells, message: Opens | Close | Ask) -> None:
        if isinstance(message, Opens):
            for opening in message.opens:
                self.ground.observer.opened(self.name, self.incarnation, opening)
                self.epochs[opening.stage, opening.request] = opening.fence
            cells.open(message)
        elif isinstance(message, Close):
            cells.close(message)
        elif not self.deaf_to_pings:
            cells.ask(message)

    def _detach(self, peer: str) -> None:
        link = self.links.pop(peer, None)
        if link is not None:
            self.old_links.append(link)
            link.close()

    def _pump(self, link: SimLink) -> None:
        assert self.cells is not None
        link.pump(self.cells.record)

    # ------------------------------------------------------------ loading

    def _load(self) -> None:
        self.loading = True
        fault = self._load_fault
        duration_ns = self.ground.load_ns()
        if fault is LoadFault.HANG:
            return
        if fault is LoadFault.CRASH:
            self._later(duration_ns // 2, lambda: self.end("signal", 11))
        elif fault is LoadFault.FAIL:
            self._later(duration_ns, self._fail_to_load)
        else:
            self._later(duration_ns, self._loaded)

    def _fail_to_load(self) -> None:
        self.tell_head(LoadFailed(Failure("stage_failed", "the weights are not there", "sim")))
        self.end("exit", EXIT_LOAD_FAILED)

    def _loaded(self) -> None:
        boot, cells = self._boot, self.cells
        assert boot is not None
        assert cells is not None
        for plan in boot.stages:
            stage = self.ground.make_stage(plan, self)
            context = Context(plan.name, "cpu", boot.rank, boot.node.threads, lambda text: None)
            self.tell_head(Loading(plan.name, "starting"))
            stage.start(context)
            self.stages.append((stage, context))
            cells.add(plan, stage, context)
        self.loading = False
        self.tell_head(Ready({stage.name: {} for stage in boot.stages}))
        self._look_around()

    # ------------------------------------------------------------ NodeWorld

    def is_stale(self, fence: Fence) -> bool:
        return self.ground.observer.epochs[fence.slot] != fence.epoch

    def now_ns(self) -> int:
        return self.ground.clock.now_ns()

    def link(self, process: str) -> SimLink | None:
        return self.links.get(process)

    def drain(self) -> None:
        assert self.cells is not None
        for link in self.links.values():
            link.drain(self.cells.record)

    def tell_head(self, message: ToHead) -> None:
        self._socket.to_head.put((encode(message), []))

    def execute(self, slots: list[int], work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        board = self.ground.board
        assert self._boot is not None
        line = self._boot.line
        board.begin_step(line, slots)
        self.busy = True
        outcomes = work()
        self.ground.observer.count("steps")
        duration_ns = self.ground.step_ns()
        if self._ambush is not None:
            self.clock.after(duration_ns // 2, self._ambush)
            self._ambush = None
        if self.is_dying:
            self._later(duration_ns // 2, lambda: self.end("signal", 9))
            return

        def finish() -> None:
            board.end_step(line)
            self.busy = False
            done(outcomes)
            self.ground.after_step(self)
            self._look_around()

        self._later(duration_ns, finish)

    def wake(self) -> None:
        self._woken = True
        if not self.blocked:
            self._turn_soon()

    def die(self, reason: str) -> None:
        if "crashed" in reason:
            self.ground.observer.wrong("crash", reason)
        raise Died(reason)

    def kill_in_step(self) -> None:
        """For stages that are told to: the process dies in the middle of this step."""
        self.is_dying = True

    def in_next_step(self, callback: Callable[[], None]) -> None:
        """In the middle of the next step, which may never come."""
        self._ambush = callback

    def _turn_soon(self) -> None:
        self.clock.after(self.ground.soon_ns(), self._turn)

    def _turn(self) -> None:
        if self._woken and not self.blocked and self.cells is not None:
            self._woken = False
            self._run(self.cells.turn)
