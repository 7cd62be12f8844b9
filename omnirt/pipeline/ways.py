"""Which part of a plan requests take that give the same and want the same: worked out once for all of them."""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct

from omnirt.errors import InvalidRequest
from omnirt.ids import CLIENT
from omnirt.pipeline.router import needed_stages, opened_edges
from omnirt.wire.plan import EdgePlan, Plan


class Way(Struct, frozen=True):
    """`arriving`, `leaving`: the edges that a stage, or the client, is the target or the source of."""

    stages: tuple[str, ...]
    groups: tuple[str, ...]
    """Of the stages, in their order, each once."""
    arriving: dict[str, tuple[EdgePlan, ...]]
    leaving: dict[str, tuple[EdgePlan, ...]]
    takes: tuple[str, ...]
    """Inputs that are read, by name."""
    is_pure: bool
    """All stages are."""


class Ways:
    """Invariant: there are as many as subsets of the plan's inputs and outputs at most; what is wrong is not kept."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._known: dict[tuple[frozenset[str], frozenset[str]], Way] = {}

    def of(self, given: Collection[str], wanted: Collection[str]) -> Way:
        """Raises InvalidRequest for an input that the pipeline does not take, Unsupported for an output that it does
        not give, or not from these inputs."""
        key = frozenset(given), frozenset(wanted)
        return self._known.get(key) or self._known.setdefault(key, self._found(*key))

    def _found(self, given: frozenset[str], wanted: frozenset[str]) -> Way:
        plan = self._plan
        foreign = given.difference(plan.inputs)
        if foreign:
            takes = f"{plan.name} takes {', '.join(plan.inputs)}, not {', '.join(sorted(foreign))}"
            raise InvalidRequest(takes, param="input")
        stages = needed_stages(plan, given, sorted(wanted))
        edges = opened_edges(plan, given, wanted)
        ends = (CLIENT, *stages)
        return Way(
            stages,
            tuple(dict.fromkeys(plan.group_of(stage) for stage in stages)),
            {end: tuple(edge for edge in edges if edge.target == end) for end in ends},
            {end: tuple(edge for edge in edges if edge.source == end) for end in ends},
            tuple(sorted({edge.port for edge in edges if edge.source == CLIENT})),
            all(plan.stage(stage).pure for stage in stages),
        )
