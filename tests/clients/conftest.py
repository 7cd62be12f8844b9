"""Servers that unmodified clients are run against.

`server` is any omnirt server that speaks; `scripted` one whose behaviour the test decides. Both have `url`, `ask` and
`connect` (see LiveGateway). To run the general checks against another server as well, add its name to SERVERS and give
a fixture `<name>_server`.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import openai
import pytest

from omnirt.gateway.config import GatewayConfig
from omnirt.loader import resolve
from omnirt.pipeline.deploy import load_plan
from omnirt.testing.live_gateway import LiveGateway
from omnirt.testing.scripted_service import ScriptedService

ROOT = Path(__file__).parent.parent.parent
SERVERS = ("scripted", "tone", "speech")


@pytest.fixture(scope="module")
def scripted_server() -> Iterator[LiveGateway]:
    with LiveGateway(ScriptedService) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def tone_server() -> Iterator[LiveGateway]:
    """The real runtime, with a stage that needs no weights."""
    yield from _real("tone")


@pytest.fixture(scope="module")
def speech_server() -> Iterator[LiveGateway]:
    """The real runtime with the voice."""
    yield from _real("speech")


def _real(pipeline: str) -> Iterator[LiveGateway]:
    plan = load_plan(str(ROOT / "pipelines" / f"{pipeline}.toml"), [], [])

    def start() -> Any:
        head = resolve("omnirt.actors.head:Head")(plan, asyncio.get_running_loop())
        head.start()
        return head

    with LiveGateway(start, close=lambda head: head.close()) as gateway:
        gateway.until(lambda: gateway.service.state().state == "ready")
        yield gateway


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> LiveGateway:
    return request.getfixturevalue(f"{request.param}_server")


@pytest.fixture
def scripted() -> Iterator[Callable[..., LiveGateway]]:
    """scripted(service options..., config=GatewayConfig(...)) -> a server of its own."""
    with ExitStack() as stack:

        def make(*, config: GatewayConfig | None = None, **service: object) -> LiveGateway:
            return stack.enter_context(LiveGateway(lambda: ScriptedService(**service), config))

        yield make


@pytest.fixture
def connect() -> Iterator[Callable[..., openai.OpenAI]]:
    """connect(server, ...) -> the SDK's client, as users make it."""
    with ExitStack() as stack:

        def make(server: LiveGateway, **options: object) -> openai.OpenAI:
            settings = {"base_url": f"{server.url}/v1", "api_key": "unused", "max_retries": 0, "timeout": 30} | options
            return stack.enter_context(openai.OpenAI(**settings))

        yield make


@pytest.fixture
def client(server: LiveGateway, connect: Callable[..., openai.OpenAI]) -> openai.OpenAI:
    return connect(server)


@pytest.fixture
def voice(server: LiveGateway) -> str:
    """A voice that the server has."""
    return server.ask("GET", "/v1/audio/voices").json()["voices"][0]["id"]


@pytest.fixture
def model(server: LiveGateway) -> str:
    """The model's first name."""
    return server.ask("GET", "/v1/models").json()["data"][0]["id"]
