"""How a fault is planted into production code: one attribute of a class is another for a while."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from omnirt.loader import resolve

Plant = Callable[[], AbstractContextManager[None]]


@contextmanager
def changed(owner: Any, name: str, make: Callable[[Any], Any]) -> Generator[None]:
    """`owner.name` is `make(its old value)` for a while."""
    before = owner.__dict__[name]
    setattr(owner, name, make(before))
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def pair(*plants: AbstractContextManager[None]) -> Generator[None]:
    with ExitStack() as stack:
        for plant in plants:
            stack.enter_context(plant)
        yield


def actors(path: str) -> Any:
    return resolve(f"omnirt.actors.{path}")
