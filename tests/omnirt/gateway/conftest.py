"""A gateway over a scripted service, live on a loopback port."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from omnirt.gateway.config import GatewayConfig
from omnirt.testing.live_gateway import LiveGateway
from omnirt.testing.scripted_service import ScriptedService


@pytest.fixture
def make_gateway() -> Iterator[Callable[..., LiveGateway]]:
    """make_gateway(service options..., config=GatewayConfig(...)) -> a live gateway."""
    with ExitStack() as stack:

        def make(*, config: GatewayConfig | None = None, **service: object) -> LiveGateway:
            return stack.enter_context(LiveGateway(lambda: ScriptedService(**service), config))

        yield make


@pytest.fixture(scope="module")
def shared_gateway() -> Iterator[LiveGateway]:
    with LiveGateway(ScriptedService) as gateway:
        yield gateway


@pytest.fixture
def gateway(shared_gateway: LiveGateway) -> Iterator[LiveGateway]:
    """The module's gateway, its script and state as at the start."""
    service = shared_gateway.service
    script = service.script
    yield shared_gateway
    service.script, service.state_name, service.stage_states = script, "ready", {}
