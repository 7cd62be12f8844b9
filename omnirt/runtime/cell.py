"""The cell: one stage actor. It turns messages into rows, rows with credit into steps, and emissions into records.

    Open ----------> row
    Chunk, End ----> row's inbox          \
    Credit --------> row's out edges       }  a row with work and credit joins the next step
    Close ---------> row forgotten        /

Fences are compared twice: when a row joins a step and again when its emissions leave. A chunk whose request is live but
unknown here overtook its Open (control and data take different ways): it waits for it. A chunk with a fence behind the
page is dropped and its lease released, so nothing late can bring a request back.

The cell is synchronous and knows neither process, loop nor clock: everything outside is its `CellShell`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from omnirt.clock import NS
from omnirt.errors import DeviceLost, Failure, OmnirtError, StageFailed
from omnirt.ids import Fence
from omnirt.runtime.outcome import Outcome
from omnirt.runtime.row import Arrived, Row, Work
from omnirt.runtime.stage import Chunk as StageChunk
from omnirt.runtime.stage import Context, Emission, EngineStage, Request, Stage
from omnirt.wire.messages import REPORTS_BYTES_MAX, Chunk, Close, Credit, End, Open, Record
from omnirt.wire.payload import Payload
from omnirt.wire.plan import EdgePlan, StagePlan

log = logging.getLogger("omnirt.cell")

EARLY_MAX = 4096
"""Chunks that may wait for their Open; more means that the head is not opening what it admits."""
ADMIT_NS = 3 * NS // 1000
"""An engine takes in no more in a step once that took so long: rows under way wait, and when many requests arrive at
once, the first of them are worked on while the others are taken in."""


class Received(Protocol):
    """A payload as a link delivers it."""

    def unpack(self, kind: type[Payload]) -> Payload: ...

    def release(self) -> None: ...


class CellShell(Protocol):
    """What a cell needs of the node around it."""

    process: str

    def is_stale(self, fence: Fence) -> bool: ...

    def now_ns(self) -> int: ...

    def send(self, process: str, record: Record, payload: Payload | None) -> None:
        """Hand a record to another cell. Raises LinkFull or StageFailed (too large)."""
        ...

    def failed(self, request: int, fence: Fence, failure: Failure) -> None: ...

    def execute(self, slots: list[int], work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Run a step. `slots` are the requests in it, for whoever looks when the process dies."""
        ...

    def ready(self, cell: Cell) -> None:
        """The cell has rows to step."""
        ...

    def die(self, reason: str) -> None:
        """The process is of no use any more."""
        ...


class Cell:
    def __init__(
        self, plan: StagePlan, edges: tuple[EdgePlan, ...], stage: Stage, context: Context, shell: CellShell
    ) -> None:
        self.plan = plan
        self.stage = stage
        self.counters = dict.fromkeys(("steps", "chunks_in", "chunks_out", "stale", "failed", "dropped"), 0)
        self.busy_ns = 0
        """In steps."""
        self._edges = edges
        self._context = context
        self._shell = shell
        self._engine = isinstance(stage, EngineStage)
        self._rows: dict[int, Row] = {}
        self._early: dict[int, list[tuple[Record, Any]]] = {}
        self._early_count = 0
        self._runnable: dict[int, Row] = {}
        context.wake = self._wake
        self._outs = {port: [e for e in edges if e.source == plan.name and e.port == port] for port in stage.emits}

    # ------------------------------------------------------------ messages

    def open(self, message: Open) -> None:
        if self._shell.is_stale(message.fence):
            return
        older = self._rows.pop(message.request, None)
        if older is not None:
            self._forget(older)
        row = Row(message, self._edges, self._engine, self._shell.now_ns())
        self._rows[message.request] = row
        log.debug("opened", extra=self._about(row))
        for record, body in self._pop_early(message.request):
            self.record(record, body)
        self._touch(row)

    def close(self, message: Close) -> None:
        for record, body in self._pop_early(message.request):
            if record.fence.epoch > message.fence.epoch:
                self._hold_early(record, body)  # of the next attempt, whose Open follows
            else:
                self._drop(body)
        row = self._rows.get(message.request)
        if row is not None and row.fence.epoch <= message.fence.epoch:
            del self._rows[message.request]
            self._forget(row)

    def record(self, record: Record, body: Any) -> None:
        if self._shell.is_stale(record.fence):
            self._drop(body)
            return
        row = self._rows.get(record.request)
        if row is None or row.fence != record.fence:
            self._hold_early(record, body)
        elif row.dead:
            self._drop(body)
        elif type(record) is Chunk:
            self._chunk(row, record, body)
        elif type(record) is End:
            self._end(row, record)
        else:
            self._credit(row, record)

    def _credit(self, row: Row, record: Any) -> None:
        row.outs[record.edge].grant(record.count)
        self._flush(row)
        self._touch(row)

    def _chunk(self, row: Row, record: Chunk, body: Any) -> None:
        edge = row.sources[record.edge]
        if edge.waiting >= edge.spec.credit:
            _release(body)
            spec = edge.spec
            over = f"edge {spec.source}.{spec.port} -> {spec.target}.{spec.to_port} carried more than its credit"
            self._fail(row, StageFailed(f"{over} of {spec.credit}", stage=self.plan.name))
            return
        self.counters["chunks_in"] += 1
        row.arrive(Arrived(edge, record.seq, body))
        if row.output_over:
            self._discard_input(row)
            self._flush(row)
        else:
            self._touch(row)

    def _end(self, row: Row, record: End) -> None:
        edge = row.sources[record.edge]
        if edge.received != record.count:
            spec = edge.spec
            lost = f"edge {spec.source}.{spec.port} -> {spec.target}.{spec.to_port} lost {record.count - edge.received}"
            self._fail(row, StageFailed(f"{lost} of {record.count} chunks", stage=self.plan.name))
            return
        row.source_ended(edge)
        row.reports.update(record.reports)
        self._touch(row)

    # ------------------------------------------------------------ steps

    def step(self) -> None:
        """Run one step over the rows that have work and credit."""
        batch = self._pick()
        if not batch:
            return
        for row in batch:
            row.stepping = True
        self.counters["steps"] += 1
        slots = [row.fence.slot for row in batch]
        self._shell.execute(slots, lambda: self._work(batch), self._settle)

    @property
    def runnable(self) -> bool:
        return bool(self._runnable)

    def _pick(self) -> list[Row]:
        """Up to `batch` rows, longest waiting first. A row that must be alone is."""
        batch: list[Row] = []
        for key in list(self._runnable):
            row = self._runnable.pop(key)
            if self._rows.get(key) is not row or row.work() is Work.NONE:
                continue
            if self._shell.is_stale(row.fence):
                self._kill(row)
                continue
            if row.alone and batch:
                self._runnable = {key: row, **self._runnable}
                break
            row.woken = False
            batch.append(row)
            if row.alone or len(batch) >= self.plan.batch:
                break
        if self._runnable:
            self._shell.ready(self)
        return batch

    def _work(self, batch: list[Row]) -> list[Outcome]:
        """The stage's part of a step. Exceptions become outcomes: a batch that raised is run once more row by row."""
        began_ns = self._shell.now_ns()
        outcomes = [Outcome(row) for row in batch]
        for outcome in outcomes:
            if self._engine and outcome.row.has_input and self._shell.now_ns() - began_ns > ADMIT_NS:
                outcome.put_off = True
                continue
            outcome.row.started = True
            self._take(outcome)
            if self._engine and outcome.error is None:
                self._guarded([outcome], self._admit)
        self._advance([outcome for outcome in outcomes if not outcome.put_off])
        ended_ns = self._shell.now_ns()
        self.busy_ns += ended_ns - began_ns
        for outcome in outcomes:
            if not outcome.put_off:
                outcome.row.times.stepped(began_ns, ended_ns)
        return outcomes

    def _advance(self, outcomes: list[Outcome]) -> None:
        alive = [outcome for outcome in outcomes if outcome.error is None]
        if self._engine:
            self._guarded(alive, self._call_engine)
            return
        self._guarded([outcome for outcome in alive if outcome.chunks], self._call_step)
        for outcome in alive:
            if not outcome.chunks:
                self._guarded([outcome], self._call_finish)

    def _guarded(self, outcomes: list[Outcome], call: Callable[[list[Outcome]], None]) -> None:
        if not outcomes:
            return
        try:
            call(outcomes)
        except Exception as error:
            if _sticky(error):
                self._shell.die(f"{self.plan.name}: {error}")
            if not isinstance(error, OmnirtError):  # those say what they mean; `_fail` does, for each request
                ids = ",".join(outcome.row.request.public_id for outcome in outcomes)
                fields = {"stage": self.plan.name, "request": ids}
                log.warning("step of %d failed: %r", len(outcomes), error, exc_info=error, extra=fields)
            for outcome in outcomes:
                outcome.emissions, outcome.finished = [], False
            if len(outcomes) == 1:
                outcomes[0].error = self._stage_error(error)
            else:
                for outcome in outcomes:
                    self._guarded([outcome], call)

    def _take(self, outcome: Outcome) -> None:
        """One chunk of the row, or all of them for an engine, unpacked."""
        row = outcome.row
        while row.answers or row.inbox:
            arrived = row.take()
            outcome.used.append(arrived)
            port = arrived.edge.spec.to_port
            try:
                payload = self._unpack(arrived.body, port)
            except (ValueError, TypeError, msgspec.MsgspecError) as error:
                outcome.error = StageFailed(f"unreadable {port} chunk: {error}", stage=self.plan.name)
                return
            outcome.chunks.append(StageChunk(row.request, port, payload, arrived.seq))
            if not self._engine:
                return

    def _unpack(self, body: Any, port: str) -> Payload:
        return body if isinstance(body, Payload) else body.unpack(self.stage.accepts[port])

    def _call_step(self, outcomes: list[Outcome]) -> None:
        self._assign(outcomes, self.stage.step(self._context, [chunk for each in outcomes for chunk in each.chunks]))

    def _call_finish(self, outcomes: list[Outcome]) -> None:
        (outcome,) = outcomes
        self._assign(outcomes, self.stage.finish(self._context, outcome.row.request))
        outcome.finished = True

    def _admit(self, outcomes: list[Outcome]) -> None:
        assert isinstance(self.stage, EngineStage)
        (outcome,) = outcomes
        for chunk in outcome.chunks:
            self.stage.admit(self._context, chunk)
        if not outcome.row.closed and outcome.row.input_over:
            outcome.row.closed = True
            self.stage.close(self._context, outcome.row.request)

    def _call_engine(self, outcomes: list[Outcome]) -> None:
        assert isinstance(self.stage, EngineStage)
        self._assign(outcomes, self.stage.step(self._context, [outcome.row.request for outcome in outcomes]))

    def _assign(self, outcomes: list[Outcome], emissions: list[Emission]) -> None:
        by_request = {outcome.row.request.id: outcome for outcome in outcomes}
        for emission in emissions:
            outcome = by_request[emission.request.id]
            outcome.emissions.append(emission)
            outcome.finished |= emission.end

    def _stage_error(self, error: Exception) -> OmnirtError:
        if isinstance(error, OmnirtError):
            error.stage = error.stage or self.plan.name
            return error
        return StageFailed(f"{type(error).__name__}: {error}", stage=self.plan.name)

    # ------------------------------------------------------------ results

    def _settle(self, outcomes: list[Outcome]) -> None:
        # Who was put off is first in the next step: rows that always bring more would be read before it forever.
        for outcome in sorted(outcomes, key=lambda outcome: not outcome.put_off):
            row = outcome.row
            row.stepping = False
            outcome.release()
            if self._rows.get(row.request.id) is not row:
                self._forget(row)  # closed while it was in the step
            elif self._shell.is_stale(row.fence):
                self._kill(row)
            elif outcome.error is not None:
                self._fail(row, outcome.error)
            elif outcome.put_off:
                self._touch(row)
            else:
                self._emit(outcome)

    def _emit(self, outcome: Outcome) -> None:
        row = outcome.row
        row.awake = (self._engine and bool(outcome.emissions) and not outcome.finished) or row.woken
        try:
            for emission in outcome.emissions:
                self._offer(row, emission)
            row.output_over |= outcome.finished
            self._flush(row)  # first: somebody waits for it
            for arrived in outcome.used:
                self._return_credit(row, arrived)
        except OmnirtError as error:
            self._fail(row, error)
            return
        if outcome.finished:
            self._discard_input(row)
        self._touch(row)

    def _offer(self, row: Row, emission: Emission) -> None:
        if emission.payload is None:
            return
        expected = self.stage.emits.get(emission.port)
        if expected is None or not isinstance(emission.payload, expected):
            wanted = f"a {expected.__name__}" if expected else f"one of the ports {sorted(self.stage.emits)}"
            got = f"{type(emission.payload).__name__} on port {emission.port!r}"
            raise StageFailed(f"emitted {got}; it declares {wanted}", stage=self.plan.name)
        for spec in self._outs[emission.port]:
            out = row.outs.get(spec.index)
            if out is not None:  # edges towards stages this request does not need are not opened
                out.offer(emission.payload)

    def _return_credit(self, row: Row, arrived: Arrived) -> None:
        count = arrived.edge.consumed()
        if count:
            edge = arrived.edge
            self._shell.send(edge.process, Credit(edge.spec.index, row.request.id, row.fence, count), None)

    def _discard_input(self, row: Row) -> None:
        """The stage has said its last word: what still comes is not read, but must not hold up its senders."""
        try:
            while row.answers or row.inbox:
                arrived = row.take()
                arrived.release()
                self._return_credit(row, arrived)
        except OmnirtError as error:
            self._fail(row, error)

    def _flush(self, row: Row) -> None:
        """Send what credit allows; when the output is over and all of it left, end every edge."""
        if row.dead:
            return
        try:
            for out in row.outs.values():
                while (payload := out.take()) is not None:
                    self._send(row, out.spec.index, out.process, out.sent - 1, payload)
            if row.output_over and not row.ended and all(out.clear for out in row.outs.values()):
                self._end_outputs(row)
        except OmnirtError as error:
            self._fail(row, error)

    def _end_outputs(self, row: Row) -> None:
        row.ended = True
        reports = self._reports(row)
        log.debug("ended", extra=self._about(row))
        for index, out in row.outs.items():
            payload = out.seal()
            if payload is not None:
                self._send(row, index, out.process, out.sent - 1, payload)
            self.counters["dropped"] += out.dropped
            self._shell.send(out.process, End(index, row.request.id, row.fence, out.sent, reports), None)

    def _reports(self, row: Row) -> dict[str, dict[str, Any]]:
        """What the stages up to here say of the request; without what is too long for an end mark."""
        own = {**row.request.report, **row.times.report(self._shell.now_ns())}
        reports = {**row.reports, self.plan.name: own}
        size = len(msgspec.msgpack.encode(reports))
        if size <= REPORTS_BYTES_MAX:
            return reports
        log.error("its reports have %d bytes: too many", size, extra=self._about(row))
        return {}

    def _send(self, row: Row, edge: int, process: str, seq: int, payload: Payload) -> None:
        self.counters["chunks_out"] += 1
        row.times.first_out_ns = row.times.first_out_ns or self._shell.now_ns()
        self._shell.send(process, Chunk(edge, row.request.id, row.fence, seq, b""), payload)

    # ------------------------------------------------------------ ends

    def _fail(self, row: Row, error: OmnirtError) -> None:
        self.counters["failed"] += 1
        self._kill(row)
        log.info("failed: %s: %s", error.code, error.message, extra=self._about(row))
        self._shell.failed(row.request.id, row.fence, error.failure())

    def _kill(self, row: Row) -> None:
        """The row does nothing more; its Close is on the way."""
        row.dead = True
        self.counters["stale"] += row.drop_input()

    def _forget(self, row: Row) -> None:
        self._kill(row)
        if row.stepping or not row.started:
            return  # `_settle` comes back for a row in a step
        row.started = False
        try:
            self.stage.forget(self._context, row.request)
        except Exception:
            log.exception("forget failed", extra=self._about(row))

    def _drop(self, body: Any) -> None:
        self.counters["stale"] += 1
        _release(body)

    # ------------------------------------------------------------ early records

    def _hold_early(self, record: Record, body: Any) -> None:
        if self._early_count >= EARLY_MAX:
            self._drop(body)
            return
        self._early_count += 1
        self._early.setdefault(record.request, []).append((record, body))

    def _pop_early(self, request: int) -> list[tuple[Record, Any]]:
        early = self._early.pop(request, [])
        self._early_count -= len(early)
        return early

    def _wake(self, request: Request) -> None:
        """The stage has something to do for a row that sleeps, or that is in the step that is running."""
        row = self._rows.get(request.id)
        if row is not None and row.request is request:
            row.awake = row.woken = True
            self._touch(row)

    def _touch(self, row: Row) -> None:
        """The row may have something to do; `_pick` looks whether it has."""
        if not row.dead:
            self._runnable[row.request.id] = row
            self._shell.ready(self)

    def _about(self, row: Row) -> dict[str, str]:
        """For the log."""
        return {"stage": self.plan.name, "request": row.request.public_id}

    def stats(self) -> dict[str, float]:
        """Counters and gauges, for whoever asks."""
        waiting = sum(len(row.inbox) + len(row.answers) for row in self._rows.values())
        parked = sum(1 for row in self._rows.values() if row.work() is Work.NONE and (row.inbox or row.answers))
        gauges = {"busy_seconds": self.busy_ns / NS, "rows": len(self._rows), "waiting": waiting, "parked": parked}
        return {**self.counters, **gauges, **self.stage.figures()}


def _release(body: Any) -> None:
    release = getattr(body, "release", None)
    if release is not None:
        release()


def _sticky(error: BaseException) -> bool:
    """Errors after which the device answers nothing else in this process (a CUDA context is not repairable)."""
    return isinstance(error, DeviceLost) or type(error).__name__ == "AcceleratorError"
