"""What a link to another process does, whatever carries it.

    send(record, packing)    never waits; what is sent is seen by the peer in order, complete, or not at all
    pump(deliver)            called when `fileno()` is readable: delivers everything that has arrived, then sleeps again

Invariants (omnirt/testing/connector_suite.py checks them for every connector)
* order per direction; no record twice, none torn
* a link has one thread; `deliver` may send, release and close, but not pump
* a `Received` is valid until it is released, also after its link was closed or replaced
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, Protocol, TypeVar

import msgspec
from msgspec import Struct

from omnirt.errors import OmnirtError
from omnirt.shm.slab import Lease
from omnirt.wire.codec import Packing, unpack
from omnirt.wire.messages import Record
from omnirt.wire.payload import Payload

P = TypeVar("P", bound=Payload)


class LinkError(OmnirtError):
    """Something about the link to `peer`."""

    code: ClassVar[str] = "link_error"

    def __init__(self, message: str, *, peer: str) -> None:
        super().__init__(message)
        self.peer = peer


class LinkFull(LinkError):
    """No room. Credits bound what is in flight below the link's size, so the peer has stopped reading or releasing."""

    code: ClassVar[str] = "link_full"


class LinkClosed(LinkError):
    """Sent on a link that was closed or replaced."""

    code: ClassVar[str] = "link_closed"


class LinkBroken(LinkError):
    """The link holds something its peer cannot have sent. It must be replaced."""

    code: ClassVar[str] = "link_broken"


class PayloadTooLarge(LinkError):
    """One payload exceeds what the link was sized for (`chunk_bytes_max` of its edge)."""

    code: ClassVar[str] = "payload_too_large"

    def __init__(self, *, peer: str, edge: int, nbytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"edge {edge} to {peer}: a payload of {nbytes} bytes exceeds the {limit_bytes} bytes its link was planned "
            "for; raise chunk_bytes_max of the edge",
            peer=peer,
        )
        self.edge = edge
        self.nbytes = nbytes
        self.limit_bytes = limit_bytes


class Received(Struct, gc=False):
    """The body of a chunk: a private copy, or a slot held under a lease. (A Struct: the cheapest object to make.)"""

    header: bytes
    body: memoryview | bytes
    """The raw bytes, read-only, under the same lease as the arrays `unpack` makes of them."""
    lease: Lease | None = None

    @property
    def nbytes(self) -> int:
        return len(self.body)

    def unpack(self, kind: type[P]) -> P:
        """The payload, its arrays read-only. They are valid until `release`; copy them to keep them."""
        return unpack(kind, self.header, self.body)

    def own(self) -> None:
        """Copy the body out of the link: it stays readable, and the lease ends now."""
        if self.lease is not None:
            self.body = bytes(self.body)
            self.release()

    def release(self) -> None:
        """The payload is no longer needed. Any number of times, in any order, also after the link is gone."""
        if self.lease is not None:
            self.lease.release()
            self.lease = None


Deliver = Callable[[Record, Received | None], None]


class Occupancy(Struct, frozen=True):
    """How full a link is. `out_*`: what this side has sent; `in_slots`: payloads this side has not released."""

    out_bytes: int
    out_bytes_max: int
    out_slots: int
    out_slots_max: int
    in_bytes: int
    in_slots: int


class Connector(Protocol):
    peer: str

    def send(self, record: Record, packing: Packing | None = None) -> None:
        """Only a Chunk has a packing. Raises LinkFull, LinkClosed, PayloadTooLarge; then nothing was sent."""
        ...

    def pump(self, deliver: Deliver) -> int:
        """Deliver what has arrived; how many records. Raises LinkBroken, and what `deliver` raises."""
        ...

    def fileno(self) -> int:
        """Readable when there is something to pump."""
        ...

    def occupancy(self) -> Occupancy: ...

    def close(self) -> None:
        """Drop the link and what is unread on it. Idempotent; live views stay readable."""
        ...


def link_figures(links: Mapping[str, Connector]) -> dict[str, float]:
    """How full a process's links are, as `link.<peer>.<field>`. `links`: by peer."""
    occupied = ((peer, msgspec.structs.asdict(link.occupancy())) for peer, link in links.items())
    return {f"link.{peer}.{name}": value for peer, fields in occupied for name, value in fields.items()}
