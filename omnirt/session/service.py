"""What the gateway sees of the runtime: submit a request, read its events, ask how the pipeline is.

Only types. The production implementation is the head (`omnirt.runtime.head`); gateway tests may use a scripted one.
"""

from __future__ import annotations

from typing import Any, Protocol

from msgspec import Struct

from omnirt.errors import Failure
from omnirt.wire.payload import Payload
from omnirt.wire.plan import Plan


class Submit(Struct, frozen=True):
    """A request as a surface understood it.

    inputs: (modality, payload) in order; the input is complete unless `input_open`.
    outputs: the modalities wanted. Only stages on a way from a modality of `inputs` (or of `later`) to one of them take
    part. params: by name, what stages may read. seed: None for a random one.
    """

    inputs: tuple[tuple[str, Payload], ...]
    outputs: tuple[str, ...]
    params: dict[str, Any] = {}
    seed: int | None = None
    deadline_s: float | None = None
    key: str = ""
    public_id: str = ""
    affinity: str = ""
    """Requests with the same non-empty affinity go to the same replicas while those live."""
    input_open: bool = False
    later: tuple[str, ...] = ()
    """Modalities that `extend` may bring beside those of `inputs`."""


class Output(Struct, frozen=True):
    """One payload for the client. Reading the next event gives the chunk's credit back."""

    modality: str
    payload: Payload


class Done(Struct, frozen=True):
    """`reports`: what each stage that took part said of the request when it ended (see `Request.report`)."""

    reports: dict[str, dict[str, Any]] = {}


class Failed(Struct, frozen=True):
    failure: Failure


Event = Output | Done | Failed


class Live(Protocol):
    """A request that was admitted (or waits for its slot). Use as an async context manager: leaving it before the
    end cancels the request."""

    public_id: str

    async def next(self) -> Event:
        """The next event; after Done or Failed there is none. Exactly one of the two ends every request."""
        ...

    def has_output(self) -> bool:
        """Whether `next` would give an Output without waiting: what is ready may travel together."""
        ...

    def extend(self, modality: str, payload: Payload) -> None:
        """More input. Raises Cancelled when the request is over, Overloaded when too much is waiting."""
        ...

    def end_input(self) -> None: ...

    def cancel(self, reason: str) -> None: ...

    async def __aenter__(self) -> Live: ...

    async def __aexit__(self, *exc: object) -> None: ...


class StageState(Struct, frozen=True):
    """`state`: loading, ready, restarting, failed. `ready`/`replicas`: how many of its nodes are ready."""

    name: str
    state: str
    ready: int
    replicas: int
    detail: str = ""
    restarts: int = 0


class ServiceState(Struct, frozen=True):
    """`state`: loading, ready, degraded (serves, but a replica is missing), unavailable, draining."""

    state: str
    stages: tuple[StageState, ...]
    running: int
    waiting: int
    slots: int


class Service(Protocol):
    plan: Plan

    def submit(self, request: Submit) -> Live:
        """Admit, queue or refuse at once. Raises Overloaded, NotReady, InvalidRequest, Unsupported."""
        ...

    def state(self) -> ServiceState: ...

    def condition(self) -> str:
        """The `state` of `state()`, for whoever asks at every request."""
        ...

    def facts(self) -> dict[str, dict[str, Any]]:
        """Per stage, what it said of itself once ready (`voices`, `sample_rate`, ...). Another mapping when any of it
        has changed."""
        ...

    def cancel(self, public_id: str) -> str:
        """`cancelled`, `finished` (already over) or `unknown`."""
        ...

    async def stats(self) -> dict[str, dict[str, float]]:
        """Per process, counters and gauges, asked now (nothing is collected while nobody looks)."""
        ...
