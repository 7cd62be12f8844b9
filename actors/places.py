"""The slots of the fence page and who holds them. Pure.

    take -> held -> close(nodes) -> every node has confirmed -> free, or held again by the same request's next start

Links are sized for one request a slot. A node that is in a long step may still have a request in its hands, with the
slots of links it holds, when that request is long over for its client; so a slot waits for each node to give it up.

Invariant: free + held + closing == slots.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from omnirt.ids import Fence


class Places:
    def __init__(self, slots: int) -> None:
        self._free = deque(range(slots))
        self._closing: dict[int, tuple[Fence, set[str]]] = {}
        """Slot -> the fence that was closed, and the nodes that have not confirmed."""
        self._ownerless: set[int] = set()
        """Closing slots that nobody will start again."""

    @property
    def free(self) -> int:
        return len(self._free)

    def take(self) -> int:
        return self._free.popleft()

    def close(self, fence: Fence, nodes: Iterable[str]) -> None:
        """These nodes were told to give up what runs under `fence`."""
        waiting = set(nodes)
        if waiting:
            assert fence.slot not in self._closing, f"slot {fence.slot} is closed twice"
            self._closing[fence.slot] = (fence, waiting)

    def give_back(self, slot: int) -> None:
        """The request is over: the slot is free, now or when the last node has confirmed."""
        if slot in self._closing:
            self._ownerless.add(slot)
        else:
            self._free.append(slot)

    def is_closing(self, slot: int) -> bool:
        return slot in self._closing

    @property
    def closing(self) -> int:
        return len(self._closing)

    def confirmed(self, node: str, fence: Fence) -> bool:
        """The node has given it up. False when nobody waited for that."""
        old, waiting = self._closing.get(fence.slot, (None, set[str]()))
        if old != fence or node not in waiting:
            return False
        waiting.discard(node)
        if not waiting:
            del self._closing[fence.slot]
            if fence.slot in self._ownerless:
                self._ownerless.discard(fence.slot)
                self._free.append(fence.slot)
        return True

    def awaited_of(self, node: str) -> list[Fence]:
        """What this node has not confirmed."""
        return [fence for fence, waiting in self._closing.values() if node in waiting]
