"""A checkpoint's JSON files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from omnirt.errors import ConfigError


def read_json(path: Path) -> dict[str, Any]:
    """An object. Raises ConfigError naming the file."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is no JSON: {error}") from None
    if not isinstance(raw, dict):
        raise ConfigError(f"{path} holds no object")
    return raw
