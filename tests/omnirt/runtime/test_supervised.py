"""What the supervisor knows of a node: limits of its stages, its nearest deadline, its words for people."""

from __future__ import annotations

import random

from omnirt.runtime.supervised import SupervisedNode
from omnirt.wire.plan import NodePlan, Plan, StagePlan

S = 1_000_000_000


def node(ranks: int = 1) -> SupervisedNode:
    stages = (
        StagePlan("a", "m:A", "g", step_limit_s=4, load_limit_s=50),
        StagePlan("b", "m:B", "g", step_limit_s=8, load_limit_s=20),
    )
    placed = NodePlan("g.0", "g", 0, ("a", "b"), ranks=ranks)
    plan = Plan("p", (), (), stages, (), (placed,), ())
    return SupervisedNode(plan, placed, random.Random(0), lambda name, rank: 0)


def test_a_fused_node_has_the_longest_limits_of_its_stages() -> None:
    fused = node()
    assert (fused.load_limit_s, fused.step_limit_s) == (50, 8)


def test_the_nearest_of_its_deadlines_counts() -> None:
    known = node()
    assert known.deadline_ns() is None
    known.due_ns = 9 * S
    assert known.deadline_ns() == 9 * S
    known.watch.arm(S)
    assert known.deadline_ns() == 3 * S  # a quarter of the step limit
    known.notice_ns = 2 * S
    assert known.deadline_ns() == 2 * S


def test_the_detail_says_what_it_does_and_why_again() -> None:
    known = node()
    assert known.detail() == ""
    known.trouble = "was ended by SIGKILL"
    assert known.detail() == "was ended by SIGKILL"
    known.heard = "weights 40%"
    assert known.detail() == "weights 40% after: was ended by SIGKILL"


def test_ranks_are_named_where_there_are_several() -> None:
    assert node().by_rank(0, "exited") == "exited"
    assert node(ranks=2).by_rank(1, "exited") == "rank 1 exited"
