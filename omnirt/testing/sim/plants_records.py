"""Faults to plant: fences, credit, leases."""

# pyright: reportPrivateUsage=false, reportUnknownLambdaType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from omnirt.runtime.actor import Actor
from omnirt.runtime.cell import Cell, Outcome
from omnirt.runtime.credit import InEdge, OutEdge
from omnirt.runtime.row import Row
from omnirt.session.request import Deliver, RequestMachine, State
from omnirt.testing.sim.planting import actors, changed, pair
from omnirt.wire.messages import Chunk

# ---------------------------------------------------------------- fences


def no_fence_at_emit() -> AbstractContextManager[None]:
    def plant(settle: Any) -> Any:
        return lambda self, outcomes: _blind(self, lambda: settle(self, outcomes))

    return changed(Cell, "_settle", plant)


def no_fence_at_join() -> AbstractContextManager[None]:
    """A row joins a step without a look at the page."""
    return changed(Cell, "_pick", lambda pick: lambda self: _blind(self, lambda: pick(self)))


def no_last_gate() -> AbstractContextManager[None]:
    """The session takes records of any fence, and slots do not wait for what is still under way."""

    def plant(record: Any) -> Any:
        def ungated(self: RequestMachine, message: Any, body: Any) -> Any:
            if isinstance(message, Chunk) and self.state is State.RUNNING:
                self._sent = True
                self._outputs[message.edge].received += 1
                return [Deliver(message.edge, body)]
            return record(self, message, body)

        return ungated

    return pair(changed(RequestMachine, "record", plant), slot_used_at_once())


def slot_used_at_once() -> AbstractContextManager[None]:
    """A slot serves again while nodes still hold its last request."""
    orchestrator = actors("orchestrator:Orchestrator")
    closed = actors("orchestrator:NodeClosed")

    def plant(close: Any) -> Any:
        def at_once(self: Any, entry: Any) -> None:
            fence, nodes = entry.fence, list(entry.nodes.values())
            close(self, entry)
            for node in nodes:
                self._on_node_closed(closed(node, fence))

        return at_once

    return changed(orchestrator, "_close", plant)


def _same_epoch(call: Any) -> Any:
    """A part of the orchestrator, run so that it raises no epoch."""

    def kept(self: Any, entry: Any, *args: Any) -> None:
        world, raise_epoch = self._world, self._world.raise_epoch
        world.raise_epoch = world._nodes._fences.epoch
        try:
            call(self, entry, *args)
        finally:
            world.raise_epoch = raise_epoch

    return kept


def retry_without_new_epoch() -> AbstractContextManager[None]:
    def plant(call: Any) -> Any:
        same = _same_epoch(call)
        return lambda self, entry, *args: (same if entry.machine.state is State.LOST else call)(self, entry, *args)

    orchestrator = actors("orchestrator:Orchestrator")
    return pair(changed(orchestrator, "_close", plant), changed(orchestrator, "_start", plant))


def end_without_new_epoch() -> AbstractContextManager[None]:
    """A slot goes from one request to the next, and only the next start raises its epoch."""
    return changed(actors("orchestrator:Orchestrator"), "_close", _same_epoch)


# ---------------------------------------------------------------- credit


def credit_lost() -> AbstractContextManager[None]:
    """One in eight chunks is never paid back."""

    def plant(consumed: Any) -> Any:
        def sometimes(self: InEdge) -> int:
            return 0 if self.received % 8 == 7 else consumed(self)

        return sometimes

    return changed(InEdge, "consumed", plant)


def credit_twice() -> AbstractContextManager[None]:
    return changed(InEdge, "consumed", lambda consumed: lambda self: 2 * consumed(self))


def step_without_credit() -> AbstractContextManager[None]:
    return changed(OutEdge, "may_write", lambda may: lambda self, answering=-1: True)


def answers_wait_for_questions() -> AbstractContextManager[None]:
    """A loop whose window is full takes no answer while a question waits."""

    def plant(may_write: Any) -> Any:
        return lambda self, answering=-1: may_write(self, -1) if self.waiting else may_write(self, answering)

    return changed(OutEdge, "may_write", plant)


def input_after_the_last_word_is_kept() -> AbstractContextManager[None]:
    return changed(Cell, "_discard_input", lambda discard: lambda self, row: None)


# ---------------------------------------------------------------- leases


def lease_kept_on_stale_drop() -> AbstractContextManager[None]:
    return changed(Cell, "_drop", lambda drop: lambda self, body: None)


def lease_kept_by_dead_rows() -> AbstractContextManager[None]:
    def plant(drop_input: Any) -> Any:
        def forgetful(self: Row) -> int:
            self.inbox.clear()
            self.answers.clear()
            return 0

        return forgetful

    return changed(Row, "drop_input", plant)


def view_emitted_after_release() -> AbstractContextManager[None]:
    def plant(release: Any) -> Any:
        def bare(self: Outcome) -> None:
            for arrived in self.used:
                arrived.release()

        return bare

    return changed(Outcome, "release", plant)


def unread_outputs_keep_leases() -> AbstractContextManager[None]:
    outlet = actors("session:Outlet")
    return changed(outlet, "end", lambda end: lambda self, outcome: self.put(-1, outcome))


def late_messages_keep_leases() -> AbstractContextManager[None]:
    """A session ends with records in its mailbox."""
    return changed(actors("session:SessionActor"), "unread", lambda unread: Actor.unread)


def _blind(cell: Cell, call: Callable[[], Any]) -> Any:
    """Run a part of a cell for which nothing is stale."""
    shell = cell._shell
    is_stale = shell.is_stale
    shell.is_stale = lambda fence: False  # type: ignore[method-assign]
    try:
        return call()
    finally:
        shell.is_stale = is_stale  # type: ignore[method-assign]
