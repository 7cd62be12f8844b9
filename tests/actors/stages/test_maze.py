"""The maze through a small driver: in-process queues, one chunk or end mark at a time, in a seeded order."""

from collections import deque
from random import Random

import numpy as np
import pytest

from omnirt.actors.stages.maze import TRAIL, Guide, Walk, expected
from omnirt.loader import resolve
from omnirt.pipeline.deploy import load_plan
from omnirt.pipeline.router import needed_stages
from omnirt.runtime.stage import Chunk, Context, NoOptions, Request
from omnirt.wire.payload import Text

END = object()


class Driver:
    """One request through the stages that answer in text."""

    def __init__(self, text, seed):
        self.random = Random(seed)
        self.plan = load_plan("maze")
        needed = needed_stages(self.plan, ["text"], ["text"])
        self.stages = {name: resolve(self.plan.stage(name).actor)(NoOptions()) for name in needed}
        self.requests = {name: Request(1, "req_1", seed, {}, 0) for name in needed}
        self.queues = {edge.index: deque() for edge in self.plan.edges if edge.target in needed}
        self.unfinished = {name: self.sources(name) for name in needed}
        self.unanswered = 0
        self.unanswered_max = 0
        self.answer = []
        self.arrived = dict.fromkeys(self.queues, 0)
        (entry,) = [edge.index for edge in self.plan.edges if edge.source == "client"]
        self.queues[entry] += [Text(text), END]

    def sources(self, name):
        return sum(1 for edge in self.plan.edges if edge.target == name and edge.answers < 0)

    def run(self):
        while ready := [index for index, queue in self.queues.items() if queue and self.may_step(index)]:
            index = self.random.choice(ready)
            self.take(self.plan.edges[index], self.queues[index].popleft())
        return self.answer

    def may_step(self, index):
        """A walk starts only while the window has room."""
        edge = self.plan.edges[index]
        return edge.to_port != "number" or edge.target != "walk" or self.unanswered < 3 or self.queues[index][0] is END

    def take(self, edge, item):
        stage, request = self.stages[edge.target], self.requests[edge.target]
        context = Context(edge.target, "cpu", 0, 1, print)
        if item is END:
            self.unfinished[edge.target] -= edge.answers < 0
        else:
            self.unanswered -= edge.answers >= 0
            self.arrived[edge.index] += 1
            self.send(edge.target, stage.step(context, [Chunk(request, edge.to_port, item, 0)]))
        if self.unfinished[edge.target] == 0 and not (edge.target == "walk" and self.unanswered):
            self.unfinished[edge.target] = -1
            self.send(edge.target, stage.finish(context, request))
            self.finish(edge.target)

    def send(self, name, emissions):
        for emission in emissions:
            for edge in self.plan.edges:
                if (edge.source, edge.port) != (name, emission.port):
                    continue
                self.unanswered += edge.window > 0
                self.unanswered_max = max(self.unanswered_max, self.unanswered)
                if edge.target == "client":
                    self.answer.append(emission.payload.text)
                elif edge.index in self.queues:
                    self.queues[edge.index].append(emission.payload)

    def finish(self, name):
        for edge in self.plan.edges:
            if edge.source == name and edge.index in self.queues:
                self.queues[edge.index].append(END)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("text", ["6 8 5", "7 9", "6 27 1000 2 4", "1", "", "703 97 54"])
def test_the_answer_proves_the_way_whatever_the_order(text, seed):
    driver = Driver(text, seed)
    assert driver.run() == [expected(text)]
    assert driver.unanswered_max <= 3


def test_a_branch_that_is_not_taken_carries_nothing():
    driver = Driver("5 7", seed=1)
    assert driver.run() == ["2 of 2; walked -; squared 5:25 7:49"]
    names = {edge.index: edge.port for edge in driver.plan.edges}
    assert {names[index]: count for index, count in driver.arrived.items()}["even"] == 0
    assert driver.unanswered_max == 0


def test_the_arithmetic_of_the_example_is_right():
    assert expected("6 8 5") == "3 of 3; walked 6:8/49 8:3/7; squared 5:25"


def test_a_guide_takes_one_step_and_leaves_the_question_alone():
    walk = Walk(6, 0, np.zeros(TRAIL, np.int64))
    (emission,) = Guide(NoOptions()).step(
        Context("guide", "cpu", 0, 1, print), [Chunk(Request(1, "r", 0, {}, 0), "ask", walk, 0)]
    )
    assert (emission.payload.place(), emission.payload.steps) == (3, 1)
    assert walk.trail.sum() == 0
