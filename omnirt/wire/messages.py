"""Every message between processes, one struct each. Two families:

* control, head <-> node, over the node's socketpair (msgpack, one datagram each): `ToNode` and `ToHead`
* records, over the rings: `Chunk`, `End`, `Credit`

An answer names its question by `question`; a node's answers carry the incarnation of the node implicitly, because the
socket belongs to one incarnation.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from omnirt.errors import Failure
from omnirt.ids import Fence
from omnirt.wire.plan import EdgePlan, NodePlan, StagePlan

# ---------------------------------------------------------------- records


class Chunk(Struct, frozen=True, array_like=True, tag=1):
    """One payload on an edge. `header` describes the body, which lies in the record or in a slab slot."""

    edge: int
    request: int
    fence: Fence
    seq: int
    header: bytes


class End(Struct, frozen=True, array_like=True, tag=2):
    """The edge carries nothing more for this request. `count`: chunks it carried. `reports`: what the stages up to here
    have to say of the request, by name; they travel along to the client."""

    edge: int
    request: int
    fence: Fence
    count: int
    reports: dict[str, dict[str, Any]] = {}


class Credit(Struct, frozen=True, array_like=True, tag=3):
    """The consumer is done with `count` more chunks of this request's edge."""

    edge: int
    request: int
    fence: Fence
    count: int


Record = Chunk | End | Credit

REPORTS_BYTES_MAX = 3072
"""Of an end mark, encoded: rings are sized for it."""

# ---------------------------------------------------------------- head -> node


class Boot(Struct, frozen=True, tag="boot"):
    """First message to a node: who it is. Descriptors of the fence page and the board travel with it."""

    node: NodePlan
    rank: int
    stages: tuple[StagePlan, ...]
    edges: tuple[EdgePlan, ...]
    incarnation: int
    slots: int
    line: int
    """This process's line of the board, which has `lines`."""
    lines: int
    log: str = "info"
    """What is logged, as at the head."""


class Attach(Struct, frozen=True, tag="attach"):
    """A link to `peer`; descriptors travel with it. Replaces an older link to the same peer."""

    peer: str
    ring_bytes: int
    out_slot_bytes: int
    out_slots: int
    in_slot_bytes: int
    in_slots: int
    first: bool = True
    """Whether the receiver is `a` of the link: both ends lay the same segment out."""


class Detach(Struct, frozen=True, tag="detach"):
    """`peer` is gone: drop the link and what is unread on it."""

    peer: str


class Load(Struct, frozen=True, tag="load"):
    """All links are attached: start the stages."""


class Open(Struct, frozen=True, tag="open"):
    """A request is coming to `stage`. `targets`: edge index -> process, for the edges this request opens;
    `sources`: edges that will bring input, each ended by an `End`."""

    stage: str
    request: int
    fence: Fence
    seed: int
    deadline_ns: int
    public_id: str
    params: dict[str, Any]
    sources: dict[int, str]
    targets: dict[int, str]
    alone: bool = False
    """Never batch it with others: it was in the step when a process died."""


class Opens(Struct, frozen=True, tag="opens"):
    """Those of one request, for every stage of the node that it needs."""

    opens: tuple[Open, ...]


class Close(Struct, frozen=True, tag="close"):
    """The request is over at every stage of this node: forget it. Answered with `Closed`."""

    request: int
    fence: Fence


class Ask(Struct, frozen=True, tag="ask"):
    """`what` is `ping` or `stats`."""

    question: int
    what: str


class Drain(Struct, frozen=True, tag="drain"):
    """Stop the stages in order, then exit with status 0."""


ToNode = Boot | Attach | Detach | Load | Opens | Close | Ask | Drain

# ---------------------------------------------------------------- node -> head


class Hello(Struct, frozen=True, tag="hello"):
    pid: int


class Loading(Struct, frozen=True, tag="loading"):
    stage: str
    text: str


class Ready(Struct, frozen=True, tag="ready"):
    """Every stage of the node is started. `facts`: stage -> what it says of itself."""

    facts: dict[str, dict[str, Any]]


class LoadFailed(Struct, frozen=True, tag="load_failed"):
    failure: Failure


class RequestFailed(Struct, frozen=True, tag="request_failed"):
    request: int
    fence: Fence
    failure: Failure


class Closed(Struct, frozen=True, tag="closed"):
    """Nothing of the request is left here, nor on the links to here: its slot may be used again."""

    request: int
    fence: Fence


class Answer(Struct, frozen=True, tag="answer"):
    question: int
    value: dict[str, Any]


ToHead = Hello | Loading | Ready | LoadFailed | RequestFailed | Closed | Answer

_encoder = msgspec.msgpack.Encoder()
encode = _encoder.encode
decode_record = msgspec.msgpack.Decoder(Record).decode
decode_to_node = msgspec.msgpack.Decoder(ToNode).decode
decode_to_head = msgspec.msgpack.Decoder(ToHead).decode
