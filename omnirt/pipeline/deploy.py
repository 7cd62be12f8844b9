"""From a name on the command line to a plan: find the files, merge the layers, check, place.

The command line, the head and `omnirt check` all come through here, so a value means the same wherever it is written.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

import omnirt
from omnirt.errors import ConfigError
from omnirt.loader import did_you_mean
from omnirt.pipeline.check import Check, stage_classes
from omnirt.pipeline.checkpoint import is_checkpoint, pipeline_for
from omnirt.pipeline.decode import decode
from omnirt.pipeline.findings import Finding, PipelineError, errors
from omnirt.pipeline.layers import merged
from omnirt.pipeline.placement import place
from omnirt.wire.plan import Plan


class Checked(Struct, frozen=True):
    """`plan` is None when one of the findings is an error."""

    findings: tuple[Finding, ...]
    plan: Plan | None


def load_plan(
    pipeline: str, overlays: Sequence[str] = (), sets: Sequence[str] = (), *, cores: int | None = None
) -> Plan:
    """The plan of a pipeline, a path or the name of a packaged one. Raises PipelineError with every finding."""
    checked = check_pipeline(pipeline, overlays, sets, cores=cores)
    if checked.plan is None:
        raise PipelineError(checked.findings)
    return checked.plan


def check_pipeline(
    pipeline: str, overlays: Sequence[str] = (), sets: Sequence[str] = (), *, cores: int | None = None
) -> Checked:
    """All findings, and the plan when none is an error. Raises ConfigError when a file is not there at all.

    The folder of a checkpoint stands for the packaged pipeline that serves it.
    """
    if is_checkpoint(pipeline):
        path, own = pipeline_for(pipeline, packaged_files())
        sets = [*own, *sets]
    else:
        path = find_file(pipeline, "pipeline")
    tree = merged(path, [find_file(overlay, "deploy overlay", folder="deploy") for overlay in overlays], sets)
    if not tree.is_readable:
        return Checked(tuple(tree.findings), None)
    spec, wrong = decode(tree)
    findings = [*tree.findings, *wrong]
    plan = None
    if spec is not None:
        classes, unresolved = stage_classes(spec, tree)
        findings += [*unresolved, *Check(spec, classes, tree).run()]
        if not errors(findings):
            plan = place(spec, classes, cores or len(os.sched_getaffinity(0)))
    unique = dict.fromkeys(sorted(findings, key=lambda finding: finding.warning))
    return Checked(tuple(unique), plan)


def find_file(name: str, kind: str, *, folder: str = "") -> str:
    """`name` itself when it is a file, else the packaged one of that name."""
    path = Path(name)
    if path.is_file():
        return name
    packaged = _packaged(folder)
    is_bare = path.suffix != ".toml" and path.name == name
    known = sorted(file.stem for file in packaged.glob("*.toml")) if is_bare else []
    if name in known:
        return str(packaged / f"{name}.toml")
    if not folder and path.expanduser().is_dir():
        raise ConfigError(f"{name} is a folder without config.json: neither a checkpoint nor a {kind} file")
    if is_bare:
        raise ConfigError(f"there is no {kind} {name!r}, neither a file nor packaged{did_you_mean(name, known)}")
    siblings = [file.name for file in path.parent.glob("*.toml")] if path.parent.is_dir() else []
    near = did_you_mean(path.name, siblings) if siblings else ""
    raise ConfigError(f"there is no {kind} file {name!r}{near}")


def packaged_files() -> list[Path]:
    """The pipelines that come with omnirt."""
    return sorted(_packaged("").glob("*.toml"))


def _packaged(folder: str) -> Path:
    return Path(omnirt.__file__).parent / "pipelines" / folder
