"""A checked spec made into a Plan: nodes, numbered edges, links with their sizes, threads. Pure and deterministic.

Loops: on each cycle one edge has `window = n`. The edge of that cycle that comes back into the sender is planned as
`answers = <index of the window's edge>`, and the cycle's other edges get credit for at least n chunks, so that a full
window can always travel round.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET

from omnirt.ids import CLIENT
from omnirt.pipeline.check import stage_options
from omnirt.pipeline.graph import Classes, Wire, cycles_of, wires_of
from omnirt.pipeline.sizing import has_arrays, links_of
from omnirt.pipeline.spec import NodeSpec, PipelineSpec, given
from omnirt.wire.payload import MODALITIES, Payload
from omnirt.wire.plan import EdgePlan, NodePlan, Plan, StagePlan


def place(spec: PipelineSpec, classes: Classes, cores: int) -> Plan:
    """`spec` must have passed the checks; `cores` are shared out over nodes that name no `threads`."""
    stages = tuple(_stage_plan(spec, classes, index) for index in range(len(spec.stage)))
    wires = wires_of(spec, classes)
    edges = _edge_plans(wires)
    nodes = _node_plans(spec, stages, cores)
    slabbed = frozenset(
        edge.index for edge, wire in zip(edges, wires, strict=True) if has_arrays(_payload_of(wire, classes))
    )
    groups = {stage.name: stage.group for stage in stages}
    return Plan(
        name=spec.name,
        inputs=spec.inputs,
        outputs=spec.outputs,
        stages=stages,
        edges=edges,
        nodes=nodes,
        links=links_of(nodes, edges, groups, slabbed, spec.limits),
        aliases=spec.aliases,
        limits=spec.limits,
        restart=spec.restart,
        voice=spec.voice,
    )


def _stage_plan(spec: PipelineSpec, classes: Classes, index: int) -> StagePlan:
    stage = spec.stage[index]
    kind = classes[stage.name]
    return StagePlan(
        name=stage.name,
        actor=stage.actor,
        group=stage.group,
        options=stage_options(stage, spec, kind),
        pure=kind.pure,
        **given(stage, "batch", "final", "step_limit_s", "load_limit_s", "after"),
    )


def _edge_plans(wires: tuple[Wire, ...]) -> tuple[EdgePlan, ...]:
    index_of = {wire: index for index, wire in enumerate(wires)}
    least_credit: dict[Wire, int] = {}
    answers: dict[Wire, int] = {}
    for cycle in cycles_of(wires):
        opening = next(wire for wire in cycle if wire.window)
        closing = next(wire for wire in cycle if wire.target == opening.source)
        answers[closing] = index_of[opening]
        for wire in cycle:
            if wire is not opening:
                least_credit[wire] = max(least_credit.get(wire, 0), opening.window)
    return tuple(
        _edge_plan(index, wire, answers.get(wire), least_credit.get(wire, 0)) for index, wire in enumerate(wires)
    )


def _edge_plan(index: int, wire: Wire, answers: int | None, least_credit: int) -> EdgePlan:
    values: dict[str, Any] = {}
    if wire.spec is not None:
        values = given(wire.spec, "stream", "overflow", "credit", "window", "chunk_bytes_max")
    if answers is not None:
        values["answers"] = answers
    edge = EdgePlan(index, wire.source, wire.port, wire.target, wire.to_port, **values)
    return edge if edge.credit >= least_credit else msgspec.structs.replace(edge, credit=least_credit)


def _node_plans(spec: PipelineSpec, stages: tuple[StagePlan, ...], cores: int) -> tuple[NodePlan, ...]:
    groups = list(dict.fromkeys(stage.group for stage in stages))
    share = _core_share({group: spec.node.get(group, NodeSpec()) for group in groups}, cores)
    return tuple(
        _node_plan(group, replica, spec.node.get(group, NodeSpec()), stages, share)
        for group in groups
        for replica in range(spec.node.get(group, NodeSpec()).replicas)
    )


def _node_plan(group: str, replica: int, node: NodeSpec, stages: tuple[StagePlan, ...], share: int) -> NodePlan:
    values = given(node, "device", "threads", "python", "ranks", "spin_us")
    values.setdefault("threads", share)
    if isinstance(node.device, list):
        values["device"] = node.device[replica % len(node.device)]
    members = tuple(stage.name for stage in stages if stage.group == group)
    return NodePlan(name=f"{group}.{replica}", group=group, replica=replica, stages=members, **values)


def _core_share(nodes: Mapping[str, NodeSpec], cores: int) -> int:
    """Threads for each process of the nodes that name none."""
    left = cores - sum(node.threads * node.replicas for node in nodes.values() if isinstance(node.threads, int))
    open_processes = sum(node.replicas for node in nodes.values() if node.threads is UNSET)
    return max(1, left // open_processes) if open_processes else 1


def _payload_of(wire: Wire, classes: Classes) -> type[Payload]:
    """What travels; the consumer's class when the client sends it, as that may be narrower than the modality's."""
    if wire.source != CLIENT:
        return classes[wire.source].emits[wire.port]
    if wire.target != CLIENT:
        return classes[wire.target].accepts[wire.to_port]
    return MODALITIES.get(wire.port, Payload)
