"""Everything wrong with a pipeline's stages, ports and graph, found before anything starts.

Each `_check_*` looks at one kind of mistake and adds to the list; none stops another.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import cast

import msgspec

from omnirt.errors import ConfigError
from omnirt.ids import CLIENT, HEAD
from omnirt.loader import did_you_mean, resolve
from omnirt.pipeline.decode import decode_options
from omnirt.pipeline.findings import Finding
from omnirt.pipeline.graph import Classes, Wire, cycles_of, ends_of, reachable, wires_of
from omnirt.pipeline.layers import KeyPath, Tree
from omnirt.pipeline.spec import COUNT_MAX, PipelineSpec, StageSpec
from omnirt.runtime.stage import Stage
from omnirt.wire.payload import MODALITIES, Payload


def stage_classes(spec: PipelineSpec, tree: Tree) -> tuple[dict[str, type[Stage]], list[Finding]]:
    """The class of every stage that has one."""
    classes: dict[str, type[Stage]] = {}
    findings: list[Finding] = []
    for stage in spec.stage:
        origin, place = tree.origin(("stage", stage.name, "actor")), f"stage {stage.name}"
        try:
            found = resolve(stage.actor)
        except ConfigError as error:
            findings.append(Finding(origin, place, f"actor = {stage.actor!r}: {error.message}"))
            continue
        problem = _not_a_stage(found)
        if problem:
            findings.append(Finding(origin, place, f"actor = {stage.actor!r} {problem}"))
        else:
            classes[stage.name] = found
    return classes, findings


def _not_a_stage(found: object) -> str:
    """What keeps a resolved name from being used as a stage; empty when nothing does."""
    if not (isinstance(found, type) and issubclass(found, Stage)):
        return "is not a Stage class"
    if not issubclass(found.Options, msgspec.Struct):  # type: ignore[reportUnnecessaryIsInstance]
        return "has Options that are not a msgspec.Struct"
    ports = {**found.accepts, **found.emits}
    wrong = [port for port, kind in ports.items() if not (isinstance(kind, type) and issubclass(kind, Payload))]  # type: ignore[reportUnnecessaryIsInstance]
    return f"has ports whose payload is no Payload class: {', '.join(wrong)}" if wrong else ""


def stage_options(stage: StageSpec, spec: PipelineSpec, kind: type[Stage]) -> dict[str, object]:
    """The options a stage gets: its own, and the pipeline's weights where it takes some and names none."""
    options = dict(stage.options)
    takes = {field.encode_name for field in msgspec.structs.fields(kind.Options)}
    if spec.weights and "weights" in takes:
        options.setdefault("weights", spec.weights)
    return options


class Check:
    """One run of all checks over one spec."""

    def __init__(self, spec: PipelineSpec, classes: Classes, tree: Tree) -> None:
        self.spec = spec
        self.classes = classes
        self.tree = tree
        self.wires = wires_of(spec, classes)
        self.names = {stage.name for stage in spec.stage}
        self.findings: list[Finding] = []

    def run(self) -> list[Finding]:
        self._check_stages()
        self._check_options()
        self._check_finals()
        self._check_edges()
        self._check_inputs()
        self._check_cycles()
        self._check_reach()
        self._check_nodes()
        self._check_limits()
        return self.findings

    def _wrong(self, path: KeyPath, place: str, message: str, *, warning: bool = False) -> None:
        self.findings.append(Finding(self.tree.origin(path), place, message, warning))

    def _check_stages(self) -> None:
        if not self.spec.stage and not self.tree.values.get("stage"):
            self._wrong(("stage",), "", "a pipeline needs at least one [[stage]]")
        for stage in self.spec.stage:
            place = f"stage {stage.name}"
            if stage.name in (CLIENT, HEAD) or stage.group in (CLIENT, HEAD):
                self._wrong(("stage", stage.name), place, f"{CLIENT!r} and {HEAD!r} are taken; choose another name")
            for other in _items(stage.after):
                if other not in self.names:
                    message = f"after = {other!r}: there is no such stage{did_you_mean(other, self.names)}"
                    self._wrong(("stage", stage.name, "after"), place, message)

    def _check_options(self) -> None:
        for stage in self.spec.stage:
            if stage.name in self.classes:
                kind = self.classes[stage.name]
                path = ("stage", stage.name, "options")
                options = stage_options(stage, self.spec, kind)
                self.findings += decode_options(kind.Options, options, path, self.tree)[1]
                self._check_weights((*path, "weights"), f"stage {stage.name}", stage.options.get("weights"))
        self._check_weights(("weights",), "weights", self.spec.weights)

    def _check_weights(self, path: KeyPath, place: str, weights: object) -> None:
        """What looks like a path must be there; anything else may be the id of a hub."""
        if isinstance(weights, str) and weights.startswith((".", "/", "~")) and not Path(weights).expanduser().exists():
            self._wrong(path, place, f"there is no file or folder {weights!r}")

    def _check_finals(self) -> None:
        givers: dict[str, str] = {}
        for stage in self.spec.stage:
            final = stage.final
            if not isinstance(final, str) or not final:
                continue
            path, place = ("stage", stage.name, "final"), f"stage {stage.name}"
            if final not in self.spec.outputs:
                near = did_you_mean(final, self.spec.outputs)
                self._wrong(path, place, f"final = {final!r} is not among the pipeline's outputs{near}")
            if final in givers:
                self._wrong(path, place, f"final = {final!r} is given by stage {givers[final]!r} already")
            givers.setdefault(final, stage.name)
        for output in self.spec.outputs:
            if output not in givers:
                near = did_you_mean(output, givers) if givers else ""
                self._wrong(("outputs",), "outputs", f'no stage has final = "{output}"{near}')

    def _check_edges(self) -> None:
        for edge in self.spec.edge:
            if ends_of(edge) is None:
                name = f"{edge.source} -> {edge.to}"
                self._wrong(("edge", name), f"edge {name}", "write from and to as 'stage.port' or 'client.modality'")
        for wire in self.wires:
            sent = self._payload_sent(wire)
            taken = self._payload_taken(wire)
            if sent is not None and taken is not None and not issubclass(sent, taken):
                message = f"{wire.source} sends {sent.__name__}, {wire.target} takes {taken.__name__}"
                self._wrong(_path(wire), _place(wire), message)
            if wire.spec is not None and wire.spec.overflow == "drop_oldest":
                if wire.spec.stream is False:
                    self._wrong(_path(wire), _place(wire), "overflow = 'drop_oldest' needs stream = true")
                if wire.window:
                    message = "an edge with a window may not drop: each record is answered"
                    self._wrong(_path(wire), _place(wire), message)

    def _payload_sent(self, wire: Wire) -> type[Payload] | None:
        if wire.source == CLIENT:
            if wire.port not in self.spec.inputs:
                near = did_you_mean(wire.port, self.spec.inputs)
                self._wrong(_path(wire), _place(wire), f"{wire.port!r} is not among the pipeline's inputs{near}")
            return MODALITIES.get(wire.port)
        kind = self._class_at(wire, wire.source)
        return None if kind is None else self._port(wire, kind, wire.port, "emits")

    def _payload_taken(self, wire: Wire) -> type[Payload] | None:
        if wire.target == CLIENT:
            finals = {stage.final for stage in self.spec.stage if stage.name == wire.source}
            if wire.source in self.names and wire.to_port not in finals:
                message = f'stage {wire.source} must say final = "{wire.to_port}" to send it to the client'
                self._wrong(_path(wire), _place(wire), message)
            return MODALITIES.get(wire.to_port)
        kind = self._class_at(wire, wire.target)
        return None if kind is None else self._port(wire, kind, wire.to_port, "accepts")

    def _class_at(self, wire: Wire, stage: str) -> type[Stage] | None:
        if stage not in self.names and stage not in self.tree.values.get("stage", {}):
            near = did_you_mean(stage, {*self.names, CLIENT})
            self._wrong(_path(wire), _place(wire), f"there is no stage {stage!r}{near}")
        return self.classes.get(stage)

    def _port(self, wire: Wire, kind: type[Stage], port: str, table: str) -> type[Payload] | None:
        ports = kind.emits if table == "emits" else kind.accepts
        if port not in ports:
            verb = "emits no" if table == "emits" else "has no input"
            self._wrong(_path(wire), _place(wire), f"{kind.__name__} {verb} {port!r}{did_you_mean(port, ports)}")
        return ports.get(port)

    def _check_inputs(self) -> None:
        taken = {wire.port for wire in self.wires if wire.source == CLIENT}
        ports = {port for kind in self.classes.values() for port in kind.accepts}
        for modality in self.spec.inputs:
            if modality not in taken:
                message = f"no stage takes {modality!r}{did_you_mean(modality, ports)}"
                self._wrong(("inputs",), "inputs", message, warning=len(self.classes) < len(self.spec.stage))

    def _check_cycles(self) -> None:
        on_cycle: set[str] = set()
        answered: dict[str, str] = {}
        for cycle in cycles_of(self.wires):
            on_cycle |= {wire.name for wire in cycle}
            windows = [wire for wire in cycle if wire.window]
            round_trip = " -> ".join([wire.source for wire in cycle] + [cycle[0].source])
            place = f"cycle {round_trip}"
            if not windows:
                self._wrong(_path(cycle[-1]), place, "one of its edges must have window = n, or it can deadlock")
            elif len(windows) > 1:
                names = " and ".join(wire.name for wire in windows)
                self._wrong(_path(windows[1]), place, f"only one edge may have a window, here {names} have")
            else:
                closing = next(wire for wire in cycle if wire.target == windows[0].source)
                other = answered.setdefault(closing.name, windows[0].name)
                if other != windows[0].name:
                    self._wrong(_path(closing), place, f"it would answer both {other} and {windows[0].name}")
            for wire in cycle:
                if wire.spec is not None and wire.spec.stream is False:
                    self._wrong(_path(wire), place, f"{wire.name} must be stream = true, it would wait for itself")
        for wire in self.wires:
            if wire.window and wire.name not in on_cycle:
                self._wrong((*_path(wire), "window"), _place(wire), "it is on no cycle; take its window away")

    def _check_reach(self) -> None:
        if len(self.classes) < len(self.spec.stage):
            return  # their ports are unknown, so are the edges implied by them
        fed = reachable({wire.target for wire in self.wires if wire.source == CLIENT}, self.wires)
        useful = reachable({wire.source for wire in self.wires if wire.target == CLIENT}, self.wires, backwards=True)
        for stage in self.spec.stage:
            path, place = ("stage", stage.name), f"stage {stage.name}"
            if stage.name not in fed:
                self._wrong(path, place, "no input of the pipeline reaches it")
            elif stage.name not in useful:
                self._wrong(path, place, "it leads to no output, so it never runs", warning=True)

    def _check_nodes(self) -> None:
        groups = {stage.group for stage in self.spec.stage}
        for name, node in self.spec.node.items():
            path, place = ("node", name), f"node {name}"
            if name not in groups:
                self._wrong(path, place, f"no stage runs on it{did_you_mean(name, groups)}")
            if isinstance(node.python, str) and node.python and not Path(node.python).exists():
                self._wrong((*path, "python"), place, f"there is no interpreter {node.python!r}")
        for group in groups & (self.names - {s.name for s in self.spec.stage if s.group == s.name}):
            place = f"stage {group}"
            message = f"it runs on another node, but node {group!r} is named after it"
            self._wrong(("stage", group, "node"), place, message, warning=True)

    def _check_limits(self) -> None:
        for table in ("limits", "restart"):
            for name, value in msgspec.structs.asdict(getattr(self.spec, table)).items():
                zero_is_fine = name in ("per_key_max", "queue_max", "intensity")
                if value > COUNT_MAX:
                    self._wrong((table, name), table, f"{name} = {value}: must be at most {COUNT_MAX}")
                elif not (value > 0 or (value == 0 and zero_is_fine)):
                    message = f"{name} = {value}: must be {'0 or more' if zero_is_fine else 'more than 0'}"
                    self._wrong((table, name), table, message)


def _items(value: object) -> Iterable[str]:
    return cast("tuple[str, ...]", value) if isinstance(value, tuple) else ()


def _path(wire: Wire) -> KeyPath:
    """Where an explicit wire is written; for an implied one, the stage that implies it."""
    if wire.spec is not None:
        return ("edge", f"{wire.spec.source.strip()} -> {wire.spec.to.strip()}")
    return ("stage", wire.target) if wire.source == CLIENT else ("stage", wire.source, "final")


def _place(wire: Wire) -> str:
    return f"edge {wire.name}"
