"""Logging set up once per process: one line a record, `key=value`, to standard error.

    time=2025-06-01T12:00:00.123Z level=warning process=head msg="restarting" stage=tts request=req_1 wait_s=0.4

Anything given as `extra={"request": ..., "stage": ...}` becomes a field, so a request can be followed through every
stage by its public id.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

LEVELS = ("debug", "info", "warning", "error")

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/+@,")


def set_up(process: str, level: str = "info", stream: TextIO | None = None) -> None:
    """Send what `omnirt.*` logs to `stream`. Called again, it replaces what it set up before."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(KeyValueFormatter(process))
    logger = logging.getLogger("omnirt")
    logger.handlers[:] = [handler]
    logger.setLevel(level.upper())
    logger.propagate = False


def level_of(logger: logging.Logger) -> str:
    """What this process logs now, as `set_up` takes it: so that its children log the same."""
    names = [name for name in LEVELS if logger.isEnabledFor(logging.getLevelNamesMapping()[name.upper()])]
    return names[0] if names else LEVELS[-1]


class KeyValueFormatter(logging.Formatter):
    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        fields: dict[str, object] = {
            "time": at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z",
            "level": record.levelname.lower(),
            "process": self._process,
            "msg": record.getMessage(),
        }
        fields |= {key: value for key, value in vars(record).items() if key not in _STANDARD}
        if record.exc_info and record.exc_info[0] is not None:
            fields["error"] = record.exc_info[0].__name__
            fields["trace"] = self.formatException(record.exc_info)
        return " ".join(f"{key}={_shown(value)}" for key, value in fields.items())


def _shown(value: object) -> str:
    """The value itself when it needs no quotes, else as a JSON string: never a second line."""
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if text and _PLAIN.issuperset(text) else json.dumps(text, ensure_ascii=False)
