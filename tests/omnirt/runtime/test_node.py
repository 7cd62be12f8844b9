"""The node's loop: how often it turns. What a whole node does is in tests/actors/test_head.py and tests/kill."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from omnirt.errors import ConfigError, StageFailed
from omnirt.pipeline.deploy import load_plan
from omnirt.runtime.node import NodeProcess, _load_error


class Loop:
    """Callbacks wait until `once`."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.due.append(callback)

    def once(self) -> None:
        due, self.due = self.due, []
        for callback in due:
            callback()


class Busy:
    """Cells with a stage that always has rows."""

    def __init__(self, node: NodeProcess) -> None:
        self.node = node
        self.turns = 0
        self.is_busy = True

    def record(self, record: Any, body: Any) -> None:
        self.node.wake()  # as a cell does that has become ready

    def turn(self) -> None:
        self.turns += 1
        if self.is_busy:
            self.node.wake()


class Link:
    peer = "head"

    def __init__(self) -> None:
        self.is_rung = True

    def clear(self) -> bool:
        return self.is_rung

    def drain(self, hand_over: Callable[[Any, Any], None]) -> int:
        hand_over(None, None)
        return 1

    def pump(self, hand_over: Callable[[Any, Any], None]) -> int:
        return 0


@pytest.fixture
def node() -> Any:
    node: Any = object.__new__(NodeProcess)
    node._loop, node._links, node._spin_ns, node._woken = Loop(), {}, 0, False
    node._cells = Busy(node)
    return node


def test_doorbells_add_no_second_chain_of_turns(node: Any) -> None:
    node.wake()
    for _ in range(5):
        node._pump(Link())
    assert len(node._loop.due) == 1
    before = node._cells.turns
    for _ in range(10):
        node._loop.once()
        assert len(node._loop.due) == 1
    assert node._cells.turns == before + 10


def test_what_arrives_at_a_node_at_rest_is_worked_on_at_once(node: Any) -> None:
    node._cells.is_busy = False
    node._pump(Link())
    assert node._cells.turns == 1
    assert node._loop.due == []


def test_a_doorbell_without_a_record_leaves_the_node_wakeable(node: Any) -> None:
    link = Link()
    link.is_rung = False
    node._pump(link)
    node.wake()
    assert len(node._loop.due) == 1


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (ConfigError("no weights"), ConfigError, "no weights"),
        (ModuleNotFoundError("no", name="no_such.part"), ConfigError, "'no_such', which is not installed: install"),
        (ModuleNotFoundError("no module named json.x", name="json.x"), StageFailed, "ModuleNotFoundError: no module"),
        (KeyError("rate"), StageFailed, "KeyError: 'rate'"),
    ],
)
def test_a_stage_that_does_not_start_says_why(error: Exception, kind: type, words: str) -> None:
    why = _load_error(error, load_plan("echo").stages[0])
    assert type(why) is kind
    assert why.stage == "echo"
    assert words in why.message
