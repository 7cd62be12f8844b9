"""Folders that are made once per machine and then only read: unpacked packages, converted weights.

What always holds:
    a folder's name says what is in it (it carries a hash), so one that exists is never written again;
    it appears whole, by a rename: a process killed while making one leaves only a part that the next one removes;
    of several processes that want the same folder one makes it and the others wait for it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from omnirt.errors import ConfigError


def default_root() -> Path:
    return Path.home() / ".cache" / "omnirt" / "weights"


def existing(name: str, root: Path | None = None) -> Path | None:
    """The folder, if it has been made."""
    folder = (root or default_root()) / name
    return folder if folder.is_dir() else None


def cached(name: str, make: Callable[[Path], None], root: Path | None = None) -> Path:
    """The folder `name`; `make` fills an empty one when there is none yet. What it raises is passed on."""
    root = root or default_root()
    folder = root / name
    if folder.is_dir():
        return folder
    try:
        root.mkdir(parents=True, exist_ok=True)
        with _locked(root / f".{name}.lock"):
            if not folder.is_dir():
                _make(folder, root / f".{name}.part", make)
    except OSError as error:
        raise ConfigError(f"weights cannot be kept in {root}: {error}") from error
    return folder


def _make(folder: Path, part: Path, make: Callable[[Path], None]) -> None:
    shutil.rmtree(part, ignore_errors=True)  # of a process that was killed: the lock is ours, so it is not at work
    part.mkdir()
    try:
        make(part)
        for path in part.rglob("*"):
            _flush(path)
        _flush(part)
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _flush(path: Path) -> None:
    """To the disk before the rename is, or a power cut could leave the name without its contents."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Waits for as long as another process makes the folder; whoever waits is loading, which has its own limit. The
    kernel gives the lock back when its holder dies. The file stays: removing it would let two holders in."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
