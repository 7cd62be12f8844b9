"""The native operations on shared words, ready to be called: plain functions of integers. See `operations`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from omnirt.shm.layout import *  # noqa: F403
from omnirt.shm.native import load, places

NAMES = (
    "load_acquire", "store_release", "full_fence", "begin_step", "reserve", "publish", "scan", "advance", "park",
    "used", "take", "untake", "give", "push_many", "must_ring", "pop_many",
)  # fmt: skip


def _build() -> Mapping[str, tuple[Any, bool]]:
    from omnirt.shm.operations import FUNCTIONS

    return FUNCTIONS


_SOURCES = (Path(__file__).with_name("operations.py"), Path(__file__).with_name("layout.py"))


def kept_at() -> tuple[Path, ...]:
    """Where the machine code may be kept, the preferred place first."""
    return places(_SOURCES)


_functions = load(_SOURCES, _build, NAMES)

load_acquire: Callable[[int], int] = _functions["load_acquire"]
store_release: Callable[[int, int], int] = _functions["store_release"]
full_fence: Callable[[], int] = _functions["full_fence"]
begin_step: Callable[[int, int], int] = _functions["begin_step"]
reserve: Callable[[int, int, int, int], int] = _functions["reserve"]
publish: Callable[[int], int] = _functions["publish"]
scan: Callable[[int, int, int], int] = _functions["scan"]
advance: Callable[[int, int], int] = _functions["advance"]
park: Callable[[int], int] = _functions["park"]
used: Callable[[int], int] = _functions["used"]
take: Callable[[int], int] = _functions["take"]
untake: Callable[[int, int], int] = _functions["untake"]
give: Callable[[int, int], int] = _functions["give"]
push_many: Callable[[int, int, int, int], int] = _functions["push_many"]
must_ring: Callable[[int], int] = _functions["must_ring"]
pop_many: Callable[[int, int, int, int, int], int] = _functions["pop_many"]
