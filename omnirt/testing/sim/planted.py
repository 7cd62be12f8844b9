"""Faults planted into production code, each as one change of one behaviour: a world must find every one of them.

Where a second line of defence hides a fault from the client, the worlds look where the first line stands (a record that
leaves behind its fence is a finding though the gate would stop it), or both lines are taken away (`pair`).
"""

# pyright: reportPrivateUsage=false, reportUnknownLambdaType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from omnirt.loader import resolve
from omnirt.runtime import cell as cells
from omnirt.runtime.actor import Actor
from omnirt.runtime.cell import Cell, Outcome
from omnirt.runtime.credit import InEdge, OutEdge
from omnirt.runtime.row import Row
from omnirt.runtime.supervisor import Supervisor
from omnirt.session.request import Deliver, RequestMachine, State
from omnirt.testing.sim.world import run
from omnirt.wire.messages import Chunk, Close

Plant = Callable[[], AbstractContextManager[None]]


@contextmanager
def changed(owner: Any, name: str, make: Callable[[Any], Any]) -> Generator[None]:
    """`owner.name` is `make(its old value)` for a while."""
    before = owner.__dict__[name]
    setattr(owner, name, make(before))
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def pair(*plants: AbstractContextManager[None]) -> Generator[None]:
    with ExitStack() as stack:
        for plant in plants:
            stack.enter_context(plant)
        yield


def _blind(cell: Cell, call: Callable[[], Any]) -> Any:
    """Run a part of a cell for which nothing is stale."""
    shell = cell._shell
    is_stale = shell.is_stale
    shell.is_stale = lambda fence: False  # type: ignore[method-assign]
    try:
        return call()
    finally:
        shell.is_stale = is_stale  # type: ignore[method-assign]


def _actors(path: str) -> Any:
    return resolve(f"omnirt.actors.{path}")


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
    orchestrator = _actors("orchestrator:Orchestrator")
    closed = _actors("orchestrator:NodeClosed")

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
        world.raise_epoch = world._fences.epoch
        try:
            call(self, entry, *args)
        finally:
            world.raise_epoch = raise_epoch

    return kept


def retry_without_new_epoch() -> AbstractContextManager[None]:
    def plant(call: Any) -> Any:
        same = _same_epoch(call)
        return lambda self, entry, *args: (same if entry.machine.state is State.LOST else call)(self, entry, *args)

    orchestrator = _actors("orchestrator:Orchestrator")
    return pair(changed(orchestrator, "_close", plant), changed(orchestrator, "_start", plant))


def end_without_new_epoch() -> AbstractContextManager[None]:
    """A slot goes from one request to the next, and only the next start raises its epoch."""
    return changed(_actors("orchestrator:Orchestrator"), "_close", _same_epoch)


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
    outlet = _actors("session:Outlet")
    return changed(outlet, "end", lambda end: lambda self, outcome: self.put(-1, outcome))


def late_messages_keep_leases() -> AbstractContextManager[None]:
    """A session ends with records in its mailbox."""
    return changed(_actors("session:SessionActor"), "unread", lambda unread: Actor.unread)


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
        kind = _actors("orchestrator:NodeDown")

        def quiet(self: Any, message: Any) -> None:
            self._router.unready(message.node)

        return {**table, kind: quiet}

    return changed(_actors("orchestrator:Orchestrator"), "_handlers", handlers)


def load_of_the_dead_kept() -> AbstractContextManager[None]:
    """A dead node's requests count as its load for ever."""

    def handlers(table: dict[type, Any]) -> dict[type, Any]:
        kind = _actors("orchestrator:NodeDown")
        on_down = table[kind]

        def leaky(self: Any, message: Any) -> None:
            closed, self._router.closed = self._router.closed, lambda node: None
            try:
                on_down(self, message)
            finally:
                self._router.closed = closed

        return {**table, kind: leaky}

    return changed(_actors("orchestrator:Orchestrator"), "_handlers", handlers)


def hang_watch_never_armed() -> AbstractContextManager[None]:
    return changed(Supervisor, "work", lambda work: lambda self, now_ns, node, outstanding: [])


def deadline_never_armed() -> AbstractContextManager[None]:
    return changed(_actors("session:SessionActor"), "_on_deadline", lambda on_deadline: lambda self: None)


def deadline_never_cancelled() -> AbstractContextManager[None]:
    class Unstoppable:
        def cancel(self) -> None: ...

    def plant(init: Any) -> Any:
        def armed(self: Any, *args: Any) -> None:
            init(self, *args)
            self._deadline = Unstoppable()

        return armed

    return changed(_actors("session:SessionActor"), "__init__", plant)


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


PLANTED: dict[str, tuple[Plant, tuple[str, ...]]] = {
    "no fence check at emit": (no_fence_at_emit, ("stale",)),
    "no fence check when joining a step": (no_fence_at_join, ("stepped",)),
    "no last gate (and slots do not wait)": (no_last_gate, ("gate",)),
    "slot used again while a node holds it": (slot_used_at_once, ("full",)),
    "retry without a new epoch": (retry_without_new_epoch, ("epoch",)),
    "slot freed without raising the epoch": (end_without_new_epoch, ("stale", "epoch")),
    "credit not returned": (credit_lost, ("failed",)),
    "credit returned twice": (credit_twice, ("credit",)),
    "row stepped without credit": (step_without_credit, ("bounds", "credit")),
    "answers wait behind questions": (answers_wait_for_questions, ("failed",)),
    "input after the last word is kept": (input_after_the_last_word_is_kept, ("failed",)),
    "lease not released on a stale drop": (lease_kept_on_stale_drop, ("leak",)),
    "lease not released by a dead row": (lease_kept_by_dead_rows, ("leak",)),
    "view emitted after its release": (view_emitted_after_release, ("overwritten", "client")),
    "unread outputs keep leases": (unread_outputs_keep_leases, ("lease",)),
    "late messages keep leases": (late_messages_keep_leases, ("leak",)),
    "End not sent on an untaken branch": (end_not_sent_on_untaken_branch, ("failed",)),
    "Close not sent": (close_not_sent, ("leak",)),
    "early records dropped by an old Close": (early_records_dropped_by_an_old_close, ("failed",)),
    "DOWN dropped": (down_dropped, ("failed",)),
    "load of the dead kept": (load_of_the_dead_kept, ("leak",)),
    "hang watch never armed": (hang_watch_never_armed, ("failed", "hung")),
    "deadline timer never armed": (deadline_never_armed, ("deadline",)),
    "deadline timer never cancelled": (deadline_never_cancelled, ("idle",)),
    "retry after output was sent": (retry_after_output, ("content", "client")),
    "killer requests never suspected": (killers_never_suspected, ("poison",)),
    "poison fails its batch mates": (poison_fails_its_batch, ("failed",)),
}
"""Name -> the plant, and the kinds of finding that show it (a side effect does not count)."""


def caught(name: str, seeds: int) -> tuple[int, str] | None:
    """The first seed whose world shows the fault, and how."""
    plant, kinds = PLANTED[name]
    with plant():
        for seed in range(seeds):
            for finding in run(seed).findings:
                if finding.partition(":")[0] in kinds:
                    return seed, finding
    return None
