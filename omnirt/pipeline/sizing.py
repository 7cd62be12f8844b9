"""How large the ring and the slab between two processes must be, so that full is a bug and never back-pressure.

Each bound is a sum over who may hold a record: admitted requests x credit of the edge x its largest chunk.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import get_args, get_type_hints

import numpy as np

from omnirt.ids import CLIENT, HEAD
from omnirt.wire.codec import INLINE_BYTES_MAX
from omnirt.wire.messages import REPORTS_BYTES_MAX
from omnirt.wire.payload import Payload
from omnirt.wire.plan import EdgePlan, LimitsPlan, LinkPlan, NodePlan

RECORD_BYTES = 512
"""The rest of a record: the ring's own header, the chunk's fields and the payload's header."""
CONTROL_BYTES = 128
"""A whole record without a payload: returned credit, or an end mark less its reports."""
RING_BYTES_MIN = 1 << 16
PAGE_BYTES = 4096


def has_arrays(kind: type[Payload]) -> bool:
    """False for a payload that is all header (text): it never needs a slab slot."""
    hints = get_type_hints(kind).values()
    return any(hint is np.ndarray or np.ndarray in get_args(hint) for hint in hints)


def links_of(
    nodes: Iterable[NodePlan],
    edges: Iterable[EdgePlan],
    groups: Mapping[str, str],
    slabbed: frozenset[int],
    limits: LimitsPlan,
) -> tuple[LinkPlan, ...]:
    """One link for each pair of processes that exchange records, the head always as `a`. `groups`: stage -> group;
    `slabbed`: the edges whose payloads have arrays."""
    replicas: dict[str, list[str]] = {HEAD: [HEAD]}
    for node in nodes:
        replicas.setdefault(node.group, []).append(node.name)
    place = {**groups, CLIENT: HEAD}
    pairs: dict[tuple[str, str], list[EdgePlan]] = {}
    for edge in edges:
        ends = place[edge.source], place[edge.target]
        if ends[0] != ends[1]:
            pair = (ends[1], ends[0]) if ends[1] == HEAD or (ends[1], ends[0]) in pairs else ends
            pairs.setdefault(pair, []).append(edge)
    links: list[LinkPlan] = []
    for (group_a, group_b), carried in pairs.items():
        forth = [edge for edge in carried if place[edge.source] == group_a]
        back = [edge for edge in carried if place[edge.source] == group_b]
        links += [_link(a, b, forth, back, slabbed, limits) for a in replicas[group_a] for b in replicas[group_b]]
    return tuple(links)


def slab_bytes(edge: EdgePlan, limits: LimitsPlan) -> int:
    """What one edge asks of a slab."""
    return limits.requests_max * edge.credit * _pages(edge.chunk_bytes_max)


def _link(
    a: str, b: str, forth: list[EdgePlan], back: list[EdgePlan], slabbed: frozenset[int], limits: LimitsPlan
) -> LinkPlan:
    ring_bytes = max(_ring_bytes(forth, back, limits), _ring_bytes(back, forth, limits))
    slot_a, slots_a = _slab(forth, slabbed, limits)
    slot_b, slots_b = _slab(back, slabbed, limits)
    return LinkPlan(a, b, ring_bytes, slot_a, slots_a, slot_b, slots_b)


def _ring_bytes(out: list[EdgePlan], into: list[EdgePlan], limits: LimitsPlan) -> int:
    """Of the direction that carries `out`: its chunks and end marks, and credit returned for `into`."""
    per_request = 0
    for edge in out:
        per_request += edge.credit * (min(edge.chunk_bytes_max, INLINE_BYTES_MAX) + RECORD_BYTES)
        per_request += CONTROL_BYTES + REPORTS_BYTES_MAX  # the end mark
    for edge in into:
        per_request += edge.credit * CONTROL_BYTES
    # A quarter more: records of cancelled requests may still lie there when their places are taken again.
    needed = limits.requests_max * per_request * 5 // 4
    return max(RING_BYTES_MIN, 1 << (needed - 1).bit_length())


def _slab(out: list[EdgePlan], slabbed: frozenset[int], limits: LimitsPlan) -> tuple[int, int]:
    """(bytes of a slot, slots), (0, 0) when nothing large travels."""
    large = [edge for edge in out if edge.index in slabbed and edge.chunk_bytes_max > INLINE_BYTES_MAX]
    if not large:
        return 0, 0
    slots = sum(limits.requests_max * edge.credit for edge in large)
    return max(_pages(edge.chunk_bytes_max) for edge in large), slots


def _pages(count: int) -> int:
    return (count + PAGE_BYTES - 1) // PAGE_BYTES * PAGE_BYTES
