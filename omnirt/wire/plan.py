"""A placed pipeline: what `omnirt plan` prints, the head runs and each node gets its part of. Only data.

Words: a *group* is a node of the pipeline file (stages that share a process); each group has `replicas` nodes named
`<group>.<k>`; a node may have several ranks (processes) of which rank 0 speaks. Edges are numbered; every message
names an edge by its index. The head takes part as a process named `head`.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct, field


class StagePlan(Struct, frozen=True):
    name: str
    actor: str
    """`module:Class`."""
    group: str
    options: dict[str, Any] = {}
    batch: int = 8
    """Requests in one step at most."""
    pure: bool = True
    final: str = ""
    """The output modality this stage gives to the client, or empty."""
    step_limit_s: float = 30.0
    """A step that takes longer is hung."""
    load_limit_s: float = 600.0
    after: tuple[str, ...] = ()


class EdgePlan(Struct, frozen=True):
    """`source` or `target` is `client` where the edge leaves the pipeline; the port is then the modality."""

    index: int
    source: str
    port: str
    target: str
    to_port: str
    stream: bool = True
    overflow: Literal["block", "drop_oldest"] = "block"
    credit: int = 8
    """Chunks of one request that may be on this edge and not yet consumed."""
    window: int = 0
    """On the edge that closes a cycle: records of one request sent and not yet answered. 0 elsewhere."""
    answers: int = -1
    """On an edge that brings answers back into the stage that owns a window: the index of that window's edge."""
    chunk_bytes_max: int = 1 << 20


class NodePlan(Struct, frozen=True):
    name: str
    group: str
    replica: int
    stages: tuple[str, ...]
    device: str = "cpu"
    threads: int = 1
    python: str = ""
    """Interpreter of this node; empty for the head's own."""
    ranks: int = 1
    spin_us: int = 0


class LinkPlan(Struct, frozen=True):
    """The pair of rings between two processes; sizes per direction. `slab_slots` is 0 where nothing large travels."""

    a: str
    b: str
    ring_bytes: int
    a_to_b_slot_bytes: int = 0
    a_to_b_slots: int = 0
    b_to_a_slot_bytes: int = 0
    b_to_a_slots: int = 0

    def segment_bytes(self) -> int:
        slabs = self.a_to_b_slot_bytes * self.a_to_b_slots + self.b_to_a_slot_bytes * self.b_to_a_slots
        return 2 * self.ring_bytes + slabs


class RestartPlan(Struct, frozen=True):
    """`intensity` restarts within `window_s` are allowed; the first waits `backoff_s`, doubling to `backoff_max_s`."""

    intensity: int = 5
    window_s: float = 60.0
    backoff_s: float = 0.1
    backoff_max_s: float = 10.0


class LimitsPlan(Struct, frozen=True):
    requests_max: int = 64
    """Requests running at once: the slots of the fence page."""
    queue_max: int = 64
    """Requests waiting for a slot; one more is refused."""
    per_key_max: int = 0
    """Requests of one API key, running and waiting; 0 for no limit of its own."""
    deadline_s: float = 120.0
    drain_s: float = 30.0
    attempts_max: int = 3
    """Times a request may be started in all, when stages die around it."""
    input_chars_max: int = 4096


class Plan(Struct, frozen=True):
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    stages: tuple[StagePlan, ...]
    edges: tuple[EdgePlan, ...]
    nodes: tuple[NodePlan, ...]
    links: tuple[LinkPlan, ...]
    aliases: tuple[str, ...] = ()
    """Further model names clients may use."""
    limits: LimitsPlan = LimitsPlan()
    restart: RestartPlan = RestartPlan()
    voice: dict[str, Any] = field(default_factory=dict)

    def stage(self, name: str) -> StagePlan:
        return next(stage for stage in self.stages if stage.name == name)

    def node(self, name: str) -> NodePlan:
        return next(node for node in self.nodes if node.name == name)

    def group_of(self, stage: str) -> str:
        return self.stage(stage).group

    def replicas(self, group: str) -> tuple[NodePlan, ...]:
        return tuple(node for node in self.nodes if node.group == group)
