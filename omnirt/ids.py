"""Names for the things every other module talks about."""

from __future__ import annotations

from typing import NewType

from msgspec import Struct

RequestId = NewType("RequestId", int)
"""Internal, unique for the life of a head, never chosen by a client (a client's own id is `public_id`)."""

HEAD = "head"
"""The process name of the head; every other process is a node, named `<group>.<replica>`."""

CLIENT = "client"
"""The far end of edges that start or end outside the pipeline."""


class Fence(Struct, frozen=True, array_like=True):
    """A request's place (slot) and the generation of that place (epoch).

    The head owns a page of epoch words, one per slot. Work is *stale* when its epoch is not the page's:
    epochs only rise, when a slot is reused, when a request is retried, and on barge-in.
    """

    slot: int
    epoch: int
