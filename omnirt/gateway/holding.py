"""What all requests together may hold of something large, such as recordings in memory or on disk.

Invariant: `held` is the sum over the shares that are open; a share gives back all it took when it is left.
"""

from __future__ import annotations

from typing import Self

from omnirt.errors import Overloaded

RETRY_S = 5.0


class Holding:
    def __init__(self, limit: float, what: str) -> None:
        """`what`: for the refusal, as in "too much ... is held already"."""
        self.held = 0.0
        self._limit = limit
        self._what = what

    def share(self) -> Share:
        return Share(self)

    def take(self, amount: float) -> None:
        """Raises Overloaded where that would be too much."""
        if self.held + amount > self._limit:
            raise Overloaded(f"Too much {self._what} is held for other requests.", retry_after_s=RETRY_S)
        self.held += amount

    def give(self, amount: float) -> None:
        self.held -= amount


class Share:
    """One request's part. Use as a context manager."""

    def __init__(self, holding: Holding) -> None:
        self._holding = holding
        self._taken = 0.0

    def take(self, amount: float) -> None:
        self._holding.take(amount)
        self._taken += amount

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._holding.give(self._taken)
        self._taken = 0.0
