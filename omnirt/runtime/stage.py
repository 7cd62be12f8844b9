"""What the author of a stage writes. No fence, lease, credit, thread or socket appears in it.

    Stage        chunks in, emissions out; at most one chunk of each request per step
    EngineStage  rows join and leave between steps; a step advances every row that may emit

Life of a stage object, all on the node's one thread:

    __init__(options) -> start(ctx) -> { step | admit | finish | forget }* -> stop(ctx)

A step may emit several payloads for a request; what exceeds the edge's credit waits in the cell and the request is not
stepped again before it has left.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import msgspec

from omnirt.ids import RequestId
from omnirt.wire.payload import Payload


class NoOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """For stages that take none."""


class Request:
    """What a stage may know of a request. `params` is what the client asked for, by name.

    `state` belongs to the stage: keep a request's memory there, and it goes when the request goes.
    """

    __slots__ = ("deadline_ns", "id", "params", "public_id", "report", "seed", "state")

    def __init__(self, id: RequestId, public_id: str, seed: int, params: Mapping[str, Any], deadline_ns: int) -> None:
        self.id = id
        self.public_id = public_id
        self.seed = seed
        self.params = params
        self.deadline_ns = deadline_ns
        self.state: Any = None
        self.report: dict[str, Any] = {}
        """What the stage has to say of the request once its output ends: counts (`prompt_tokens`), `finish_reason`, ...
        Plain values. It reaches the client's surface with the end of the output."""

    def random(self, salt: str = "") -> random.Random:
        """Randomness of this request alone: the same seed gives the same answer whatever else is in the batch."""
        return random.Random(f"{self.seed}/{salt}")


class Emission:
    """One payload leaving through a port. `end` closes the request's output at this stage (engines only)."""

    __slots__ = ("end", "payload", "port", "request")

    def __init__(self, request: Request, port: str, payload: Payload | None, end: bool = False) -> None:
        self.request = request
        self.port = port
        self.payload = payload
        self.end = end


class Chunk:
    """One payload that arrived on `port`, the `seq`-th of its edge."""

    __slots__ = ("payload", "port", "request", "seq")

    def __init__(self, request: Request, port: str, payload: Any, seq: int) -> None:
        self.request = request
        self.port = port
        self.payload = payload
        self.seq = seq

    def reply(self, port: str, payload: Payload) -> Emission:
        return Emission(self.request, port, payload)


class Context:
    """What a stage may use of the world around it."""

    def __init__(self, stage: str, device: str, rank: int, threads: int, report: Callable[[str], None]) -> None:
        self.stage = stage
        self.device = device
        """`cpu` or `cuda:N`, as placed."""
        self.rank = rank
        self.threads = threads
        """Threads this node may use for its computation."""
        self.report = report
        """Tell the operator about a long load: `ctx.report("weights 40%")`."""
        self.wake: Callable[[Request], None] = lambda request: None
        """Engines: step this request, which sleeps, though nothing came for it: what it waited for is there."""


class Stage:
    """A stage whose work is a function of the chunks at hand (and of `request.state`)."""

    accepts: ClassVar[Mapping[str, type[Payload]]] = {}
    emits: ClassVar[Mapping[str, type[Payload]]] = {}
    Options: ClassVar[type[msgspec.Struct]] = NoOptions
    """The stage's keys in the pipeline file; unknown ones are refused by `omnirt check`."""
    pure: ClassVar[bool] = True
    """False for a stage that changes the world (policies, sessions): its requests are never retried."""

    def __init__(self, options: Any) -> None:
        self.options = options

    def start(self, ctx: Context) -> None:
        """Load and warm up. Nothing is admitted before it returns."""

    def facts(self) -> dict[str, Any]:
        """What the gateway should know once started: `voices`, `sample_rate`, `languages`, ..."""
        return {}

    def figures(self) -> dict[str, float]:
        """For the operator, asked when somebody looks at the metrics. Names are those of `metrics_names.FIGURES`."""
        return {}

    def step(self, ctx: Context, chunks: list[Chunk]) -> list[Emission]:
        """When it raises, nothing may have changed yet: each request of the batch is stepped once more, alone."""
        raise NotImplementedError

    def finish(self, ctx: Context, request: Request) -> list[Emission]:
        """All input of the request has been stepped: what is left to say. The output ends after it."""
        return []

    def forget(self, ctx: Context, request: Request) -> None:
        """The request is over, for whatever reason. Called once for each request that was stepped or admitted."""

    def stop(self, ctx: Context) -> None:
        """Orderly shutdown; not called when the process is killed."""


class EngineStage(Stage):
    """A stage that owns rows: `admit` brings input for a request, `step` advances requests that may emit.

    `step` gets the requests that hold credit on every edge and have not ended. `Emission(request, port, payload,
    end=True)` ends the request's output (its payload may be None). A request for which a step returned nothing sleeps
    until more input or the end of its input arrives, or the stage says `ctx.wake(request)`;
    `Emission(request, port, None)` says "nothing yet, call again".
    """

    def admit(self, ctx: Context, chunk: Chunk) -> None:
        raise NotImplementedError

    def close(self, ctx: Context, request: Request) -> None:
        """The request's input is complete."""

    def step(self, ctx: Context, rows: list[Request]) -> list[Emission]:  # type: ignore[override]
        raise NotImplementedError
