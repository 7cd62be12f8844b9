"""Which replica gets a request, and which part of the graph a request needs. Pure: no clock, no chance.

A request goes to the ready replica with the fewest open requests, the least recently chosen of equals; requests with
the same affinity go where the last one of them went, as long as that replica is ready.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable

from omnirt.errors import Unsupported
from omnirt.ids import CLIENT
from omnirt.wire.plan import EdgePlan, Plan

AFFINITIES_MAX = 4096
"""Affinities remembered; the least recently used is forgotten first."""


class Router:
    """Invariant: `load(node)` is `opened` less `closed`; the caller pairs them, also for what a dead node held."""

    def __init__(self, plan: Plan, affinities_max: int = AFFINITIES_MAX) -> None:
        self._replicas: dict[str, list[str]] = {}
        for node in plan.nodes:
            self._replicas.setdefault(node.group, []).append(node.name)
        self._load = {node.name: 0 for node in plan.nodes}
        self._chosen_at = {node.name: 0 for node in plan.nodes}
        self._ready: set[str] = set()
        self._turn = 0
        self._sticky: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._affinities_max = affinities_max

    def ready(self, node: str) -> None:
        self._ready.add(node)

    def unready(self, node: str) -> None:
        """Never chosen until `ready` again."""
        self._ready.discard(node)

    def is_ready(self, node: str) -> bool:
        return node in self._ready

    def ready_replicas(self, group: str) -> list[str]:
        return [node for node in self._replicas[group] if node in self._ready]

    def load(self, node: str) -> int:
        return self._load[node]

    def choose(self, group: str, affinity: str = "", exclude: Collection[str] = ()) -> str | None:
        """A ready replica of `group` outside `exclude`, or None."""
        able = [node for node in self.ready_replicas(group) if node not in exclude]
        if not able:
            return None
        key = (group, affinity)
        node = self._sticky.get(key)
        if node not in able:
            node = min(able, key=lambda name: (self._load[name], self._chosen_at[name]))
        self._turn += 1
        self._chosen_at[node] = self._turn
        if affinity:
            self._remember(key, node)
        return node

    def opened(self, node: str) -> None:
        self._load[node] += 1

    def closed(self, node: str) -> None:
        assert self._load[node] > 0, f"{node}: closed more than it opened"
        self._load[node] -= 1

    def _remember(self, key: tuple[str, str], node: str) -> None:
        self._sticky[key] = node
        self._sticky.move_to_end(key)
        if len(self._sticky) > self._affinities_max:
            self._sticky.popitem(last=False)


def needed_stages(plan: Plan, inputs: Iterable[str], outputs: Iterable[str]) -> tuple[str, ...]:
    """The completion set: the stages on a way from one of `inputs` to one of `outputs`, in the plan's order.

    So a request for text never wakes the speech stages, and one without a recording never wakes those that hear.
    Raises Unsupported for an output that the pipeline does not give, or not from these inputs."""
    wanted, given = tuple(outputs), tuple(inputs)
    unknown = [output for output in wanted if output not in plan.outputs]
    if unknown:
        raise Unsupported(f"{plan.name} gives {', '.join(plan.outputs)}, not {', '.join(unknown)}")
    ends = [stage.name for stage in plan.stages if stage.final and stage.final in wanted]
    starts = [edge.target for edge in plan.edges if edge.source == CLIENT and edge.port in given]
    between = _reached(starts, [(edge.source, edge.target) for edge in plan.edges])
    between &= _reached(ends, [(edge.target, edge.source) for edge in plan.edges])
    missing = [stage.final for stage in plan.stages if stage.name in ends and stage.name not in between]
    if missing:
        raise Unsupported(f"{plan.name} makes no {', '.join(missing)} from {', '.join(given) or 'nothing'}")
    return tuple(stage.name for stage in plan.stages if stage.name in between)


def opened_edges(plan: Plan, inputs: Iterable[str], outputs: Iterable[str]) -> tuple[EdgePlan, ...]:
    """The edges a request opens: between the stages it needs, into them from the client, and out with what was asked
    for. An input that no such stage reads has no edge here."""
    given, wanted = frozenset(inputs), frozenset(outputs)
    needed = needed_stages(plan, given, wanted)
    return tuple(
        edge
        for edge in plan.edges
        if (edge.source in needed or (edge.source == CLIENT and edge.port in given))
        and (edge.target in needed or (edge.target == CLIENT and edge.to_port in wanted))
    )


def _reached(starts: Iterable[str], arrows: Iterable[tuple[str, str]]) -> set[str]:
    """`starts` and every stage that one comes to from them."""
    arrows = list(arrows)
    found = {start for start in starts if start != CLIENT}
    todo = list(found)
    while todo:
        here = todo.pop()
        fresh = {after for before, after in arrows if before == here and after != CLIENT} - found
        found |= fresh
        todo += fresh
    return found
