"""The timelines of requests that ended: the last ones in memory, and, where asked for, each as a file.

Invariants: memory holds `KEPT` timelines, a folder `FILES_MAX` files of ours (the oldest goes, nothing else is ever
removed) and at most `PENDING_MAX` wait to be written, by one thread; what would be more is not written, and said.
"""

from __future__ import annotations

import contextlib
import logging
import os
import zlib
from collections import OrderedDict, deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

from omnirt.errors import ConfigError
from omnirt.trace import Timeline, trace_json

log = logging.getLogger("omnirt.trace")

KEPT = 256
FILES_MAX = 1000
PENDING_MAX = 64
SUFFIX = ".trace.json"
NAME_CHARS_MAX = 180
REFUSED = frozenset({"queue_full"})
"""Outcomes of requests that never began: there is nothing to draw."""


class Traces:
    def __init__(self, folder: str = "", *, files_max: int = FILES_MAX) -> None:
        """`folder`: empty for no files. Raises ConfigError when it cannot be used."""
        self._last: OrderedDict[str, Timeline] = OrderedDict()
        self._files = TraceFiles(Path(folder), files_max) if folder else None

    def add(self, timeline: Timeline) -> None:
        """Ids may repeat: the newest of an id is kept."""
        if timeline.outcome in REFUSED or not timeline.request:
            return
        self._last[timeline.request] = timeline
        self._last.move_to_end(timeline.request)
        if len(self._last) > KEPT:
            self._last.popitem(last=False)
        if self._files is not None:
            self._files.put(timeline)

    def get(self, request: str) -> Timeline | None:
        return self._last.get(request)

    def close(self) -> None:
        """What waits is written first."""
        if self._files is not None:
            self._files.close()


class TraceFiles:
    def __init__(self, folder: Path, files_max: int) -> None:
        self._folder = folder
        self._files_max = files_max
        self._pending: set[Future[None]] = set()
        self._failing = False
        try:
            folder.mkdir(parents=True, exist_ok=True)
            found = [(entry.stat().st_mtime_ns, entry.name) for entry in os.scandir(folder) if _is_ours(entry)]
            writable = os.access(folder, os.W_OK | os.X_OK)
        except OSError as error:
            raise ConfigError(f"traces cannot be kept in {folder}: {error.strerror}") from error
        if not writable:
            raise ConfigError(f"traces cannot be kept in {folder}: it cannot be written")
        self._names = deque(name for _, name in sorted(found))
        """Oldest first. Belongs to the thread once that runs."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="trace")

    def put(self, timeline: Timeline) -> None:
        if len(self._pending) >= PENDING_MAX:
            log.warning("no trace of it: the disk is behind", extra={"request": timeline.request})
            return
        future = self._thread.submit(self._write, timeline)
        self._pending.add(future)
        future.add_done_callback(self._pending.discard)

    def close(self) -> None:
        self._thread.shutdown(wait=True)

    def _write(self, timeline: Timeline) -> None:
        name = file_name(timeline.request)
        target = self._folder / name
        partial = self._folder / (name + ".part")
        try:
            partial.write_bytes(trace_json(timeline))
            partial.replace(target)
        except OSError as error:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
            if not self._failing:
                log.error("traces cannot be written: %s", error.strerror, extra={"folder": str(self._folder)})
            self._failing = True
            return
        self._failing = False
        if name in self._names:
            self._names.remove(name)
        self._names.append(name)
        while len(self._names) > self._files_max:
            with contextlib.suppress(OSError):
                (self._folder / self._names.popleft()).unlink(missing_ok=True)


def file_name(request: str) -> str:
    """A file name for any public id: different ids have different ones."""
    name = quote(request, safe="")
    if name.startswith("."):
        name = "%2E" + name[1:]
    if len(name) > NAME_CHARS_MAX:
        name = f"{name[:NAME_CHARS_MAX]}~{zlib.crc32(request.encode()):08x}"
    return name + SUFFIX


def _is_ours(entry: os.DirEntry[str]) -> bool:
    return entry.name.endswith(SUFFIX) and entry.is_file(follow_symlinks=False)
