"""A checkpoint's folder in place of a pipeline: the packaged pipeline whose [serves] table fits its config.json."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from omnirt.errors import ConfigError


def is_checkpoint(name: str) -> bool:
    return (Path(name).expanduser() / "config.json").is_file()


def pipeline_for(folder: str, packaged: Iterable[Path]) -> tuple[str, list[str]]:
    """The pipeline file for a checkpoint, and the values (as for `--set`) that make it serve this one.

    Raises ConfigError when config.json is unreadable or no pipeline serves such a model.
    """
    path = Path(folder).expanduser().resolve()
    config = _config_of(path)
    kinds: set[str] = set()
    for file in sorted(packaged):
        serves = tomllib.loads(file.read_text(encoding="utf-8")).get("serves", {})
        if serves and fits(serves, config):
            return str(file), [f"weights={json.dumps(str(path))}", f"name={json.dumps(path.name)}"]
        kinds |= {json.dumps(value) for value in _choices(serves.get("model_type", ()))}
    raise ConfigError(
        f"no packaged pipeline serves the model in {folder} (model_type = {json.dumps(config.get('model_type'))}); "
        f"those that do serve model_type {', '.join(sorted(kinds))}. Write a pipeline file with weights = {str(path)!r}"
    )


def fits(serves: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    """Every key of `serves` has in `config` the value it names, or one of them."""
    return all(config.get(key) in _choices(wanted) for key, wanted in serves.items())


def _choices(wanted: Any) -> list[Any]:
    return cast("list[Any]", wanted) if isinstance(wanted, list) else [wanted] if wanted != () else []


def _config_of(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    try:
        config: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    if not isinstance(config, dict):
        raise ConfigError(f"{path} is not a JSON object")
    return cast("dict[str, Any]", config)
