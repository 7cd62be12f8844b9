"""Stop strings in text that comes in pieces. What may be the beginning of one is held back, and nothing more."""

from __future__ import annotations

from collections.abc import Sequence


class StopScanner:
    """Of one answer. Neither a stop string nor anything behind it is ever given."""

    def __init__(self, stops: Sequence[str]) -> None:
        assert all(stops)
        self._stops = tuple(stops)
        self._longest = max((len(stop) for stop in stops), default=0)
        self._held = ""
        self.stopped = False

    def feed(self, text: str) -> str:
        """What may leave now. Nothing any more once `stopped`."""
        if self.stopped or not self._stops:
            return "" if self.stopped else text
        text = self._held + text
        found = [at for at in (text.find(stop) for stop in self._stops) if at >= 0]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)]
        cut = len(text) - self._beginning(text)
        self._held = text[cut:]
        return text[:cut]

    def close(self) -> str:
        """No more text comes: what was held back is no stop string."""
        held, self._held = self._held, ""
        return held

    def _beginning(self, text: str) -> int:
        """Length of the longest end of `text` that a stop string begins with."""
        for length in range(min(self._longest - 1, len(text)), 0, -1):
            end = text[-length:]
            if any(stop.startswith(end) for stop in self._stops):
                return length
        return 0
