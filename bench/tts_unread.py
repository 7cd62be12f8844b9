"""A listener that takes nothing after the first packet: its answer fills the buffers on the way and then waits."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from tts_ask import Asking, asks

BUFFER_BYTES = 4096
FIRST_LIMIT_S = 60.0


@contextmanager
def unread(asking: Asking) -> Iterator[None]:
    """Given once its first packet is there. Raises ConnectionError when there is none."""
    ask = asks(asking)(0)
    parts = urlsplit(asking.url)
    head = (
        f"POST {ask.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: {ask.content_type}\r\n"
        f"Content-Length: {len(ask.body)}\r\n\r\n"
    )
    with contextlib.closing(socket.socket()) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)  # before connecting, to count
        connection.settimeout(FIRST_LIMIT_S)
        connection.connect((parts.hostname, parts.port or 80))
        connection.sendall(head.encode() + ask.body)
        _first_packet(connection)
        yield


def _first_packet(connection: socket.socket) -> None:
    """Reads the head of the answer and something of its body, and no more than one buffer beyond that."""
    got = b""
    while not got.partition(b"\r\n\r\n")[2]:
        piece = connection.recv(BUFFER_BYTES)
        if not piece:
            raise ConnectionError("the server closed before the first packet")
        got += piece
    status = got.split(b"\r\n", 1)[0]
    if b" 200" not in status:
        raise ConnectionError(f"the listener that does not read was answered: {got.decode(errors='replace')[:300]}")
