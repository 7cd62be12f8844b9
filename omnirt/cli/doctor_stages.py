"""What the stages of a pipeline need to be there before they start: packages, and weights in local folders.

Nothing is loaded: of weights only the files' names are looked at, and which of them an index lists.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from omnirt.cli.doctor_result import Result, versions
from omnirt.extras import extra, needs
from omnirt.wire.plan import Plan

INDEX, WHOLE = "model.safetensors.index.json", "model.safetensors"
NAMED_MAX = 5


def packages_of(plan: Plan) -> dict[str, list[str]]:
    """What the stages cannot do without, by our extra that brings it."""
    wanted: dict[str, list[str]] = {}
    for stage in plan.stages:
        name, packages = needs(stage.actor)
        for package in packages:
            if package not in wanted.setdefault(name, []):
                wanted[name].append(package)
    return wanted


def packages(name: str, wanted: list[str]) -> Result:
    found, missing = versions(wanted)
    if missing:
        return Result("fail", f"missing: {', '.join(missing)}", extra(name))
    return Result("ok", ", ".join(found))


def weights(plan: Plan) -> Result | None:
    """Whether the local folders that stages take weights from hold a checkpoint; None where they take none."""
    folders = list(dict.fromkeys(_local_folders(plan)))
    if not folders:
        return None
    for folder in folders:
        wrong = missing_of(folder)
        if wrong:
            named = ", ".join(wrong[:NAMED_MAX]) + (", ..." if len(wrong) > NAMED_MAX else "")
            fix = "copy or download the whole checkpoint, its folders included; or name another with --set weights=..."
            return Result("fail", f"{folder} lacks {named}", fix)
    return Result("ok", f"complete: {', '.join(map(str, folders))}")


def missing_of(folder: Path) -> list[str]:
    """Files that a checkpoint in `folder` would have."""
    config = _json(folder / "config.json")
    if config is None:
        return ["config.json"]
    missing = _tensors(folder)
    if config.get("model_type") == "qwen3_tts":
        codec = folder / "speech_tokenizer"
        missing += [f"speech_tokenizer/{name}" for name in ("config.json",) if not (codec / name).is_file()]
        missing += [] if any(codec.glob("*.safetensors")) else ["speech_tokenizer/*.safetensors"]
        if not (folder / "tokenizer.json").is_file():
            missing += [name for name in ("vocab.json", "merges.txt") if not (folder / name).is_file()]
    return missing


def _tensors(folder: Path) -> list[str]:
    if not (folder / INDEX).is_file():
        is_there = (folder / WHOLE).is_file() or any(folder.glob("*.safetensors")) or any(folder.glob("*.gguf"))
        return [] if is_there or (folder / "model.bin").is_file() else [WHOLE]
    listed = (_json(folder / INDEX) or {}).get("weight_map")
    if not isinstance(listed, dict):
        return [f"{INDEX} with a weight_map"]
    names = {str(name) for name in cast("dict[str, object]", listed).values()}
    return sorted(name for name in names if not (folder / name).is_file())


def _local_folders(plan: Plan) -> Iterator[Path]:
    for stage in plan.stages:
        given = stage.options.get("weights")
        sources: list[object] = [given] if isinstance(given, str) else list(given or ())
        paths = (Path(source).expanduser() for source in sources if isinstance(source, str))
        # Of several the first to be had is taken; that a path leads nowhere is found by `check`.
        yield from [path for path in paths if path.is_dir()][:1]


def _json(path: Path) -> dict[str, Any] | None:
    try:
        read: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return cast("dict[str, Any]", read) if isinstance(read, dict) else None
