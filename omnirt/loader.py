"""Turns a name in a pipeline file into the thing it names, and says what was probably meant when it names nothing.

The runtime never imports actors: `resolve("package.module:Class")` is the only way in, for our stages and for
out-of-tree ones alike.
"""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Iterable
from difflib import get_close_matches
from types import ModuleType
from typing import Any

from omnirt.errors import ConfigError


def resolve(name: str) -> Any:
    """The attribute `name` stands for, `package.module:Class`. Raises ConfigError saying which half is wrong."""
    module_name, colon, attribute = name.partition(":")
    if not (module_name and colon and attribute):
        raise ConfigError(f"{name!r} is not of the form 'package.module:Class'")
    module = _import(module_name)
    value: Any = module
    for part in attribute.split("."):
        if not hasattr(value, part):
            raise ConfigError(f"module {module_name!r} has no {attribute!r}{did_you_mean(part, _public(value))}")
        value = getattr(value, part)
    return value


def did_you_mean(name: str, valid: Iterable[str]) -> str:
    """` (did you mean 'x'?)` or, when nothing is near, ` (valid: a, b)`; to be put after the complaint."""
    names = sorted(valid)
    near = get_close_matches(name, names, n=1, cutoff=0.6)
    if near:
        return f" (did you mean {near[0]!r}?)"
    return f" (valid: {', '.join(names)})" if names else ""


def _import(module_name: str) -> ModuleType:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if module_name == missing or module_name.startswith(missing + "."):
            raise ConfigError(f"there is no module {missing!r}{_near_module(missing)}") from error
        raise ConfigError(f"importing {module_name!r} failed: there is no module {missing!r}; install it") from error
    except (Exception, SystemExit) as error:  # another's module may raise anything
        raise ConfigError(f"importing {module_name!r} failed: {_said(error)}") from error


def _said(error: BaseException) -> str:
    """The error in one line, and where it was raised."""
    text = f"{type(error).__name__}: {error}".partition("\n")[0].rstrip(": ")
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, SyntaxError) or not frames:  # says itself where it is
        return text
    return f"{text} ({frames[-1].filename}:{frames[-1].lineno})"


def _near_module(missing: str) -> str:
    """What the parent package does have, when it can be imported."""
    parent_name, _, last = missing.rpartition(".")
    if not parent_name:
        return "; is its package installed in this environment?"
    parent = importlib.import_module(parent_name)
    names = {entry.name for entry in _iter_modules(parent)}
    near = get_close_matches(last, sorted(names), n=1, cutoff=0.6)
    return f" (did you mean '{parent_name}.{near[0]}'?)" if near else ""


def _iter_modules(package: ModuleType) -> Iterable[Any]:
    import pkgutil

    return pkgutil.iter_modules(getattr(package, "__path__", ()))


def _public(value: object) -> list[str]:
    return [name for name in dir(value) if not name.startswith("_")]
