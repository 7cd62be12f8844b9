"""The supervisor as tables: what happens, and which effects follow."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from omnirt.clock import NS
from omnirt.errors import Failure
from omnirt.runtime import hang, supervisor
from omnirt.runtime.exits import ExitReason
from omnirt.runtime.supervised import (
    Drained,
    Effect,
    Escalate,
    Kill,
    NodeDown,
    NodeUp,
    Ping,
    SendDrain,
    Spawn,
    StageHealth,
)
from omnirt.runtime.supervisor import Supervisor
from omnirt.wire.plan import NodePlan, Plan, RestartPlan, StagePlan

FACTS = {"llm": {"context": 4096}}
KILLED = ExitReason("signal", 9)
CLEAN = ExitReason("exit", 0)
LOOK = int(20 * NS / hang.LOOKS_PER_LIMIT)
ANSWER = int(hang.ANSWER_LIMIT_S * NS)


class Never(random.Random):
    """Chance that always says 0: no jitter."""

    def random(self) -> float:
        return 0.0


class Case:
    """A supervisor, the time, and the progress words; the calls are the supervisor's own, at the case's time."""

    def __init__(self, nodes: dict[str, int], ranks: int = 1, intensity: int = 3) -> None:
        """`nodes`: group -> replicas, in start order; one stage of the same name in each."""
        self.plan = Plan(
            name="test",
            inputs=("text",),
            outputs=("text",),
            stages=tuple(StagePlan(name, "m:C", name, step_limit_s=20, load_limit_s=100) for name in nodes),
            edges=(),
            nodes=tuple(
                NodePlan(f"{group}.{k}", group, k, (group,), ranks=ranks)
                for group, replicas in nodes.items()
                for k in range(replicas)
            ),
            links=(),
            restart=RestartPlan(intensity=intensity, window_s=60, backoff_s=1, backoff_max_s=8),
        )
        self.now = 0
        self.words: Counter[tuple[str, int]] = Counter()
        self.machine = Supervisor(self.plan, Never(), lambda node, rank: self.words[node, rank])
        self.log: list[Effect] = []

    def do(self, what: str, *args: object) -> list[Effect]:
        effects = getattr(self.machine, what)(self.now, *args)
        self.log += effects
        return effects

    def wait(self, seconds: float | None = None) -> list[Effect]:
        """To the next deadline, which must be `seconds` away when given."""
        due = self.machine.deadline_ns
        assert due is not None
        if seconds is not None:
            assert due - self.now == int(seconds * NS)
        self.now = max(due, self.now)
        return self.do("timer")

    def start(self) -> None:
        self.do("start")
        for node in self.plan.nodes:
            for rank in range(node.ranks):
                self.do("ready", node.name, rank, 1, FACTS)

    def crash(self, node: str, reason: ExitReason = KILLED) -> list[Effect]:
        return self.do("exited", node, 0, self.machine.incarnation(node), reason)


def downs(effects: list[Effect]) -> list[tuple[str, int]]:
    return [(effect.node, effect.incarnation) for effect in effects if isinstance(effect, NodeDown)]


def test_start_spawns_every_rank_and_a_node_is_up_when_all_its_ranks_are() -> None:
    case = Case({"llm": 1}, ranks=2)
    assert case.do("start") == [Spawn("llm.0", 0, 1), Spawn("llm.0", 1, 1)]
    assert case.do("hello", "llm.0", 0, 1) == []
    assert case.do("ready", "llm.0", 1, 1, {}) == []
    assert case.do("ready", "llm.0", 0, 1, FACTS) == [NodeUp("llm.0", 1, FACTS)]
    assert case.do("ready", "llm.0", 0, 1, FACTS) == []
    assert case.machine.phase("llm.0") == "ready"


def test_an_idle_pipeline_has_no_deadline() -> None:
    case = Case({"llm": 2, "tts": 1})
    case.do("start")
    assert case.machine.deadline_ns == 100 * NS
    for node in ("llm.0", "llm.1", "tts.0"):
        case.do("ready", node, 0, 1, {})
    assert case.machine.deadline_ns is None
    case.do("work", "llm.0", True)
    assert case.machine.deadline_ns is not None
    case.do("work", "llm.0", False)
    assert case.machine.deadline_ns is None


def test_a_crash_takes_one_node_down_and_restarts_it_after_the_back_off() -> None:
    case = Case({"llm": 2})
    case.start()
    assert case.crash("llm.1") == [NodeDown("llm.1", 1, "signal", "was ended by SIGKILL")]
    assert case.machine.phase("llm.1") == "waiting"
    assert case.machine.phase("llm.0") == "ready"
    assert case.wait(1) == [Spawn("llm.1", 0, 2)]
    assert case.do("ready", "llm.1", 0, 2, {}) == [NodeUp("llm.1", 2, {})]
    assert case.machine.deadline_ns is None


def test_back_off_doubles_until_the_node_is_given_up() -> None:
    case = Case({"llm": 2}, intensity=3)
    case.start()
    for seconds in (1, 2, 4):
        case.crash("llm.1")
        assert case.wait(seconds) == [Spawn("llm.1", 0, case.machine.incarnation("llm.1"))]
        case.do("ready", "llm.1", 0, case.machine.incarnation("llm.1"), {})
    case.crash("llm.1")
    assert case.machine.phase("llm.1") == "failed"
    assert case.machine.deadline_ns is None
    assert not any(isinstance(effect, Escalate) for effect in case.log)


def test_a_quiet_window_resets_the_back_off() -> None:
    case = Case({"llm": 1}, intensity=3)
    case.start()
    for _ in range(10):
        case.crash("llm.0")
        case.wait(1)
        case.do("ready", "llm.0", 0, case.machine.incarnation("llm.0"), {})
        case.now += 61 * NS
    assert case.machine.state()[0] == StageHealth("llm", "ready", 1, 1, "", 10)


def test_a_group_without_a_replica_escalates_once_and_nothing_starts_after_it() -> None:
    case = Case({"llm": 2, "tts": 1}, intensity=0)
    case.start()
    assert case.crash("llm.0") == [NodeDown("llm.0", 1, "signal", "was ended by SIGKILL")]
    assert case.crash("llm.1", ExitReason("exit", 3)) == [
        NodeDown("llm.1", 1, "exit", "exited with status 3"),
        Escalate("llm.1 is lost and no replica of it is left: exited with status 3"),
    ]
    assert case.crash("tts.0") == [NodeDown("tts.0", 1, "signal", "was ended by SIGKILL")]
    assert case.machine.deadline_ns is None


def test_a_restart_that_was_waiting_is_called_off_by_an_escalation() -> None:
    case = Case({"llm": 1, "tts": 1}, intensity=1)
    case.start()
    case.crash("tts.0")
    case.wait()
    case.do("ready", "tts.0", 0, 2, {})
    case.crash("llm.0")
    case.crash("tts.0")
    assert case.wait() == []
    assert case.machine.phase("llm.0") == "stopped"


def test_a_lost_rank_ends_the_replica_and_the_next_one_waits_for_the_last_process() -> None:
    case = Case({"llm": 1}, ranks=3)
    case.start()
    assert case.do("exited", "llm.0", 1, 1, KILLED) == [
        Kill("llm.0", 0, 1, "rank 1 was ended by SIGKILL"),
        Kill("llm.0", 2, 1, "rank 1 was ended by SIGKILL"),
        NodeDown("llm.0", 1, "signal", "rank 1 was ended by SIGKILL"),
    ]
    assert case.do("exited", "llm.0", 2, 1, KILLED) == []
    assert case.machine.phase("llm.0") == "ending"
    case.now += 5 * NS
    assert case.do("exited", "llm.0", 0, 1, KILLED) == []
    assert case.machine.phase("llm.0") == "waiting"
    assert case.wait(0) == [Spawn("llm.0", rank, 2) for rank in range(3)]  # the back-off ran from the death


def test_events_of_an_old_incarnation_change_nothing() -> None:
    case = Case({"llm": 1})
    case.start()
    case.crash("llm.0")
    case.wait()
    before = case.machine.deadline_ns
    for call in (
        ("hello", "llm.0", 0, 1),
        ("loading", "llm.0", 1, "weights"),
        ("ready", "llm.0", 0, 1, FACTS),
        ("load_failed", "llm.0", 0, 1, Failure("x", "y")),
        ("exited", "llm.0", 0, 1, KILLED),
        ("channel_closed", "llm.0", 0, 1, "closed"),
        ("pong", "llm.0", 0, 1),
    ):
        assert case.do(*call) == []
    assert case.machine.phase("llm.0") == "loading"
    assert case.machine.deadline_ns == before
    assert case.do("ready", "llm.0", 0, 2, FACTS) == [NodeUp("llm.0", 2, FACTS)]


@pytest.mark.parametrize("ranks", [1, 2])
def test_every_incarnation_is_down_exactly_once_whatever_comes_in_whatever_order(ranks: int) -> None:
    """Random events, many of them nonsense; one NodeUp at most and one NodeDown exactly per incarnation."""
    for seed in range(300):
        case = Case({"llm": 2, "tts": 1}, ranks=ranks, intensity=4)
        chance = random.Random(seed)
        case.do("start")
        for _ in range(80):
            _random_event(case, chance, ranks)
        case.do("drain", case.now)
        while not isinstance(case.log[-1], Drained):
            case.wait()
        assert case.machine.deadline_ns is None, seed
        spawned = {(effect.node, effect.incarnation) for effect in case.log if isinstance(effect, Spawn)}
        assert Counter(downs(case.log)) == Counter(spawned), seed
        ups = [(effect.node, effect.incarnation) for effect in case.log if isinstance(effect, NodeUp)]
        assert len(ups) == len(set(ups)), seed
        for node, incarnation in ups:
            order = [type(effect) for effect in case.log if _names(effect) == (node, incarnation)]
            assert order.index(NodeUp) < order.index(NodeDown), seed


def _names(effect: Effect) -> tuple[str, int] | None:
    return (effect.node, effect.incarnation) if isinstance(effect, NodeUp | NodeDown) else None


def _random_event(case: Case, chance: random.Random, ranks: int) -> None:
    node = chance.choice([node.name for node in case.plan.nodes])
    rank = chance.randrange(ranks)
    incarnation = case.machine.incarnation(node) - chance.choice([0, 0, 0, 1])
    case.words[node, rank] += chance.choice([0, 0, 1])
    calls = [
        ("ready", node, rank, incarnation, {}),
        ("ready", node, rank, incarnation, {}),
        ("exited", node, rank, incarnation, KILLED),
        ("load_failed", node, rank, incarnation, Failure("x", "y")),
        ("channel_closed", node, rank, incarnation, "closed"),
        ("work", node, chance.choice([True, True, False])),
        ("pong", node, rank, incarnation),
        ("timer",),
    ]
    case.do(*chance.choice(calls))
    due = case.machine.deadline_ns
    case.now += chance.randrange(10 * NS) if due is None or chance.random() < 0.5 else max(0, due - case.now)


def test_a_hang_while_loading_is_killed_at_the_limit_and_tried_once_more() -> None:
    case = Case({"llm": 1, "tts": 1})
    case.do("start")
    case.do("ready", "tts.0", 0, 1, {})
    case.do("loading", "llm.0", 1, "weights 40%")
    text = "it was not ready after 100 s (last heard: weights 40%)"
    assert case.wait(100) == [Kill("llm.0", 0, 1, text), NodeDown("llm.0", 1, "load_limit", text)]
    assert case.crash("llm.0") == []
    assert case.wait(1) == [Spawn("llm.0", 0, 2)]
    case.wait(100)
    text = "it was not ready after 100 s"
    assert case.log[-3:] == [
        Kill("llm.0", 0, 2, text),
        NodeDown("llm.0", 2, "load_limit", text),
        Escalate(f"llm.0 is lost and no replica of it is left: {text}"),
    ]
    assert case.machine.state()[0] == StageHealth("llm", "failed", 0, 1, f"llm.0: {text}", 1)


def test_the_first_load_that_fails_is_told_with_its_cause_and_not_repeated() -> None:
    case = Case({"llm": 1})
    case.do("start")
    failure = Failure("stage_failed", "no such file: weights.bin", "llm")
    assert case.do("load_failed", "llm.0", 0, 1, failure) == [
        Kill("llm.0", 0, 1, "llm: no such file: weights.bin"),
        NodeDown("llm.0", 1, "load_failed", "llm: no such file: weights.bin"),
        Escalate("llm.0 is lost and no replica of it is left: llm: no such file: weights.bin"),
    ]
    assert case.crash("llm.0", ExitReason("exit", 1)) == []
    assert case.machine.deadline_ns is None


def test_a_load_that_fails_after_the_stage_has_worked_is_repeated() -> None:
    case = Case({"llm": 1}, intensity=3)
    case.start()
    case.crash("llm.0")
    case.wait(1)
    effects = case.do("load_failed", "llm.0", 0, 2, Failure("stage_failed", "out of memory"))
    assert effects == [Kill("llm.0", 0, 2, "out of memory"), NodeDown("llm.0", 2, "load_failed", "out of memory")]
    case.crash("llm.0")
    assert case.wait(2) == [Spawn("llm.0", 0, 3)]


@pytest.mark.parametrize(("served", "phase"), [(False, "failed"), (True, "waiting")])
def test_an_interpreter_that_does_not_start_fails_the_first_start_only(served: bool, phase: str) -> None:
    case = Case({"llm": 1})
    case.do("start")
    if served:
        case.do("ready", "llm.0", 0, 1, {})
        case.crash("llm.0")
        case.wait()
    effects = case.crash("llm.0", ExitReason("spawn", 2, text="No such file: robot/python"))
    assert effects[0] == NodeDown(
        "llm.0", case.machine.incarnation("llm.0"), "spawn", "could not be started: No such file: robot/python"
    )
    assert case.machine.phase("llm.0") == phase


def test_a_crash_while_loading_is_restarted_even_at_the_first_start() -> None:
    case = Case({"llm": 1})
    case.do("start")
    case.crash("llm.0")
    assert case.wait(1) == [Spawn("llm.0", 0, 2)]
    assert case.machine.state()[0].state == "restarting"


def test_a_step_over_its_limit_is_a_hang() -> None:
    case = Case({"llm": 1})
    case.start()
    case.words["llm.0", 0] = 7
    case.do("work", "llm.0", True)
    while case.log[-1:] != [NodeDown("llm.0", 1, "hung", "one step has been running for more than 20 s")]:
        case.wait()
    assert case.now == 20 * NS
    assert isinstance(case.log[-2], Kill)
    assert not any(isinstance(effect, Ping) for effect in case.log)


def test_a_parked_node_is_pinged_and_only_its_silence_kills_it() -> None:
    case = Case({"llm": 1})
    case.start()
    case.do("work", "llm.0", True)
    assert case.wait(LOOK / NS) == [Ping("llm.0", 0, 1)]
    assert case.do("pong", "llm.0", 0, 1) == []
    assert case.wait(LOOK / NS) == [Ping("llm.0", 0, 1)]
    text = f"it did not answer within {hang.ANSWER_LIMIT_S:g} s"
    assert case.wait(ANSWER / NS) == [Kill("llm.0", 0, 1, text), NodeDown("llm.0", 1, "hung", text)]


def test_the_next_incarnation_is_watched_too_while_work_waits_for_it() -> None:
    case = Case({"llm": 1})
    case.start()
    case.do("work", "llm.0", True)
    case.crash("llm.0")
    case.wait(1)
    case.do("ready", "llm.0", 0, 2, {})
    assert case.wait(LOOK / NS) == [Ping("llm.0", 0, 2)]


def test_a_closed_channel_waits_for_the_exit_notice_which_says_more() -> None:
    case = Case({"llm": 1})
    case.start()
    assert case.do("channel_closed", "llm.0", 0, 1, "its channel closed") == []
    assert case.crash("llm.0", ExitReason("signal", 11)) == [NodeDown("llm.0", 1, "signal", "was ended by SIGSEGV")]


def test_a_closed_channel_without_an_exit_is_killed() -> None:
    case = Case({"llm": 1})
    case.start()
    case.do("channel_closed", "llm.0", 0, 1, "it stopped reading")
    assert case.wait(supervisor.EXIT_NOTICE_S) == [
        Kill("llm.0", 0, 1, "it stopped reading"),
        NodeDown("llm.0", 1, "channel", "it stopped reading"),
    ]


def test_a_process_that_survives_its_kill_is_given_up() -> None:
    case = Case({"llm": 1})
    case.start()
    case.do("channel_closed", "llm.0", 0, 1, "it stopped reading")
    case.wait()
    effects = case.wait(supervisor.EXIT_LIMIT_S)
    assert [type(effect) for effect in effects] == [Escalate]
    assert "did not end within 30 s" in case.machine.state()[0].detail
    assert case.machine.deadline_ns is None


def test_drain_stops_the_groups_in_reverse_order_and_replicas_together() -> None:
    case = Case({"llm": 2, "tts": 1})
    case.start()
    assert case.do("drain", 100 * NS) == [SendDrain("tts.0", 0, 1)]
    assert case.crash("tts.0", CLEAN) == [
        NodeDown("tts.0", 1, "drained", "stopped"),
        SendDrain("llm.0", 0, 1),
        SendDrain("llm.1", 0, 1),
    ]
    assert case.crash("llm.1", CLEAN) == [NodeDown("llm.1", 1, "drained", "stopped")]
    assert case.crash("llm.0", CLEAN) == [NodeDown("llm.0", 1, "drained", "stopped"), Drained()]
    assert case.machine.deadline_ns is None


def test_drain_kills_what_is_loading_and_starts_nothing_again() -> None:
    case = Case({"llm": 1, "tts": 1, "vocoder": 1})
    case.do("start")
    case.do("ready", "tts.0", 0, 1, {})
    case.crash("llm.0")
    assert case.machine.phase("llm.0") == "waiting"
    text = "the pipeline stops"
    assert case.do("drain", 100 * NS) == [
        Kill("vocoder.0", 0, 1, text),
        NodeDown("vocoder.0", 1, "drained", text),
    ]
    assert case.crash("vocoder.0") == [SendDrain("tts.0", 0, 1)]
    assert case.crash("tts.0") == [NodeDown("tts.0", 1, "signal", "was ended by SIGKILL"), Drained()]


def test_a_node_that_does_not_stop_is_killed_and_the_rest_still_stop_in_order() -> None:
    case = Case({"llm": 1, "tts": 1})
    case.start()
    case.do("drain", 100 * NS)
    assert case.do("channel_closed", "tts.0", 0, 1, "closed") == []
    text = "it did not stop within 10 s"
    assert case.wait(supervisor.STOP_LIMIT_S) == [Kill("tts.0", 0, 1, text), NodeDown("tts.0", 1, "drained", text)]
    assert case.crash("tts.0") == [SendDrain("llm.0", 0, 1)]


def test_at_the_drain_deadline_everything_is_killed() -> None:
    case = Case({"llm": 1, "tts": 1})
    case.start()
    case.do("drain", 5 * NS)
    effects = case.wait(5)
    assert [type(effect) for effect in effects] == [Kill, NodeDown, Kill, NodeDown]
    assert case.crash("llm.0") == []
    assert case.crash("tts.0") == [Drained()]


def test_a_second_drain_may_bring_the_end_nearer() -> None:
    case = Case({"llm": 1})
    case.start()
    case.do("drain", 100 * NS)
    case.do("drain", 200 * NS)
    effects = case.do("drain", case.now)
    assert [type(effect) for effect in effects] == [Kill, NodeDown]
    assert case.crash("llm.0") == [Drained()]


def test_a_pipeline_with_nothing_running_is_drained_at_once() -> None:
    case = Case({"llm": 1})
    assert case.do("drain", NS) == [Drained()]
    assert case.do("drain", NS) == []


def test_all_ranks_of_a_draining_node_may_take_their_time() -> None:
    case = Case({"llm": 1}, ranks=2)
    case.start()
    assert case.do("drain", 100 * NS) == [SendDrain("llm.0", 0, 1), SendDrain("llm.0", 1, 1)]
    assert case.do("exited", "llm.0", 1, 1, CLEAN) == []
    assert case.do("exited", "llm.0", 0, 1, CLEAN) == [NodeDown("llm.0", 1, "drained", "stopped"), Drained()]


def test_health_tells_each_stage_of_its_own_group() -> None:
    case = Case({"llm": 2, "tts": 1})
    case.do("start")
    case.do("loading", "tts.0", 1, "weights 40%")
    assert case.machine.state() == (
        StageHealth("llm", "loading", 0, 2),
        StageHealth("tts", "loading", 0, 1, "tts.0: weights 40%"),
    )
    for node in ("llm.0", "llm.1", "tts.0"):
        case.do("ready", node, 0, 1, {})
    case.crash("llm.0")
    case.crash("tts.0")
    assert case.machine.state() == (
        StageHealth("llm", "ready", 1, 2, "llm.0: was ended by SIGKILL"),
        StageHealth("tts", "restarting", 0, 1, "tts.0: was ended by SIGKILL"),
    )
    case.wait()
    case.do("hello", "tts.0", 0, 2)
    assert case.machine.state()[1].detail == "tts.0: loading after: was ended by SIGKILL"
    assert case.machine.state()[1].restarts == 1
