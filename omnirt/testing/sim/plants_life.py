"""Faults to plant: ends, deaths, hangs, deadlines, poison."""

# pyright: reportPrivateUsage=false, reportUnknownLambdaType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from omnirt.loader import resolve
from omnirt.runtime import cell as cells
from omnirt.runtime.cell import Cell, Outcome
from omnirt.runtime.row import Row
from omnirt.runtime.supervisor import Supervisor
from omnirt.session.request import RequestMachine
from omnirt.testing.sim.planting import actors, changed, pair
from omnirt.testing.sim.plants_records import slot_used_at_once
from omnirt.wire.messages import Close

# ---------------------------------------------------------------- ends


def end_not_sent_on_untaken_branch() -> AbstractContextManager[None]:
    def plant(end_outputs: Any) -> Any:
        def partial(self: Cell, row: Row) -> None:
            untaken = [index for index, out in row.outs.items() if not out.sent and not out.waiting]
            outs, row.outs = row.outs, {index: out for index, out in row.outs.items() if index not in untaken}
            end_outputs(self, row)
            row.outs = outs

        return partial

    return changed(Cell, "_end_outputs", plant)


def close_not_sent() -> AbstractContextManager[None]:
    """... and taken for confirmed."""

    def plant(tell: Any) -> Any:
        return lambda self, message: None if isinstance(message, Close) else tell(self, message)

    return pair(changed(resolve("omnirt.runtime.ref:Peer"), "tell", plant), slot_used_at_once())


def early_records_dropped_by_an_old_close() -> AbstractContextManager[None]:
    def plant(close: Any) -> Any:
        def careless(self: Cell, message: Close) -> None:
            for _, body in self._pop_early(message.request):
                self._drop(body)
            close(self, message)

        return careless

    return pair(changed(Cell, "close", plant), slot_used_at_once())


# ---------------------------------------------------------------- deaths, hangs, time


def down_dropped() -> AbstractContextManager[None]:
    """The sessions are not told that a node died."""

    def handlers(table: dict[type, Any]) -> dict[type, Any]:
        kind = actors("orchestrator:NodeDown")

        def quiet(self: Any, message: Any) -> None:
            self._router.unready(message.node)

        return {**table, kind: quiet}

    return changed(actors("orchestrator:Orchestrator"), "_handlers", handlers)


def load_of_the_dead_kept() -> AbstractContextManager[None]:
    """A dead node's requests count as its load for ever."""

    def handlers(table: dict[type, Any]) -> dict[type, Any]:
        kind = actors("orchestrator:NodeDown")
        on_down = table[kind]

        def leaky(self: Any, message: Any) -> None:
            closed, self._router.closed = self._router.closed, lambda node: None
            try:
                on_down(self, message)
            finally:
                self._router.closed = closed

        return {**table, kind: leaky}

    return changed(actors("orchestrator:Orchestrator"), "_handlers", handlers)


def hang_watch_never_armed() -> AbstractContextManager[None]:
    return changed(Supervisor, "work", lambda work: lambda self, now_ns, node, outstanding: [])


def deadline_never_armed() -> AbstractContextManager[None]:
    return changed(actors("session:SessionActor"), "_on_deadline", lambda on_deadline: lambda self: None)


def deadline_never_cancelled() -> AbstractContextManager[None]:
    class Unstoppable:
        def cancel(self) -> None: ...

    def plant(init: Any) -> Any:
        def armed(self: Any, *args: Any) -> None:
            init(self, *args)
            self._deadline = Unstoppable()

        return armed

    return changed(actors("session:SessionActor"), "__init__", plant)


def retry_after_output() -> AbstractContextManager[None]:
    def plant(lost: Any) -> Any:
        def forgetful(self: RequestMachine, node: str, reason: str, suspect: bool) -> Any:
            self._sent = False
            return lost(self, node, reason, suspect)

        return forgetful

    return changed(RequestMachine, "lost", plant)


def killers_never_suspected() -> AbstractContextManager[None]:
    def plant(lost: Any) -> Any:
        return lambda self, node, reason, suspect: lost(self, node, reason, False)

    return changed(RequestMachine, "lost", plant)


def poison_fails_its_batch() -> AbstractContextManager[None]:
    """An exception fails everybody in the step."""

    def plant(guarded: Any) -> Any:
        def blunt(self: Cell, outcomes: list[Outcome], call: Any) -> None:
            try:
                if outcomes:
                    call(outcomes)
            except Exception as error:  # noqa: BLE001  as the cell does
                if cells._sticky(error):
                    self._shell.die(str(error))
                for outcome in outcomes:
                    outcome.emissions, outcome.error = [], self._stage_error(error)

        return blunt

    return changed(Cell, "_guarded", plant)
