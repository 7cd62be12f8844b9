"""Listening: a bound socket, and the runner with the settings that the gateway relies on."""

from __future__ import annotations

import errno
import logging
import socket

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from omnirt.errors import ConfigError

HEADER_BYTES_MAX = 64 << 10
IDLE_CONNECTION_S = 75.0
LINGER_S = 2.0
"""How long the rest of a refused body is read and dropped, so that the client gets to read why."""


def bind(host: str, port: int) -> socket.socket:
    """A bound socket, taken before anything is loaded. Port 0 takes a free one. Raises ConfigError."""
    if not 0 <= port < 1 << 16:
        raise ConfigError(f"port {port} is not from 0 to 65535; choose another with --port")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(f"port {port} of {host} is taken; choose another with --port") from error
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}") from error
    listener.setblocking(False)
    return listener


async def serve(app: web.Application, listener: socket.socket, shutdown_s: float = 5.0) -> web.AppRunner:
    """Accept connections. `await runner.cleanup()` stops: idle connections go at once, busy ones after `shutdown_s`."""
    runner = web.AppRunner(
        app,
        handler_cancellation=True,  # a client that leaves cancels its handler, and so its request
        access_log=None,  # the gate logs, with the request's id
        logger=_protocol_log(),
        auto_decompress=False,  # the gate refuses what is compressed
        keepalive_timeout=IDLE_CONNECTION_S,
        lingering_time=LINGER_S,
        max_line_size=HEADER_BYTES_MAX,
        max_field_size=HEADER_BYTES_MAX,
        shutdown_timeout=shutdown_s,
    )
    await runner.setup()
    await web.SockSite(runner, listener, backlog=1024).start()
    return runner


def _protocol_log() -> logging.Logger:
    """For what the HTTP library says: it never reaches the gate."""
    log = logging.getLogger("omnirt.gateway.http")
    log.addFilter(_plainly)
    return log


def _plainly(record: logging.LogRecord) -> bool:
    """What does not speak HTTP (scanners, TLS on this port) is a line of news, not an error of ours with its trace.

    Only the kind of mistake is kept: the library quotes the bytes that it is about, and there may be a key in them.
    """
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, HttpProcessingError):
        record.levelno, record.levelname = logging.INFO, logging.getLevelName(logging.INFO)
        record.msg, record.args = "not HTTP: %s", (error.message.partition(":")[0],)
        record.exc_info = None
    return record.levelno >= logging.getLogger(record.name).getEffectiveLevel()
