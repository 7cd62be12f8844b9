"""A plan in words and tables: what `omnirt plan` prints before anything starts."""

from __future__ import annotations

from collections.abc import Sequence

from omnirt.ids import CLIENT, HEAD
from omnirt.pipeline.sizing import slab_bytes
from omnirt.wire.plan import EdgePlan, LinkPlan, Plan

LARGE_BYTES = 256 << 20
"""From here on the plan says what makes it large."""


def describe(plan: Plan, shm_free_bytes: int | None = None) -> str:
    """Placement, edges, links with their memory, threads, limits; with free space given, whether it is enough."""
    names = f" (also: {', '.join(plan.aliases)})" if plan.aliases else ""
    parts = [
        f"pipeline {plan.name}{names}: {', '.join(plan.inputs)} -> {', '.join(plan.outputs)}",
        _nodes(plan),
        _stages(plan),
        _edges(plan),
        _links(plan),
        _limits(plan),
        _memory(plan, shm_free_bytes),
    ]
    return "\n\n".join(parts)


def shared_bytes(plan: Plan) -> int:
    """Shared memory of all links."""
    return sum(link.segment_bytes() for link in plan.links)


def shortage(plan: Plan, shm_free_bytes: int) -> str:
    """What to do when /dev/shm has no room for the plan; empty when it has."""
    needed = shared_bytes(plan)
    if needed <= shm_free_bytes:
        return ""
    size_mb = -(-needed * 5 // 4) >> 20
    return (
        f"the pipeline needs {size(needed)} of shared memory, /dev/shm has {size(shm_free_bytes)} free: start the "
        f"container with --shm-size={size_mb + 1}m, or {_advice(plan)}"
    )


def size(count: int) -> str:
    """`512 B`, `16 KB`, `4.2 MB`."""
    value, unit = float(count), "B"
    for unit in ("B", "KB", "MB", "GB"):
        if value < 1024 or unit == "GB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if value >= 100 or value == int(value) else f"{value:.1f} {unit}"


def _nodes(plan: Plan) -> str:
    rows = [
        (node.name, node.device, str(node.threads), str(node.ranks), ", ".join(node.stages), node.python or "-")
        for node in plan.nodes
    ]
    return _table("nodes", ("node", "device", "threads", "ranks", "stages", "python"), rows)


def _stages(plan: Plan) -> str:
    rows = [
        (
            stage.name,
            stage.actor,
            str(stage.batch),
            stage.final or "-",
            "yes" if stage.pure else "never",
            ", ".join(f"{key}={value}" for key, value in stage.options.items()) or "-",
        )
        for stage in plan.stages
    ]
    return _table("stages", ("stage", "actor", "batch", "final", "retried", "options"), rows)


def _edges(plan: Plan) -> str:
    rows = [
        (
            str(edge.index),
            f"{edge.source}.{edge.port} -> {edge.target}.{edge.to_port}",
            _way(plan, edge),
            "stream" if edge.stream else "whole",
            edge.overflow,
            str(edge.credit),
            _window(edge),
            size(edge.chunk_bytes_max),
        )
        for edge in plan.edges
    ]
    return _table("edges", ("#", "edge", "way", "sent", "full", "credit", "window", "chunk at most"), rows)


def _way(plan: Plan, edge: EdgePlan) -> str:
    ends = {HEAD if end == CLIENT else plan.group_of(end) for end in (edge.source, edge.target)}
    return "in process" if len(ends) == 1 else "ring"


def _window(edge: EdgePlan) -> str:
    if edge.window:
        return str(edge.window)
    return f"answers #{edge.answers}" if edge.answers >= 0 else "-"


def _links(plan: Plan) -> str:
    rows = [
        (
            f"{link.a} <-> {link.b}",
            f"2 x {size(link.ring_bytes)}",
            _slab(link.a_to_b_slots, link.a_to_b_slot_bytes),
            _slab(link.b_to_a_slots, link.b_to_a_slot_bytes),
            size(link.segment_bytes()),
        )
        for link in plan.links
    ]
    return _table("links", ("link", "rings", "slab ->", "slab <-", "memory"), rows)


def _slab(slots: int, slot_bytes: int) -> str:
    return f"{slots} x {size(slot_bytes)}" if slots else "-"


def _limits(plan: Plan) -> str:
    limits = plan.limits
    per_key = f", {limits.per_key_max} of one key" if limits.per_key_max else ""
    return (
        f"limits  {limits.requests_max} requests running, {limits.queue_max} waiting{per_key}; "
        f"deadline {limits.deadline_s:g} s, drain {limits.drain_s:g} s, {limits.attempts_max} attempts"
    )


def _memory(plan: Plan, shm_free_bytes: int | None) -> str:
    needed = shared_bytes(plan)
    free = "" if shm_free_bytes is None else f"; /dev/shm has {size(shm_free_bytes)} free"
    lines = [f"memory  {size(needed)} shared, in {len(plan.links)} link{'s' * (len(plan.links) != 1)}{free}"]
    if needed >= LARGE_BYTES:
        lines.append(f"        to make it smaller, {_advice(plan)}")
    if shm_free_bytes is not None and (short := shortage(plan, shm_free_bytes)):
        lines.append(f"        NOT ENOUGH: {short}")
    return "\n".join(lines)


def _advice(plan: Plan) -> str:
    """Names the edge that costs most and the keys that make it smaller."""
    costs = [(slab_bytes(edge, plan.limits), edge) for edge in plan.edges if _slabbed(plan, edge)]
    if not costs:
        return f"lower limits.requests_max ({plan.limits.requests_max})"
    cost, edge = max(costs, key=lambda pair: pair[0])
    return (
        f"lower limits.requests_max ({plan.limits.requests_max}), or credit ({edge.credit}) or chunk_bytes_max "
        f"({edge.chunk_bytes_max}) of edge {edge.source}.{edge.port} -> {edge.target}.{edge.to_port}: "
        f"together they are {size(cost)}"
    )


def _slabbed(plan: Plan, edge: EdgePlan) -> bool:
    """Whether a link has slots that this edge's chunks fit in (text has none)."""
    ends = [HEAD if end == CLIENT else plan.group_of(end) for end in (edge.source, edge.target)]
    return any(slot_bytes >= edge.chunk_bytes_max for link in plan.links for slot_bytes in _slots(link, *ends))


def _slots(link: LinkPlan, source: str, target: str) -> Sequence[int]:
    a, b = link.a.rpartition(".")[0] or link.a, link.b.rpartition(".")[0] or link.b
    if (a, b) == (source, target):
        return (link.a_to_b_slot_bytes,)
    return (link.b_to_a_slot_bytes,) if (b, a) == (source, target) else ()


def _table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their widest cell; a column in which every cell is `-` is left out."""
    kept = [index for index in range(len(header)) if any(row[index] != "-" for row in rows)]
    lines = [[header[index] for index in kept], *([row[index] for index in kept] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(kept))]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n  ".join([title, *text])
