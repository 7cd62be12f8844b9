"""The client of `bench/serve`: what it costs is taken from the server it measures, so it does little per event.

One protocol object per connection; what arrives goes to a reader at once, with the time.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import deque
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import msgspec
from serve_ask import Ask
from serve_read import READERS, Reader, Record, Refusal

IDLE_MAX = 1024


class Connection(asyncio.Protocol):
    """One request at a time."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.reusable = True
        self.heard = False
        """Whether anything of an answer has come."""
        self._waiter: asyncio.Future[None] | None = None
        self._buffer = b""
        self._reader: Reader | None = None
        self._record: Record
        self._make: Callable[[Record], Reader]
        self._left = 0
        """Bytes of the body, or of this chunk of it, that are to come; -1: until the connection ends."""
        self._chunked = False

    def ask(self, head: bytes, ask: Ask, record: Record) -> asyncio.Future[None]:
        self._make, self._record, self._reader = READERS[ask.reads], record, None
        self._buffer, self.heard = b"", False
        self._waiter = asyncio.get_running_loop().create_future()
        self.transport.write(head + ask.body)
        return self._waiter

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        at_ns = time.monotonic_ns()
        if self._waiter is None:  # more than was asked for
            self.transport.abort()
            return
        self.heard = True
        data = self._buffer + data if self._buffer else data
        try:
            if self._reader is None:
                data = self._head(data)
            if self._reader is not None:
                data = self._chunks(data, at_ns) if self._chunked else self._plain(data, at_ns)
        except (ValueError, msgspec.MsgspecError) as error:
            self._over("unreadable", error)
            return
        self._buffer = data

    def connection_lost(self, error: Exception | None) -> None:
        self.reusable = False
        if self._left == -1 and error is None and self._reader is not None:
            self._whole()
        else:
            self._over("broken")

    def _head(self, data: bytes) -> bytes:
        end = data.find(b"\r\n\r\n")
        if end < 0:
            return data
        status, *lines = data[:end].split(b"\r\n")
        pairs = (line.partition(b":") for line in lines)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        number = int(status.partition(b" ")[2][:3])
        self._reader = self._make(self._record) if number == 200 else Refusal(self._record, number)
        self._reader.begin(headers)
        self._chunked = headers.get(b"transfer-encoding", b"").lower() == b"chunked"
        self._left = 0 if self._chunked else int(headers.get(b"content-length", b"-1"))
        self.reusable = headers.get(b"connection", b"").lower() != b"close" and self._left >= 0
        return data[end + 4 :]

    def _plain(self, data: bytes, at_ns: int) -> bytes:
        assert self._reader is not None
        self._reader.feed(data, at_ns)
        if self._left >= 0:
            self._left -= len(data)
            if self._left <= 0:
                self._whole()
        return b""

    def _chunks(self, data: bytes, at_ns: int) -> bytes:
        """Chunks as far as they came: a part of one is handed on, half a size line waits."""
        assert self._reader is not None
        start = 0
        while start < len(data):
            if self._left > 2:
                part = data[start : start + self._left - 2]
                self._reader.feed(part, at_ns)
                start, self._left = start + len(part), self._left - len(part)
                continue
            if self._left:  # the line break behind a chunk
                skipped = min(self._left, len(data) - start)
                start, self._left = start + skipped, self._left - skipped
                continue
            end = data.find(b"\r\n", start)
            if end < 0:
                break
            size = int(data[start:end].partition(b";")[0], 16)
            if size == 0:
                if data.find(b"\r\n", end + 2) < 0:  # trailers are not expected
                    break
                self._whole()
                return b""
            start, self._left = end + 2, size + 2
        return data[start:]

    def _whole(self) -> None:
        try:
            if self._reader is not None:
                self._reader.end()
        except msgspec.MsgspecError as error:
            self._over("unreadable", error)
            return
        self._over("")

    def _over(self, code: str, error: Exception | None = None) -> None:
        waiter, self._waiter, self._reader = self._waiter, None, None
        if error is not None:
            self.reusable = False
        if waiter is not None and not waiter.done():
            self._record.ended_ns = time.monotonic_ns()
            self._record.code = self._record.code or code
            waiter.set_result(None)


class Client:
    def __init__(self, url: str, timeout_s: float = 120.0, key: str = "") -> None:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.hostname is None or parts.scheme not in ("http", "https"):
            raise ValueError(f"{url} is not a URL such as http://127.0.0.1:8091")
        self._host = parts.hostname
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._base = parts.path.rstrip("/").removesuffix("/v1")
        self._timeout_s = timeout_s
        self._extra = f"Authorization: Bearer {key}\r\n" if key else ""
        self._idle: deque[Connection] = deque(maxlen=IDLE_MAX)

    async def ask(self, ask: Ask, began_ns: int = 0) -> Record:
        record = Record(began_ns or time.monotonic_ns(), sent_s=ask.sent_s)
        try:
            async with asyncio.timeout(self._timeout_s):
                while await self._asked(ask, record):
                    pass
        except TimeoutError:
            record.code = "timeout"
        except OSError:
            record.code = "connect"
        record.ended_ns = record.ended_ns or time.monotonic_ns()
        return record

    async def _asked(self, ask: Ask, record: Record) -> bool:
        """Whether to ask again: the connection was an old one that the server had closed meanwhile."""
        connection, is_old = await self._connection()
        try:
            await connection.ask(self._head(ask), ask, record)
        except asyncio.CancelledError:
            connection.transport.abort()
            raise
        if connection.reusable and not connection.transport.is_closing():
            self._idle.append(connection)
        else:
            connection.transport.abort()
        if is_old and record.code == "broken" and not connection.heard:
            record.code = ""
            return True
        return False

    async def _connection(self) -> tuple[Connection, bool]:
        while self._idle:
            connection = self._idle.pop()
            if not connection.transport.is_closing():
                return connection, True
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(Connection, self._host, self._port, ssl=self._tls)
        return connection, False

    def _head(self, ask: Ask) -> bytes:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return (
            f"POST {self._base}{ask.path} HTTP/1.1\r\nHost: {host}:{self._port}\r\nContent-Type: {ask.content_type}\r\n"
            f"Content-Length: {len(ask.body)}\r\nAccept: */*\r\n{self._extra}\r\n"
        ).encode()

    def close(self) -> None:
        while self._idle:
            self._idle.pop().transport.abort()
