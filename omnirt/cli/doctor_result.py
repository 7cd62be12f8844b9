"""A line of `omnirt doctor`."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable
from typing import Literal

from msgspec import Struct


class Result(Struct, frozen=True):
    level: Literal["ok", "warn", "fail"]
    value: str
    fix: str = ""


def versions(names: Iterable[str]) -> tuple[list[str], list[str]]:
    """Installed packages with their versions, and those that are not."""
    found: list[str] = []
    missing: list[str] = []
    for name in names:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    return found, missing
