"""The control channel between the head and a node: whole messages and descriptors over one SOCK_SEQPACKET pair.

    message = datagram*; a datagram is one byte (MORE or LAST) and up to FRAGMENT_BYTES of the message

Invariants
* `send` never blocks and never raises because of the peer: a peer that does not read meets a bounded backlog, and
  overflow closes the channel (`on_closed(ChannelFull)`); a dead one is reported by its end of file.
* `on_closed` runs at most once, from the loop, never from inside `send`, and not after `close`.
* Every descriptor has one owner: those received and not delivered are closed here.
* What the peer wrote before it died is delivered before `on_closed`.
"""

from __future__ import annotations

import array
import asyncio
import os
import select
import socket
from collections import deque
from collections.abc import Callable, Sequence

from omnirt.clock import NS, monotonic_ns

MESSAGE_BYTES_MAX = 16 << 20
FRAGMENT_BYTES = 64 << 10  # well below the default send buffer (208 KiB): one datagram must fit as a whole
BACKLOG_FRAGMENTS_MAX = 4096
BACKLOG_BYTES_MAX = 2 * MESSAGE_BYTES_MAX
FDS_MAX = 64  # per message; the kernel's own limit is 253 per datagram
_READS_PER_WAKE = 32  # then the rest of the loop has its turn

_LAST = b"\x00"
_MORE = b"\x01"


class ChannelError(Exception):
    """Why a channel closed before its peer did."""


class ChannelFull(ChannelError):
    """The peer has stopped reading: the backlog is full."""


class ChannelBroken(ChannelError):
    """What arrived is not our protocol."""


OnMessage = Callable[[bytes, list[int]], None]
OnClosed = Callable[[ChannelError | None], None]
_Waiting = tuple[bytes, memoryview, list[int]]


def pair() -> tuple[socket.socket, socket.socket]:
    """Two connected ends, both close-on-exec."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


class Channel:
    def __init__(
        self, sock: socket.socket, loop: asyncio.AbstractEventLoop, on_message: OnMessage, on_closed: OnClosed
    ) -> None:
        self._sock = sock
        self._loop = loop
        self._on_message = on_message
        self._on_closed = on_closed
        self._closed = False
        self._deaf = False  # the peer reads no more; its last words may still be unread here
        self._writing = False
        self._backlog: deque[_Waiting] = deque()
        self._backlog_bytes = 0
        self._incoming = _Incoming()
        self._buffer = memoryview(bytearray(FRAGMENT_BYTES + 1))
        sock.setblocking(False)
        loop.add_reader(sock, self._readable)

    @property
    def closed(self) -> bool:
        return self._closed

    # ------------------------------------------------------------ writing

    def send(self, data: bytes, fds: Sequence[int] = ()) -> None:
        """Send one message. The caller keeps its descriptors: those that have to wait are duplicated."""
        if len(data) > MESSAGE_BYTES_MAX:
            raise ValueError(f"a control message of {len(data)} bytes is over the limit of {MESSAGE_BYTES_MAX}")
        if len(fds) > FDS_MAX:
            raise ValueError(f"{len(fds)} descriptors in one message, {FDS_MAX} at most")
        if self._closed or self._deaf:
            return
        for flag, part in _fragments(data):
            part_fds = fds if flag is _LAST else ()
            if self._backlog or not self._write(flag, part, part_fds):
                self._wait(flag, part, part_fds)
            if self._closed or self._deaf:
                return
        self._watch_writable()

    def flush(self, timeout_s: float) -> bool:
        """Block until the kernel has everything. True if it has. For a node that is loading, or about to exit."""
        deadline_ns = monotonic_ns() + int(timeout_s * NS)
        poller = select.poll()
        if self._backlog:
            poller.register(self._sock, select.POLLOUT)
            self._flush_some()
        while self._backlog:
            left_ns = deadline_ns - monotonic_ns()
            if left_ns <= 0:
                return False
            poller.poll(left_ns / 1e6)
            self._flush_some()
        return not (self._closed or self._deaf)

    def _write(self, flag: bytes, part: memoryview, fds: Sequence[int]) -> bool:
        """True if the datagram is out of our hands."""
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        try:
            self._sock.sendmsg((flag, part), rights, socket.MSG_NOSIGNAL)
        except BlockingIOError:
            return False
        except (BrokenPipeError, ConnectionResetError):
            self._stop_writing()  # reading will meet the end of file; it is the one place that reports it
        return True

    def _wait(self, flag: bytes, part: memoryview, fds: Sequence[int]) -> None:
        full = len(self._backlog) >= BACKLOG_FRAGMENTS_MAX or self._backlog_bytes + len(part) > BACKLOG_BYTES_MAX
        if full:
            self._fail(ChannelFull(f"{len(self._backlog)} control messages are waiting for a peer that does not read"))
            return
        self._backlog.append((flag, part, [os.dup(fd) for fd in fds]))
        self._backlog_bytes += len(part)

    def _flush_some(self) -> None:
        while self._backlog:
            flag, part, fds = self._backlog[0]
            if not self._write(flag, part, fds):
                return
            if not self._backlog:  # the peer died: the backlog has been dropped
                return
            self._backlog.popleft()
            self._backlog_bytes -= len(part)
            _close_all(fds)
        self._watch_writable()

    def _watch_writable(self) -> None:
        wanted = bool(self._backlog) and not self._closed
        if wanted == self._writing:
            return
        self._writing = wanted
        if wanted:
            self._loop.add_writer(self._sock, self._flush_some)
        else:
            self._loop.remove_writer(self._sock)

    def _stop_writing(self) -> None:
        self._deaf = True
        for _, _, fds in self._backlog:
            _close_all(fds)
        self._backlog.clear()
        self._backlog_bytes = 0
        self._watch_writable()

    # ------------------------------------------------------------ reading

    def drain(self) -> None:
        """Deliver what has arrived, without waiting. For a head that just learned of the peer's death."""
        while not self._closed and self._read_one():
            pass

    def _readable(self) -> None:
        for _ in range(_READS_PER_WAKE):
            if self._closed or not self._read_one():
                return

    def _read_one(self) -> bool:
        """Read one datagram. False when there is none, or never again."""
        try:
            size, rights, flags, _ = self._sock.recvmsg_into(
                [self._buffer], socket.CMSG_SPACE(FDS_MAX * 4), socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            return False
        except ConnectionResetError:
            return True  # the peer died with our messages unread; reported once, its own messages are still behind it
        self._incoming.take_fds(rights)
        if size == 0:
            self._fail(None)
            return False
        if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
            self._fail(ChannelBroken("a datagram or its descriptors arrived cut short"))
            return False
        try:
            whole = self._incoming.add(self._buffer[:size])
        except ChannelBroken as broken:
            self._fail(broken)
            return False
        if whole is not None:
            self._on_message(*whole)
        return True

    # ------------------------------------------------------------ the end

    def _fail(self, why: ChannelError | None) -> None:
        if not self._closed:
            self.close()
            self._loop.call_soon(self._on_closed, why)

    def close(self) -> None:
        if self._closed:
            return
        self._loop.remove_reader(self._sock)
        self._stop_writing()
        self._closed = True
        self._incoming.drop()
        self._sock.close()


class _Incoming:
    """A message on its way in: its fragments and descriptors so far."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._fds: list[int] = []

    def take_fds(self, rights: list[tuple[int, int, bytes]]) -> None:
        for level, kind, data in rights:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                received = array.array("i")
                received.frombytes(data[: len(data) - len(data) % received.itemsize])
                self._fds.extend(received)

    def add(self, datagram: memoryview) -> tuple[bytes, list[int]] | None:
        """The whole message once its last fragment is here."""
        flag = bytes(datagram[:1])
        if len(self._data) + len(datagram) - 1 > MESSAGE_BYTES_MAX or len(self._fds) > FDS_MAX:
            raise ChannelBroken(f"a control message is over the limit of {MESSAGE_BYTES_MAX} bytes")
        if flag == _MORE:
            self._data += datagram[1:]
            return None
        if flag != _LAST:
            raise ChannelBroken(f"a datagram starts with {flag!r}")
        if self._data:
            self._data += datagram[1:]
            data, self._data = bytes(self._data), bytearray()
        else:
            data = bytes(datagram[1:])
        fds, self._fds = self._fds, []
        return data, fds

    def drop(self) -> None:
        _close_all(self._fds)
        self._fds = []
        self._data = bytearray()


def _fragments(data: bytes) -> list[tuple[bytes, memoryview]]:
    view = memoryview(data)
    if len(view) <= FRAGMENT_BYTES:
        return [(_LAST, view)]
    parts = [view[at : at + FRAGMENT_BYTES] for at in range(0, len(view), FRAGMENT_BYTES)]
    return [(_LAST if part is parts[-1] else _MORE, part) for part in parts]


def _close_all(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)
