"""What one simulated world shares: the clock, chance, delays, the fence page, the board, and the observer."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import msgspec

from omnirt.loader import resolve
from omnirt.runtime.stage import Stage
from omnirt.testing.sim.clock import SimClock
from omnirt.testing.sim.links import SimLink
from omnirt.testing.sim.observer import Observer
from omnirt.testing.sim.pipe import Pipe
from omnirt.wire.plan import Plan, StagePlan

US = 1_000
MS = 1_000_000


class Delays(msgspec.Struct, frozen=True):
    """Means, in ns. One in `tail_one_in` is `tail_factor` times as long."""

    control_ns: int
    data_ns: int
    step_ns: int
    load_ns: int
    head_ns: int
    """Between an arrival and the turn of the head's loop that sees it, together with all that came meanwhile."""
    tail_one_in: int = 20
    tail_factor: int = 20


class SimBoard:
    """The board: per line a progress word that is odd in a step, and the slots of the step."""

    fd = -1

    def __init__(self, lines: int) -> None:
        self._progress = [0] * lines
        self._slots: list[list[int]] = [[] for _ in range(lines)]

    def begin_step(self, line: int, slots: list[int]) -> None:
        assert self._progress[line] % 2 == 0, "a step has begun and not ended"
        self._progress[line] += 1
        self._slots[line] = list(slots)

    def end_step(self, line: int) -> None:
        assert self._progress[line] % 2 == 1, "no step has begun"
        self._progress[line] += 1

    def progress(self, line: int) -> int:
        return self._progress[line]

    def in_step(self, line: int) -> list[int]:
        return self._slots[line] if self._progress[line] % 2 else []

    def reset(self, line: int) -> None:
        self._progress[line] += self._progress[line] % 2

    def close(self) -> None: ...


class SimFences:
    """The fence page: the observer's, which every simulated process sees at once."""

    fd = -1

    def __init__(self, epochs: list[int]) -> None:
        self._epochs = epochs
        self.slots = len(epochs)

    def raise_epoch(self, slot: int) -> int:
        self._epochs[slot] += 1
        return self._epochs[slot]

    def epoch(self, slot: int) -> int:
        return self._epochs[slot]

    def close(self) -> None: ...


class Ground:
    def __init__(self, plan: Plan, random: Random, delays: Delays, classes: dict[str, type[Stage]]) -> None:
        self.plan = plan
        self.random = random
        self.delays = delays
        self.clock = SimClock()
        self.observer = Observer(self.clock, plan)
        self.board = SimBoard(sum(node.ranks for node in plan.nodes))
        self.fences = SimFences(self.observer.epochs)
        self.head_links: list[SimLink] = []
        """The head's end of every link there ever was."""
        self.after_step: Callable[[Any], None] = lambda node: None
        self.strike: Callable[[Any, int, int], None] = lambda node, tag, lives: None
        """A request wants to kill the node in this step."""
        self.may_strike: Callable[[int, int], bool] = lambda tag, lives: False
        self._classes = classes

    def make_stage(self, plan: StagePlan, node: Any) -> Stage:
        """A generated stage is shown its node, to look around from there."""
        kind: type[Stage] = self._classes.get(plan.actor) or resolve(plan.actor)
        stage = kind(msgspec.convert(plan.options, kind.Options))
        bind: Callable[[Any, str], None] | None = getattr(stage, "bind", None)
        if bind is not None:
            bind(node, plan.name)
        return stage

    # ------------------------------------------------------------ chance

    def control_ns(self) -> int:
        return self._draw(self.delays.control_ns)

    def data_ns(self) -> int:
        return self._draw(self.delays.data_ns)

    def step_ns(self) -> int:
        return US + self._draw(self.delays.step_ns)

    def load_ns(self) -> int:
        return MS + int(self.random.random() * 2 * self.delays.load_ns)

    def soon_ns(self) -> int:
        """Until a loop comes to a callback."""
        return int(self.random.random() * 5 * US)

    def turn_ns(self) -> int:
        return int(self.random.random() * self.delays.head_ns)

    def control_pipe(self) -> Pipe:
        return Pipe(self.clock, self.control_ns)

    def data_pipe(self) -> Pipe:
        return Pipe(self.clock, self.data_ns)

    def _draw(self, mean_ns: int) -> int:
        chance = self.random.random() * 2
        delay_ns = int(chance * mean_ns)
        if self.random.random() * self.delays.tail_one_in < 1:
            return delay_ns * self.delays.tail_factor
        return delay_ns
