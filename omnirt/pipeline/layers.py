"""The layers of a configuration made into one tree: pipeline file, then deploy overlays, then `--set key=value`.

In the tree stages, edges and nodes are tables by name (an edge's name is `a.x -> b.y`), so one merge serves all
layers. Every value remembers where it was written. An overlay and `--set` change what the pipeline has; only the
pipeline file adds stages and edges.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from datetime import date, time
from pathlib import Path
from typing import Any, cast

from omnirt.loader import did_you_mean
from omnirt.pipeline.findings import Finding, Origin
from omnirt.pipeline.toml_lines import key_lines, line_of

KeyPath = tuple[str, ...]
NAMED = ("stage", "edge")


class Tree:
    """Merged values and, for each path that was written, where."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.findings: list[Finding] = []
        self._origins: dict[KeyPath, Origin] = {}
        self._file = Origin("")
        self.is_readable = True
        """False when the pipeline's own file said nothing: then nothing can be said about its content."""

    def origin(self, path: KeyPath) -> Origin:
        """Where `path`, or the nearest thing around it, was written."""
        while path:
            if path in self._origins:
                return self._origins[path]
            path = path[:-1]
        return self._file

    def wrong(self, origin: Origin, place: str, message: str) -> None:
        self.findings.append(Finding(origin, place, message))

    def read(self, path: str, *, overlay: bool = False) -> None:
        """Add a file as a layer."""
        raw = self._parse(path)
        if not overlay:
            self._file = Origin(path)
        if raw is None:
            self.is_readable &= overlay
        else:
            text, table = raw
            lines = key_lines(text)
            for name in NAMED:
                if isinstance(table.get(name), list):
                    table[name] = self._by_name(path, name, table[name], lines)
            layer = _Layer(path, lines)
            self._merge(self.values, table, (), layer, adds=not overlay)

    def set(self, assignment: str) -> None:
        """Add `key.path=value` as a layer."""
        origin = Origin(f"--set {assignment}")
        dotted, equals, text = assignment.partition("=")
        path = tuple(part.strip() for part in dotted.split("."))
        if not equals or not all(path):
            self.wrong(origin, "", "write it as key.path=value, for example limits.requests_max=8")
            return
        for target in self._targets(path, origin):
            layer: Any = _value(text)
            for key in reversed(target):
                layer = {key: layer}
            self._merge(self.values, layer, (), _Layer(str(origin), {}), adds=False)

    def _parse(self, path: str) -> tuple[str, dict[str, Any]] | None:
        try:
            text = Path(path).read_text(encoding="utf-8")
            return text, tomllib.loads(text)
        except OSError as error:
            self.wrong(Origin(path), "", f"cannot be read: {error.strerror}")
        except UnicodeDecodeError:
            self.wrong(Origin(path), "", "is not UTF-8 text")
        except tomllib.TOMLDecodeError as error:
            where = re.search(r"at line (\d+)", str(error))
            self.wrong(Origin(path, int(where[1]) if where else 0), "", f"is not TOML: {error}")
        return None

    def _by_name(self, path: str, kind: str, tables: list[Any], lines: dict[KeyPath, int]) -> dict[str, Any]:
        """An array of tables as a table by name; lines are renamed with it."""
        named: dict[str, Any] = {}
        for index, table in enumerate(tables):
            name = _name_of(kind, table) or f"#{index + 1}"
            if name in named:
                origin = Origin(path, line_of(lines, (kind, str(index))))
                self.wrong(origin, f"{kind} {name}", f"there are two of this name; give each {kind} its own")
                continue
            named[name] = table
            for old in [key for key in lines if key[:2] == (kind, str(index))]:
                lines[(kind, name, *old[2:])] = lines[old]
        return named

    def _merge(self, into: dict[str, Any], layer: dict[str, Any], path: KeyPath, source: _Layer, *, adds: bool) -> None:
        for key, value in layer.items():
            here = (*path, key)
            origin = source.origin(here)
            if not adds and path and path[0] in NAMED and len(path) == 1 and key not in into:
                message = f"the pipeline has no such {path[0]}{did_you_mean(key, into)}"
                self.wrong(origin, f"{path[0]} {key}", message)
            elif isinstance(value, dict) and isinstance(into.get(key, {}), dict):
                self._origins.setdefault(here, origin)
                self._merge(into.setdefault(key, {}), cast("dict[str, Any]", value), here, source, adds=adds)
            else:
                into[key] = value
                self._origins[here] = origin

    def _targets(self, path: KeyPath, origin: Origin) -> list[KeyPath]:
        """The paths `--set` means: `edge.llm.hidden.credit` is every edge that leaves `llm.hidden`."""
        if path[0] != "edge" or len(path) < 3:
            return [path]
        edges: dict[str, Any] = self.values.get("edge", {})
        wanted = ".".join(path[1:-1])
        found = [name for name in edges if name == wanted or name.partition(" -> ")[0] == wanted]
        if not found:
            sources = {name.partition(" -> ")[0] for name in edges}
            near = did_you_mean(wanted, sources)
            message = f"the pipeline file has no such edge{near}; an implied one must be written there to be set"
            self.wrong(origin, f"edge {wanted}", message)
        return [("edge", name, path[-1]) for name in found]


class _Layer:
    def __init__(self, file: str, lines: dict[KeyPath, int]) -> None:
        self._file = file
        self._lines = lines

    def origin(self, path: KeyPath) -> Origin:
        return Origin(self._file, line_of(self._lines, path))


def merged(path: str, overlays: Sequence[str] = (), sets: Sequence[str] = ()) -> Tree:
    """All layers in order, the later one winning."""
    tree = Tree()
    tree.read(path)
    for overlay in overlays:
        tree.read(overlay, overlay=True)
    for assignment in sets:
        tree.set(assignment)
    return tree


def _name_of(kind: str, table: Any) -> str:
    if not isinstance(table, dict):
        return ""
    values = cast("dict[str, Any]", table)
    if kind == "edge":
        ends = values.get("from"), values.get("to")
        return " -> ".join(str(end).strip() for end in ends) if all(ends) else ""
    name = values.get("name")
    return name if isinstance(name, str) else ""


def _value(text: str) -> Any:
    """A TOML value, or the text itself where it is none (`cuda:0`, `heart`)."""
    try:
        value: Any = tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, KeyError):
        return text
    return text if isinstance(value, date | time) else value
