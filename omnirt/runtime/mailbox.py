"""An actor's mailbox: two lanes, both bounded; control is always read before data.

Data is bounded by credit (see `credit`), so a full data lane is a broken promise of the sender and refused loudly,
unless the owner asked for newest-wins.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Literal

from omnirt.errors import OmnirtError


class MailboxFull(OmnirtError):
    code = "mailbox_full"


class Mailbox:
    __slots__ = ("_control", "_control_max", "_data", "_data_max", "_when_full", "dropped")

    def __init__(
        self, data_max: int, control_max: int = 65_536, when_full: Literal["refuse", "drop_oldest"] = "refuse"
    ) -> None:
        self._control: deque[Any] = deque()
        self._data: deque[Any] = deque()
        self._data_max = data_max
        self._control_max = control_max
        self._when_full = when_full
        self.dropped = 0

    def put_control(self, message: Any) -> None:
        if len(self._control) >= self._control_max:
            raise MailboxFull(f"{self._control_max} control messages are waiting")
        self._control.append(message)

    def put_data(self, message: Any) -> Any | None:
        """Returns the message that had to go to make room, if any. Raises MailboxFull when refusing."""
        if len(self._data) < self._data_max:
            self._data.append(message)
            return None
        if self._when_full == "refuse":
            raise MailboxFull(f"{self._data_max} data messages are waiting")
        self.dropped += 1
        oldest = self._data.popleft()
        self._data.append(message)
        return oldest

    def get(self) -> Any:
        """The next message. Raises IndexError when empty."""
        return self._control.popleft() if self._control else self._data.popleft()

    def __len__(self) -> int:
        return len(self._control) + len(self._data)
