"""What earlier spoken answers said, by their ids, for as long as a client may refer to them.

Invariant: bounded in entries and characters; the oldest goes first. An id is a secret: whoever has it may refer to it.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable

from omnirt.clock import unix_s

LIFE_S = 3600
ENTRIES_MAX = 4096
CHARS_MAX = 8 << 20


class AudioIds:
    def __init__(self, now_s: Callable[[], int] = unix_s) -> None:
        self._now_s = now_s
        self._kept: OrderedDict[str, tuple[int, str]] = OrderedDict()
        """In order of expiry."""
        self._chars = 0

    @staticmethod
    def new() -> str:
        return f"audio_{secrets.token_hex(12)}"

    def keep(self, id: str, transcript: str) -> int:
        """Until when it may be referred to, in unix seconds."""
        expires_at_s = self._now_s() + LIFE_S
        self._kept[id] = (expires_at_s, transcript)
        self._chars += len(transcript)
        while len(self._kept) > ENTRIES_MAX or (self._chars > CHARS_MAX and len(self._kept) > 1):
            self._drop_oldest()
        return expires_at_s

    def transcript(self, id: str) -> str | None:
        """None when it is unknown or has expired."""
        now_s = self._now_s()
        while self._kept and next(iter(self._kept.values()))[0] <= now_s:
            self._drop_oldest()
        found = self._kept.get(id)
        return None if found is None else found[1]

    def _drop_oldest(self) -> None:
        _, (_, transcript) = self._kept.popitem(last=False)
        self._chars -= len(transcript)
