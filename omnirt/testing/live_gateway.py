"""A gateway on a free loopback port, in a thread of its own, so that blocking clients can be tested against it."""

from __future__ import annotations

import asyncio
import http.client
import socket
import threading
from collections.abc import Callable
from typing import Any, Self, TypeVar

import msgspec
import uvloop
from msgspec import Struct

from omnirt.gateway.app import build
from omnirt.gateway.config import GatewayConfig
from omnirt.gateway.serve import bind, serve
from omnirt.session.service import Service

T = TypeVar("T")
PATIENCE_S = 30.0


class Answer(Struct, frozen=True):
    """A whole answer. Header names are lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    def error(self) -> dict[str, Any]:
        """The envelope's content."""
        return self.json()["error"]


class LiveGateway:
    """`with LiveGateway(make_service) as gateway: ... gateway.url ...`. The service is made and closed on its loop."""

    def __init__(
        self,
        make_service: Callable[[], Service],
        config: GatewayConfig | None = None,
        close: Callable[[Any], None] = lambda service: None,
    ) -> None:
        self._make_service = make_service
        self._close = close
        self._config = config or GatewayConfig()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._main, name="live-gateway", daemon=True)
        self._failure: BaseException | None = None
        self.service: Service
        self.host = "127.0.0.1"
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def connect(self) -> socket.socket:
        return socket.create_connection((self.host, self.port), timeout=PATIENCE_S)

    def ask(self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None) -> Answer:
        """One request on its own connection. `body`: bytes as they are, anything else as JSON."""
        sent = dict(headers or {})
        data = body if body is None or isinstance(body, bytes) else msgspec.json.encode(body)
        if data is not body:
            sent.setdefault("Content-Type", "application/json")
        connection = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE_S)
        try:
            connection.request(method, path, data, sent)
            response = connection.getresponse()
            fields = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, fields, response.read())
        finally:
            connection.close()

    def speak(self, text: str = "hello there", headers: dict[str, str] | None = None, **fields: Any) -> Answer:
        return self.ask("POST", "/v1/audio/speech", {"input": text, **fields}, headers)

    def exchange(self, request: bytes) -> bytes:
        """What comes back for raw bytes, until the server closes."""
        with self.connect() as connection:
            connection.sendall(request)
            received = bytearray()
            while data := connection.recv(1 << 16):
                received += data
        return bytes(received)

    def until(self, holds: Callable[[], bool]) -> None:
        """Returns when `holds`, asked on the gateway's loop, is true; fails when it stays false."""

        async def watch() -> None:
            async with asyncio.timeout(PATIENCE_S):
                while not holds():  # noqa: ASYNC110 - a test may watch what no event announces
                    await asyncio.sleep(0.005)

        asyncio.run_coroutine_threadsafe(watch(), self._loop).result()

    def call(self, work: Callable[[], T]) -> T:
        """The result of `work` run on the gateway's loop."""

        async def run() -> T:
            return work()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(PATIENCE_S)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(PATIENCE_S), "the gateway did not start"
        if self._failure is not None:
            raise self._failure
        return self

    def __exit__(self, *exc: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "the gateway did not stop"

    def _main(self) -> None:
        uvloop.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        try:
            self.service = self._make_service()
            listener = bind(self.host, 0)
            self.port = listener.getsockname()[1]
            runner = await serve(build(self.service, self._config), listener, shutdown_s=0.2)
        except BaseException as error:  # noqa: BLE001 - raised again in the thread of the test
            self._failure = error
            self._ready.set()
            return
        self._ready.set()
        await self._stop.wait()
        await runner.cleanup()
        self._close(self.service)
