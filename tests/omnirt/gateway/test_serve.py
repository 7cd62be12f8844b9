"""Taking a port and giving it back."""

import asyncio

import pytest

from omnirt.errors import ConfigError
from omnirt.gateway.app import build
from omnirt.gateway.config import GatewayConfig
from omnirt.gateway.serve import bind, serve
from omnirt.testing.scripted_service import ScriptedService


def test_a_taken_port_is_said_before_anything_is_loaded():
    with bind("127.0.0.1", 0) as first:
        first.listen()
        port = first.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port} of 127.0.0.1 is taken; choose another with --port"):
            bind("127.0.0.1", port)


@pytest.mark.parametrize("port", [-1, 65_536])
def test_a_number_that_is_no_port_is_refused(port):
    with pytest.raises(ConfigError, match="is not from 0 to 65535"):
        bind("127.0.0.1", port)


def test_an_address_of_somebody_else_is_refused_with_the_reason():
    with pytest.raises(ConfigError, match=r"cannot listen on 192\.0\.2\.1:0"):
        bind("192.0.2.1", 0)


def test_a_second_server_takes_the_port_when_the_first_is_gone():
    async def once(port):
        listener = bind("127.0.0.1", port)
        runner = await serve(build(ScriptedService(), GatewayConfig()), listener)
        port = listener.getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        async with asyncio.timeout(10):  # an idle connection does not hold it up
            await runner.cleanup()
            await reader.read()
        writer.close()
        return port

    port = asyncio.run(once(0))
    assert asyncio.run(once(port)) == port
