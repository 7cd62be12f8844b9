"""A pipeline file as frozen structs: exactly the keys one may write, and which of them are needed.

A key left out is UNSET here, so that each default lives in one place: `omnirt.wire.plan` for what the plan carries,
the stage's own `Options` for the rest.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from omnirt.wire.plan import LimitsPlan, RestartPlan

COUNT_MAX = 1 << 31
"""More of anything is a slip of the finger; arithmetic further on may rely on it."""
PROCESSES_MAX = 1024
Count = Annotated[int, Meta(ge=1, le=COUNT_MAX)]
Processes = Annotated[int, Meta(ge=1, le=PROCESSES_MAX)]
Seconds = Annotated[float, Meta(gt=0, le=COUNT_MAX)]
Name = Annotated[str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$")]
Device = Annotated[str, Meta(pattern=r"^(cpu|cuda:[0-9]+)$")]


class StageSpec(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`[[stage]]`. `node` is the group it shares a process with; its own name when left out."""

    name: Name
    actor: str
    node: Name | UnsetType = UNSET
    final: str | UnsetType = UNSET
    batch: Count | UnsetType = UNSET
    options: dict[str, Any] = {}
    step_limit_s: Seconds | UnsetType = UNSET
    load_limit_s: Seconds | UnsetType = UNSET
    after: tuple[str, ...] | UnsetType = UNSET

    @property
    def group(self) -> str:
        return self.name if isinstance(self.node, UnsetType) else self.node


class EdgeSpec(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename={"source": "from"}):
    """`[[edge]]`. `from` is `stage.port`, or `client.modality`; `to` is `stage.port`."""

    source: str
    to: str
    stream: bool | UnsetType = UNSET
    credit: Count | UnsetType = UNSET
    window: Count | UnsetType = UNSET
    overflow: Literal["block", "drop_oldest"] | UnsetType = UNSET
    chunk_bytes_max: Count | UnsetType = UNSET


class NodeSpec(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`[node.NAME]`. Replicas take the devices in turn when `device` is a list."""

    device: Device | Annotated[list[Device], Meta(min_length=1)] | UnsetType = UNSET
    replicas: Processes = 1
    threads: Count | UnsetType = UNSET
    """An equal share of the machine's cores when left out."""
    python: str | UnsetType = UNSET
    ranks: Processes | UnsetType = UNSET
    spin_us: Annotated[int, Meta(ge=0)] | UnsetType = UNSET


class PipelineSpec(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    name: Annotated[str, Meta(min_length=1)]
    aliases: tuple[str, ...] = ()
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    weights: str = ""
    """Given to every stage whose Options have a `weights` key that the stage leaves out."""
    serves: dict[str, Any] = {}
    """What a checkpoint's config.json says when this pipeline is for it: `omnirt run FOLDER` looks here."""
    stage: tuple[StageSpec, ...]
    edge: tuple[EdgeSpec, ...] = ()
    node: dict[str, NodeSpec] = {}
    limits: LimitsPlan = LimitsPlan()
    restart: RestartPlan = RestartPlan()
    voice: dict[str, Any] = {}


def given(spec: Struct, *names: str) -> dict[str, Any]:
    """Those of the named fields that the file sets, by name."""
    values = {name: getattr(spec, name) for name in names}
    return {name: value for name, value in values.items() if value is not UNSET}
