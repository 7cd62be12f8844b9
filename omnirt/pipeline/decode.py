"""The merged tree decoded into a PipelineSpec: every unknown key, wrong type and missing key, in one pass.

msgspec stops at the first mistake, so tables are walked here and msgspec converts the leaves. What a mistake spoils
is left out; the rest goes on, so that the graph can still be checked.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

import msgspec
from msgspec import Struct
from msgspec.structs import FieldInfo

from omnirt.loader import did_you_mean
from omnirt.pipeline.findings import Finding
from omnirt.pipeline.layers import KeyPath, Tree
from omnirt.pipeline.spec import EdgeSpec, NodeSpec, PipelineSpec, StageSpec

S = TypeVar("S", bound=Struct)

_TABLES: dict[str, type[Struct]] = {"stage": StageSpec, "edge": EdgeSpec, "node": NodeSpec}
_HINTS = {"device": "write 'cpu' or 'cuda:N'", "name": "a letter, then letters, digits, '-' and '_'"}


def decode(tree: Tree) -> tuple[PipelineSpec | None, list[Finding]]:
    """The spec, or None when too little is right to speak of one."""
    findings: list[Finding] = []
    plain = {key: value for key, value in tree.values.items() if key not in _TABLES}
    values = _walk(PipelineSpec, plain, (), tree, findings)
    for key, kind in _TABLES.items():
        if key in tree.values:
            items = _table_of(kind, tree.values[key], (key,), tree, findings)
            values[key] = items if key == "node" else tuple(items.values())
    return _build(PipelineSpec, values, (), tree, findings), findings


def decode_options(
    kind: type[Struct], options: dict[str, Any], path: KeyPath, tree: Tree
) -> tuple[Struct | None, list[Finding]]:
    """A stage's options checked against its `Options`."""
    findings: list[Finding] = []
    values = _walk(kind, options, path, tree, findings)
    spoiled = len(findings)
    built = _build(kind, values, path, tree, findings) if not spoiled else None
    return built, findings


def place_of(path: KeyPath) -> str:
    """`stage tts`, `edge a.x -> b.y`, `limits`."""
    return " ".join(path[:2]) if path and path[0] in _TABLES else ".".join(path[:1])


def _table_of(kind: type[S], tables: object, path: KeyPath, tree: Tree, findings: list[Finding]) -> dict[str, S]:
    items: dict[str, S] = {}
    if not isinstance(tables, dict):
        findings.append(Finding(tree.origin(path), path[0], f"write each as {_example(path[0])}"))
        return items
    for name, table in cast("dict[str, Any]", tables).items():
        here = (*path, name)
        if not isinstance(table, dict):
            findings.append(Finding(tree.origin(here), path[0], f"{name} is not a table; write {_example(path[0])}"))
            continue
        values = _walk(kind, cast("dict[str, Any]", table), here, tree, findings)
        item = _build(kind, values, here, tree, findings)
        if item is not None:
            items[name] = item
    return items


def _walk(
    kind: type[Struct], table: dict[str, Any], path: KeyPath, tree: Tree, findings: list[Finding]
) -> dict[str, Any]:
    """The fields of `table` that are right."""
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    values: dict[str, Any] = {}
    for key, value in table.items():
        here = (*path, key)
        if key not in fields:
            message = f"unknown key {key!r}{did_you_mean(key, fields)}{_elsewhere(kind)}"
            findings.append(Finding(tree.origin(here), place_of(path), message))
        elif isinstance(fields[key].type, type) and issubclass(fields[key].type, Struct):
            if not isinstance(value, dict):
                findings.append(Finding(tree.origin(here), key, f"is not a table; write it as [{key}]"))
                continue
            inner = _walk(fields[key].type, cast("dict[str, Any]", value), here, tree, findings)
            values[fields[key].name] = _build(fields[key].type, inner, here, tree, findings)
        else:
            _leaf(fields[key], value, values, here, tree, findings)
    return values


def _leaf(
    field: FieldInfo, value: Any, values: dict[str, Any], path: KeyPath, tree: Tree, findings: list[Finding]
) -> None:
    try:
        values[field.name] = msgspec.convert(value, field.type)
    except msgspec.ValidationError as error:
        key = path[-1]
        hinted = key in _HINTS and len(path) > 1 and isinstance(value, str)
        problem = _HINTS[key] if hinted else str(error).replace("`", "")
        findings.append(Finding(tree.origin(path), place_of(path[:-1]), f"{key} = {_shown(value)}: {problem}"))
        if not field.required:
            return
        values[field.name] = _WRONG


def _build(kind: type[S], values: dict[str, Any], path: KeyPath, tree: Tree, findings: list[Finding]) -> S | None:
    """The struct, or None with findings for the keys it lacks."""
    missing = [f.encode_name for f in msgspec.structs.fields(kind) if f.required and f.name not in values]
    findings += [Finding(tree.origin(path), place_of(path), f"the key {name!r} is missing") for name in missing]
    if missing or any(value is _WRONG for value in values.values()):
        return None
    return kind(**values)


_WRONG = object()


def _elsewhere(kind: type[Struct]) -> str:
    return "; a stage's own keys go under [stage.options]" if kind is StageSpec else ""


def _example(kind: str) -> str:
    return "[node.NAME]" if kind == "node" else f"[[{kind}]]"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
