"""The cell with a scripted shell: what it makes of messages, exceptions, fences and credit."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from omnirt.errors import DeviceLost, Failure, OmnirtError, StageFailed
from omnirt.ids import Fence
from omnirt.runtime import cell as cell_module
from omnirt.runtime.cell import ADMIT_NS, Cell
from omnirt.runtime.stage import Chunk as StageChunk
from omnirt.runtime.stage import Context, Emission, EngineStage, NoOptions, Request, Stage
from omnirt.wire.messages import REPORTS_BYTES_MAX, Chunk, Close, Credit, End, Open, Record
from omnirt.wire.payload import Latents, Payload, Text
from omnirt.wire.plan import EdgePlan, StagePlan

EDGES = (
    EdgePlan(0, "client", "text", "s", "text", credit=4),
    EdgePlan(1, "s", "out", "t", "in", credit=2),
    EdgePlan(2, "s", "side", "u", "in", credit=2),
)


class Upper(Stage):
    """Says each text again, louder. `!` alone raises; `device` loses the device; `wrong` speaks on no port."""

    accepts = {"text": Text}
    emits = {"out": Text, "side": Text}

    def __init__(self) -> None:
        super().__init__(NoOptions())
        self.calls: list[Any] = []

    def step(self, ctx: Context, chunks: list[StageChunk]) -> list[Emission]:
        texts = [chunk.payload.text for chunk in chunks]
        self.calls.append(texts)
        if "!" in texts:
            raise ValueError("not that")
        if "device" in texts:
            raise DeviceLost("gone")
        port = "nowhere" if "wrong" in texts else "out"
        return [chunk.reply(port, Text(chunk.payload.text.upper())) for chunk in chunks]

    def finish(self, ctx: Context, request: Request) -> list[Emission]:
        self.calls.append(("finish", request.id))
        if request.params.get("finish") == "raise":
            raise ValueError("no last word")
        return [Emission(request, "out", Text("."))]

    def forget(self, ctx: Context, request: Request) -> None:
        self.calls.append(("forget", request.id))


class Shell:
    """A node around one cell: epochs, what was sent and failed, and steps that wait when told to."""

    process = "n.0"

    def __init__(self) -> None:
        self.now = 0
        self.epochs = [1] * 8
        self.sent: list[tuple[str, Record, Payload | None]] = []
        self.failures: list[tuple[int, Failure]] = []
        self.ready_calls = 0
        self.slots: list[list[int]] = []
        self.deaths: list[str] = []
        self.held: list[Callable[[], None]] = []
        self.holds = False
        self.refuses: OmnirtError | None = None

    def is_stale(self, fence: Fence) -> bool:
        return self.epochs[fence.slot] != fence.epoch

    def now_ns(self) -> int:
        self.now += 10
        return self.now

    def send(self, process: str, record: Record, payload: Payload | None) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.sent.append((process, record, payload))

    def failed(self, request: int, fence: Fence, failure: Failure) -> None:
        self.failures.append((request, failure))

    def execute(self, slots: list[int], work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self.slots.append(slots)
        result = work()
        if self.holds:
            self.held.append(lambda: done(result))
        else:
            done(result)

    def ready(self, cell: Cell) -> None:
        self.ready_calls += 1

    def die(self, reason: str) -> None:
        self.deaths.append(reason)
        raise SystemExit(reason)


class Body:
    """A payload under a lease."""

    def __init__(self, payload: Payload) -> None:
        self.payload = payload
        self.released = 0

    def unpack(self, kind: type[Payload]) -> Payload:
        if not isinstance(self.payload, kind):
            raise ValueError("not what it says")
        return self.payload

    def release(self) -> None:
        self.released += 1
        if isinstance(self.payload, Latents):
            self.payload.latents[:] = -1  # as the next writer of the slot would


class World:
    def __init__(self, stage: Stage | None = None, edges: tuple[EdgePlan, ...] = EDGES, batch: int = 8) -> None:
        self.stage: Any = stage or Upper()
        self.shell = Shell()
        context = Context("s", "cpu", 0, 1, lambda text: None)
        self.cell = Cell(StagePlan("s", "m:S", "g", batch=batch), edges, self.stage, context, self.shell)

    def open(self, request: int, slot: int | None = None, epoch: int = 1, **values: Any) -> None:
        defaults: dict[str, Any] = {"sources": {0: "head"}, "targets": {1: "t.0"}, "params": {}}
        self.cell.open(
            Open(
                stage="s", request=request, fence=self.fence(request, slot, epoch), seed=0, deadline_ns=0,
                public_id=f"r{request}", **{**defaults, **values},
            )
        )  # fmt: skip

    def fence(self, request: int, slot: int | None = None, epoch: int = 1) -> Fence:
        return Fence(request if slot is None else slot, epoch)

    def chunk(self, request: int, body: Any, seq: int = 0, epoch: int = 1, edge: int = 0) -> Any:
        body = Body(Text(body)) if isinstance(body, str) else body
        self.cell.record(Chunk(edge, request, self.fence(request, epoch=epoch), seq, b""), body)
        return body

    def end(self, request: int, count: int, epoch: int = 1, edge: int = 0) -> None:
        self.cell.record(End(edge, request, self.fence(request, epoch=epoch), count), None)

    def credit(self, request: int, count: int, edge: int = 1) -> None:
        self.cell.record(Credit(edge, request, self.fence(request), count), None)

    def close(self, request: int, epoch: int = 1) -> None:
        self.cell.close(Close(request, self.fence(request, epoch=epoch)))

    def run(self) -> None:
        while self.cell.runnable:
            self.cell.step()

    def out(self, request: int | None = None, edge: int = 1) -> list[str]:
        """Texts sent on an edge; `|` is its end."""
        said: list[str] = []
        for _, record, payload in self.shell.sent:
            if record.edge == edge and request in (None, record.request):
                if isinstance(payload, Text):
                    said.append(payload.text)
                elif isinstance(record, End):
                    said.append("|")
        return said


# ---------------------------------------------------------------- the course of a request


def test_chunks_become_steps_and_emissions_become_records_in_order() -> None:
    world = World()
    world.open(1)
    bodies = [world.chunk(1, "a"), world.chunk(1, "b", 1)]
    world.end(1, 2)
    world.run()
    world.credit(1, 2)
    world.run()
    assert world.out() == ["A", "B", ".", "|"]
    assert [record.seq for _, record, _ in world.shell.sent if isinstance(record, Chunk)] == [0, 1, 2]
    assert [body.released for body in bodies] == [1, 1]
    assert [process for process, record, _ in world.shell.sent if isinstance(record, End)] == ["t.0"]


def test_an_end_tells_how_many_chunks_it_follows_also_when_there_were_none() -> None:
    world = World()
    world.open(1, targets={1: "t.0", 2: "u.0"})
    world.chunk(1, "a")
    world.end(1, 1)
    world.run()
    ends = {record.edge: record.count for _, record, _ in world.shell.sent if isinstance(record, End)}
    assert ends == {1: 2, 2: 0}


def test_what_stages_say_of_a_request_travels_with_its_end() -> None:
    class Counting(Upper):
        def step(self, ctx: Context, chunks: list[StageChunk]) -> list[Emission]:
            chunks[0].request.report["tokens"] = len(chunks[0].payload.text)
            return super().step(ctx, chunks)

    world = World(Counting())
    world.open(1)
    world.chunk(1, "abc")
    world.cell.record(End(0, 1, world.fence(1), 1, {"before": {"tokens": 2}}), None)
    world.run()
    (end,) = [record for _, record, _ in world.shell.sent if isinstance(record, End)]
    assert end.reports["before"] == {"tokens": 2}
    own = end.reports["s"]
    assert own["tokens"] == 3
    assert own["steps"] == 2  # the chunk, and the end
    assert own["opened_ns"] < own["first_step_ns"] < own["first_out_ns"] < own["ended_ns"]
    assert own["busy_ns"] == 20


def test_a_report_too_long_for_an_end_mark_is_left_out() -> None:
    class Boasting(Upper):
        def step(self, ctx: Context, chunks: list[StageChunk]) -> list[Emission]:
            chunks[0].request.report["story"] = "x" * REPORTS_BYTES_MAX
            return super().step(ctx, chunks)

    world = World(Boasting())
    world.open(1)
    world.chunk(1, "abc")
    world.end(1, 1)
    world.run()
    assert [record.reports for _, record, _ in world.shell.sent if isinstance(record, End)] == [{}]


def test_an_emission_towards_an_edge_that_is_not_open_goes_nowhere() -> None:
    world = World()
    world.open(1, targets={2: "u.0"})
    world.chunk(1, "a")
    world.run()
    assert world.shell.sent == []
    assert world.shell.failures == []


def test_rows_of_different_requests_share_a_step_up_to_the_batch() -> None:
    world = World(batch=2)
    for request in (1, 2, 3):
        world.open(request)
        world.chunk(request, f"t{request}")
    world.run()
    assert world.stage.calls == [["t1", "t2"], ["t3"]]
    assert world.shell.slots == [[1, 2], [3]]


def test_a_request_that_must_be_alone_is_never_batched() -> None:
    world = World()
    world.open(1)
    world.open(2, alone=True)
    world.open(3)
    for request in (1, 2, 3):
        world.chunk(request, f"t{request}")
    world.run()
    assert world.stage.calls == [["t1"], ["t2"], ["t3"]]


def test_credit_is_returned_in_batches_as_chunks_are_used() -> None:
    world = World()
    world.open(1)
    for number in range(2):
        world.chunk(1, "x", number)
    world.run()
    assert [r.count for _, r, _ in world.shell.sent if isinstance(r, Credit)] == [2]


def test_a_row_without_credit_is_parked_and_the_others_go_on() -> None:
    world = World()
    world.open(1)
    world.open(2)
    for number in range(3):
        world.chunk(1, "a", number)
    world.chunk(2, "b")
    world.run()
    assert world.out(1) == ["A", "A"]
    assert world.out(2) == ["B"]
    assert world.cell.stats()["parked"] == 1
    world.credit(1, 1)
    world.run()
    assert world.out(1) == ["A", "A", "A"]


def test_more_chunks_than_the_edge_lends_fail_the_request() -> None:
    world = World()
    world.open(1)
    bodies = [world.chunk(1, "x", number) for number in range(5)]
    assert [failure.code for _, failure in world.shell.failures] == ["stage_failed"]
    assert [body.released for body in bodies] == [1] * 5


def test_an_end_that_counts_more_than_came_fails_the_request() -> None:
    world = World()
    world.open(1)
    world.chunk(1, "a")
    world.end(1, 3)
    assert "lost 2 of 3 chunks" in world.shell.failures[0][1].message


# ---------------------------------------------------------------- overtaking


def test_records_that_overtake_their_open_wait_for_it() -> None:
    world = World()
    world.chunk(1, "a")
    world.end(1, 1)
    world.run()
    assert world.stage.calls == []
    world.open(1)
    world.run()
    assert world.out() == ["A", ".", "|"]


def test_a_close_releases_what_waited_for_an_open_that_was_stale() -> None:
    world = World()
    body = world.chunk(1, "a")
    world.shell.epochs[1] = 2
    world.open(1)
    world.close(1)
    assert body.released == 1
    assert world.cell._early == {}
    assert world.cell._early_count == 0


def test_the_close_of_an_attempt_spares_what_is_early_for_the_next() -> None:
    world = World()
    world.open(1)
    world.shell.epochs[1] = 3
    early = world.chunk(1, "again", epoch=3)
    world.close(1)
    assert early.released == 0
    world.open(1, epoch=3)
    world.end(1, 1, epoch=3)
    world.run()
    assert world.out() == ["AGAIN", ".", "|"]


def test_no_more_than_a_bounded_number_of_records_waits_for_an_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cell_module, "EARLY_MAX", 2)
    world = World()
    bodies = [world.chunk(1, "x", number) for number in range(3)]
    assert [body.released for body in bodies] == [0, 0, 1]


# ---------------------------------------------------------------- fences


def test_a_stale_open_makes_no_row() -> None:
    world = World()
    world.shell.epochs[1] = 2
    world.open(1)
    assert world.cell.stats()["rows"] == 0


def test_a_stale_chunk_is_released_and_counted() -> None:
    world = World()
    world.open(1)
    world.shell.epochs[1] = 2
    assert world.chunk(1, "a").released == 1
    assert world.cell.counters["stale"] == 1


def test_a_row_that_has_gone_stale_joins_no_step() -> None:
    world = World()
    world.open(1)
    body = world.chunk(1, "a")
    world.shell.epochs[1] = 2
    world.run()
    assert world.stage.calls == []
    assert body.released == 1


def test_nothing_leaves_when_the_fence_rose_during_the_step() -> None:
    world = World()
    world.open(1)
    body = world.chunk(1, "a")
    world.shell.holds = True
    world.cell.step()
    world.shell.epochs[1] = 2
    world.shell.held.pop()()
    assert world.stage.calls == [["a"]]
    assert world.shell.sent == []
    assert body.released == 1


def test_a_request_that_is_closed_during_its_step_is_forgotten_after_it() -> None:
    world = World()
    world.open(1)
    world.chunk(1, "a")
    world.shell.holds = True
    world.cell.step()
    world.shell.epochs[1] = 2
    world.close(1)
    assert world.stage.calls == [["a"]]
    world.shell.held.pop()()
    assert world.stage.calls == [["a"], ("forget", 1)]
    assert world.shell.sent == []


def test_a_second_attempt_replaces_the_row_of_the_first() -> None:
    world = World()
    world.open(1)
    first = world.chunk(1, "first")
    world.shell.epochs[1] = 3
    world.open(1, epoch=3)
    world.close(1)  # of the first, late
    assert first.released == 1
    world.chunk(1, "second", epoch=3)
    world.run()
    assert world.out() == ["SECOND"]
    assert world.cell.stats()["rows"] == 1


def test_a_closed_request_leaves_nothing() -> None:
    world = World()
    world.open(1)
    body = world.chunk(1, "a")
    world.close(1)
    world.close(1)
    world.run()
    assert body.released == 1
    assert world.stage.calls == []  # it was never stepped, so there is nothing to forget
    assert world.cell.stats()["rows"] == 0


def test_a_stage_forgets_each_request_it_has_seen_once() -> None:
    world = World()
    world.open(1)
    world.chunk(1, "a")
    world.run()
    world.close(1)
    world.close(1)
    assert world.stage.calls.count(("forget", 1)) == 1


# ---------------------------------------------------------------- exceptions


def test_a_poisonous_request_fails_and_its_batch_mates_do_not() -> None:
    world = World()
    for request, text in ((1, "a"), (2, "!"), (3, "c")):
        world.open(request)
        world.chunk(request, text)
    world.run()
    assert world.stage.calls == [["a", "!", "c"], ["a"], ["!"], ["c"]]
    assert (world.out(1), world.out(3)) == (["A"], ["C"])
    assert [(request, failure.code, failure.stage) for request, failure in world.shell.failures] == [
        (2, "stage_failed", "s")
    ]


def test_an_exception_in_a_last_word_repeats_nobody_elses_step() -> None:
    world = World()
    world.open(1)
    world.open(2, params={"finish": "raise"})
    world.chunk(1, "a")
    world.end(2, 0)
    world.run()
    assert world.stage.calls == [["a"], ("finish", 2)]
    assert [request for request, _ in world.shell.failures] == [2]
    assert world.out(1) == ["A"]


def test_a_failed_request_does_nothing_more_until_its_close() -> None:
    world = World()
    world.open(1)
    world.chunk(1, "!")
    world.run()
    late = world.chunk(1, "late", 1)
    world.end(1, 2)
    world.run()
    assert late.released == 1
    assert len(world.shell.failures) == 1
    world.close(1)
    assert world.cell.stats()["rows"] == 0


def test_a_lost_device_ends_the_process() -> None:
    world = World()
    world.open(1)
    world.chunk(1, "device")
    with pytest.raises(SystemExit):
        world.run()
    assert world.shell.deaths == ["s: gone"]


def test_a_port_that_was_not_declared_is_the_stages_failure() -> None:
    world = World()
    world.open(1)
    world.chunk(1, "wrong")
    world.run()
    assert "'nowhere'" in world.shell.failures[0][1].message


def test_an_unreadable_chunk_fails_its_request_only() -> None:
    world = World()
    world.open(1)
    world.open(2)
    world.chunk(1, Body(Latents(np.zeros(1))))
    world.chunk(2, "b")
    world.run()
    assert [(request, failure.code) for request, failure in world.shell.failures] == [(1, "stage_failed")]
    assert world.out(2) == ["B"]


def test_a_link_that_refuses_fails_the_request_and_keeps_the_cell_alive() -> None:
    world = World()
    world.open(1)
    world.chunk(1, "a")
    world.shell.refuses = StageFailed("too large")
    world.run()
    assert [failure.message for _, failure in world.shell.failures] == ["too large"]
    world.shell.refuses = None
    world.open(2)
    world.chunk(2, "b")
    world.run()
    assert world.out(2) == ["B"]


def test_a_stage_that_fails_to_forget_does_not_stop_the_cell() -> None:
    class Stubborn(Upper):
        def forget(self, ctx: Context, request: Request) -> None:
            raise ValueError

    world = World(Stubborn())
    world.open(1)
    world.chunk(1, "a")
    world.run()
    world.close(1)
    assert world.cell.stats()["rows"] == 0


# ---------------------------------------------------------------- leases


class Relay(Stage):
    """Hands on what it gets, and half of it."""

    accepts = {"text": Latents}
    emits = {"out": Latents}

    def step(self, ctx: Context, chunks: list[StageChunk]) -> list[Emission]:
        return [
            emission
            for chunk in chunks
            for emission in (
                chunk.reply("out", chunk.payload), chunk.reply("out", Latents(chunk.payload.latents[:2])),
            )
        ]  # fmt: skip


def test_an_emission_that_lies_in_the_input_outlives_its_lease() -> None:
    world = World(Relay(NoOptions()))
    world.open(1)
    body = world.chunk(1, Body(Latents(np.arange(4))))
    world.run()
    sent = [payload.latents.tolist() for _, _, payload in world.shell.sent if isinstance(payload, Latents)]
    assert sent == [[0, 1, 2, 3], [0, 1]]
    assert body.released == 1


def test_a_payload_handed_over_in_process_is_not_copied() -> None:
    world = World(Relay(NoOptions()))
    world.open(1)
    payload = world.chunk(1, Latents(np.arange(4)))
    world.run()
    assert world.shell.sent[0][2] is payload


# ---------------------------------------------------------------- engines


class Counter(EngineStage):
    """Says 1, 2, ... up to the number it was given, one a step; `stop` ends it whatever still comes."""

    accepts = {"text": Text}
    emits = {"out": Text}

    def __init__(self) -> None:
        super().__init__(NoOptions())
        self.calls: list[Any] = []

    def admit(self, ctx: Context, chunk: StageChunk) -> None:
        self.calls.append(("admit", chunk.payload.text))
        if chunk.payload.text == "!":
            raise ValueError
        state = chunk.request.state or [0, 0]
        state[1] += int(chunk.payload.text)
        chunk.request.state = state

    def close(self, ctx: Context, request: Request) -> None:
        self.calls.append(("close", request.id))

    def step(self, ctx: Context, rows: list[Request]) -> list[Emission]:
        self.calls.append([row.id for row in rows])
        emissions = []
        for row in rows:
            if row.state and row.state[0] < row.state[1]:
                row.state[0] += 1
                stop = row.state[0] == row.params.get("stop")
                emissions.append(Emission(row, "out", Text(str(row.state[0])), end=stop))
        return emissions


def test_an_engines_row_is_stepped_until_it_says_nothing() -> None:
    world = World(Counter())
    world.open(1)
    world.chunk(1, "2")
    world.run()
    assert world.out() == ["1", "2"]
    assert world.stage.calls == [("admit", "2"), [1], [1]] or world.stage.calls[-1] == [1]
    before = len(world.stage.calls)
    world.run()
    assert len(world.stage.calls) == before  # it sleeps until more input


def test_an_engine_wakes_a_row_that_sleeps() -> None:
    world = World(Counter())
    world.open(1)
    world.chunk(1, "1")
    world.run()
    request = world.cell._rows[1].request
    steps = len(world.stage.calls)
    world.cell._context.wake(request)
    world.run()
    assert world.stage.calls[steps:] == [[1]]
    world.run()
    assert len(world.stage.calls) == steps + 1


def test_a_row_that_is_woken_in_its_own_step_is_stepped_once_more() -> None:
    class Waker(Counter):
        def step(self, ctx: Context, rows: list[Request]) -> list[Emission]:
            if len(self.calls) == 1:
                for row in rows:
                    ctx.wake(row)
            return super().step(ctx, rows)

    world = World(Waker())
    world.open(1)
    world.chunk(1, "0")
    world.run()
    assert world.stage.calls == [("admit", "0"), [1], [1]]


def test_to_wake_a_request_that_is_over_does_nothing() -> None:
    world = World(Counter())
    world.open(1)
    world.chunk(1, "1")
    world.run()
    request = world.cell._rows[1].request
    world.close(1)
    steps = len(world.stage.calls)
    world.cell._context.wake(request)
    world.run()
    assert [call for call in world.stage.calls[steps:] if isinstance(call, list)] == []


def test_an_engine_is_told_once_that_its_input_is_over() -> None:
    world = World(Counter())
    world.open(1)
    world.chunk(1, "1")
    world.end(1, 1)
    world.run()
    assert world.stage.calls.count(("close", 1)) == 1


def test_an_engine_without_credit_waits_with_its_input_unread() -> None:
    world = World(Counter())
    world.open(1)
    world.chunk(1, "9")
    world.run()
    assert world.out() == ["1", "2"]
    world.chunk(1, "1", 1)
    world.run()
    assert ("admit", "1") not in world.stage.calls
    world.credit(1, 1)
    world.run()
    assert ("admit", "1") in world.stage.calls


def test_input_after_the_last_word_is_released_and_paid_back() -> None:
    world = World(Counter())
    world.open(1, params={"stop": 1})
    bodies = [world.chunk(1, "5"), world.chunk(1, "5", 1)]
    world.run()
    assert world.out() == ["1", "|"]
    bodies += [world.chunk(1, "5", number) for number in (2, 3)]
    assert [body.released for body in bodies] == [1, 1, 1, 1]
    assert sum(r.count for _, r, _ in world.shell.sent if isinstance(r, Credit)) == 4


def test_an_engine_that_refuses_input_fails_that_request_only() -> None:
    world = World(Counter())
    world.open(1)
    world.open(2)
    world.chunk(1, "!")
    world.chunk(2, "1")
    world.run()
    assert [request for request, _ in world.shell.failures] == [1]
    assert world.out(2) == ["1"]


class SlowReader(Counter):
    """Reads for a long time."""

    def __init__(self) -> None:
        super().__init__()
        self.shell = Shell()

    def admit(self, ctx: Context, chunk: StageChunk) -> None:
        super().admit(ctx, chunk)
        self.shell.now += 2 * ADMIT_NS


def test_an_engine_that_reads_slowly_reads_for_one_request_a_step_and_the_others_go_on() -> None:
    world = World(SlowReader())
    world.stage.shell = world.shell
    for request in (1, 2, 3):
        world.open(request)
    world.chunk(1, "3")
    world.cell.step()
    world.chunk(2, "3")
    world.chunk(3, "3")
    world.cell.step()
    assert world.stage.calls == [("admit", "3"), [1], ("admit", "3"), [1, 2]]
    world.run()
    assert [world.out(request) for request in (1, 2, 3)] == [["1", "2"]] * 3  # as far as the credit goes
    assert world.stage.calls.count(("admit", "3")) == 3


def test_who_was_put_off_is_read_before_those_that_always_bring_more() -> None:
    world = World(SlowReader())
    world.stage.shell = world.shell
    for request in (1, 2, 3):
        world.open(request)
    for step in range(4):
        for request in (1, 2, 3) if step == 0 else (1,):
            world.chunk(request, f"{request}", step)
        world.cell.step()
    read = [call[1] for call in world.stage.calls if isinstance(call, tuple)]
    assert read == ["1", "2", "3", *"111"]  # what came of the first one meanwhile, at once


def test_a_request_that_is_closed_while_a_step_puts_it_off_is_unknown_to_the_stage() -> None:
    world = World(SlowReader())
    world.stage.shell = world.shell
    for request in (1, 2):
        world.open(request)
        world.chunk(request, "3")
    world.shell.holds = True
    world.cell.step()
    world.close(2)
    forgotten: list[int] = []
    world.stage.forget = lambda ctx, request: forgotten.append(request.id)
    world.shell.held.pop()()
    world.close(1)
    assert forgotten == [1]


# ---------------------------------------------------------------- what operators see


def test_steps_are_timed_once_however_many_requests_share_them() -> None:
    world = World()
    for request in (1, 2, 3):
        world.open(request)
        world.chunk(request, "a")
    world.cell.step()
    assert world.cell.stats()["busy_seconds"] == pytest.approx(10e-9)


@pytest.fixture
def logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], list[tuple[str, str, str]]]:
    """Lines so far, as (level, text, the request's public id); all are of the stage."""
    monkeypatch.setattr(logging.getLogger("omnirt"), "propagate", True)
    caplog.set_level(logging.DEBUG, "omnirt.cell")

    def lines() -> list[tuple[str, str, str]]:
        fields = [vars(record) for record in caplog.records]
        assert {field["stage"] for field in fields} <= {"s"}
        return [
            (field["levelname"], record.getMessage(), field["request"])
            for field, record in zip(fields, caplog.records, strict=True)
        ]

    return lines


def test_a_request_can_be_followed_by_its_public_id(logged: Callable[[], list[tuple[str, str, str]]]) -> None:
    world = World()
    world.open(1)
    world.chunk(1, "a")
    world.end(1, 1)
    world.run()
    assert logged() == [("DEBUG", "opened", "r1"), ("DEBUG", "ended", "r1")]


def test_what_a_stage_raised_is_logged_with_the_ids_of_the_step(
    logged: Callable[[], list[tuple[str, str, str]]],
) -> None:
    world = World()
    for request, text in ((1, "a"), (2, "!")):
        world.open(request)
        world.chunk(request, text)
    world.run()
    told = [line for line in logged() if line[0] != "DEBUG"]
    assert told == [
        ("WARNING", "step of 2 failed: ValueError('not that')", "r1,r2"),
        ("WARNING", "step of 1 failed: ValueError('not that')", "r2"),
        ("INFO", "failed: stage_failed: ValueError: not that", "r2"),
    ]
