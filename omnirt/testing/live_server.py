"""A whole server in this process: the gateway over a real head with real nodes, on a free loopback port."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from omnirt.gateway.config import GatewayConfig
from omnirt.loader import resolve
from omnirt.pipeline.deploy import load_plan
from omnirt.testing.live_gateway import LiveGateway


@contextmanager
def live_server(pipeline: str, sets: Sequence[str] = (), config: GatewayConfig | None = None) -> Generator[LiveGateway]:
    """Ready. Its `service` is the head; everything it started is gone afterwards."""
    plan = load_plan(pipeline, [], sets)

    def make_head() -> Any:
        head = resolve("omnirt.actors.head:Head")(plan, asyncio.get_running_loop())
        head.start()
        return head

    with LiveGateway(make_head, config, close=lambda head: head.close()) as gateway:
        gateway.until(lambda: gateway.service.state().state == "ready")
        yield gateway
