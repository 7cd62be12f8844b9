"""The graph a spec describes: every wire with the implied ones, its cycles, and who leads to whom.

A *wire* is an edge before it is placed. Wires the file need not write:

* an input modality M goes to every stage port named M that no edge feeds
* a stage with `final = "M"` sends its port M to the client
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import UNSET, Struct

from omnirt.ids import CLIENT
from omnirt.pipeline.spec import EdgeSpec, PipelineSpec
from omnirt.runtime.stage import Stage

Classes = Mapping[str, type[Stage]]
CYCLES_MAX = 1000
"""More than any pipeline has; a bound on the search."""


class Wire(Struct, frozen=True):
    """`spec` is None on an implied wire. `name` is how messages and `--set` call it."""

    source: str
    port: str
    target: str
    to_port: str
    spec: EdgeSpec | None = None

    @property
    def name(self) -> str:
        return f"{self.source}.{self.port} -> {self.target}.{self.to_port}"

    @property
    def window(self) -> int:
        return self.spec.window if self.spec is not None and isinstance(self.spec.window, int) else 0


def ends_of(edge: EdgeSpec) -> tuple[str, str, str, str] | None:
    """(source, port, target, port), or None when `from` or `to` is not `stage.port`."""
    source, dot, port = edge.source.strip().partition(".")
    target, other_dot, to_port = edge.to.strip().partition(".")
    if not all((source, dot, port, target, other_dot, to_port)):
        return None
    return source, port, target, to_port


def wires_of(spec: PipelineSpec, classes: Classes) -> tuple[Wire, ...]:
    """Explicit wires in the order of the file, then implied inputs, then implied outputs."""
    wires = [Wire(*ends, edge) for edge in spec.edge if (ends := ends_of(edge)) is not None]
    fed = {(wire.target, wire.to_port) for wire in wires}
    for stage in spec.stage:
        kind = classes.get(stage.name, Stage)
        wires += [
            Wire(CLIENT, modality, stage.name, modality)
            for modality in spec.inputs
            if modality in kind.accepts and (stage.name, modality) not in fed
        ]
    for stage in spec.stage:
        final = stage.final
        if final is not UNSET and final and not _has_output(wires, stage.name, str(final)):
            wires.append(Wire(stage.name, str(final), CLIENT, str(final)))
    return tuple(wires)


def cycles_of(wires: Iterable[Wire]) -> list[tuple[Wire, ...]]:
    """Every simple cycle once, starting at its alphabetically first stage; at most CYCLES_MAX."""
    leaving: dict[str, list[Wire]] = {}
    for wire in wires:
        if CLIENT not in (wire.source, wire.target):
            leaving.setdefault(wire.source, []).append(wire)
    cycles: list[tuple[Wire, ...]] = []
    for start in sorted(leaving):
        _search(start, (), leaving, cycles)
    return cycles


def reachable(starts: Iterable[str], wires: Iterable[Wire], *, backwards: bool = False) -> set[str]:
    """The stages one gets to from `starts` (which are among them) along the wires, never through the client."""
    steps: dict[str, set[str]] = {}
    for wire in wires:
        a, b = (wire.target, wire.source) if backwards else (wire.source, wire.target)
        if CLIENT not in (a, b):
            steps.setdefault(a, set()).add(b)
    seen = set(starts)
    todo = list(seen)
    while todo:
        for stage in steps.get(todo.pop(), set()) - seen:
            seen.add(stage)
            todo.append(stage)
    return seen


def _search(start: str, path: tuple[Wire, ...], leaving: dict[str, list[Wire]], cycles: list[tuple[Wire, ...]]) -> None:
    """Extend `path`, which began at `start`, through stages that sort after `start` and are not on it yet."""
    here = path[-1].target if path else start
    visited = {wire.source for wire in path}
    for wire in leaving.get(here, []):
        if len(cycles) >= CYCLES_MAX:
            return
        if wire.target == start:
            cycles.append((*path, wire))
        elif wire.target > start and wire.target not in visited and wire.target != here:
            _search(start, (*path, wire), leaving, cycles)


def _has_output(wires: list[Wire], stage: str, modality: str) -> bool:
    return any(w.source == stage and w.target == CLIENT and w.to_port == modality for w in wires)
