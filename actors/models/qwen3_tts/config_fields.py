"""Keys of a checkpoint's configuration, read with their types. Whatever stands there, the answer is a value that can be
used, or a ConfigError that names the key."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from omnirt.errors import ConfigError


def section(raw: Mapping[str, Any], key: str, where: str = "") -> Mapping[str, Any]:
    if not isinstance(raw.get(key), dict):
        raise ConfigError(f"{where}{key} is missing or no object")
    return raw[key]


def entries(raw: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    """As `section`; empty where it is not there or null."""
    return section(raw, key, where) if raw.get(key) is not None else {}


def positive(raw: Mapping[str, Any], key: str, where: str, default: int = 0) -> int:
    value = default if raw.get(key) is None else raw[key]
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"{where}{key} is missing or no positive integer")
    return value


def decimal(raw: Mapping[str, Any], key: str, where: str, default: float) -> float:
    value = default if raw.get(key) is None else raw[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ConfigError(f"{where}{key} = {value!r} is no number above 0")
    return float(value)


def whole(raw: Mapping[str, Any], key: str, where: str) -> int:
    if not isinstance(raw.get(key), int) or isinstance(raw[key], bool):
        raise ConfigError(f"{where}{key} is missing or no integer")
    return raw[key]


def ids(raw: Mapping[str, Any], key: str, where: str) -> dict[str, int]:
    """By name, lower case. Conversions write an id as a list of one."""
    found: dict[str, int] = {}
    for name, value in entries(raw, key, where).items():
        number = value[0] if isinstance(value, list) and len(value) == 1 else value
        if not isinstance(number, int) or isinstance(number, bool):
            raise ConfigError(f"{where}{key}.{name} = {value!r} is no id")
        found[str(name).lower()] = number
    return found
