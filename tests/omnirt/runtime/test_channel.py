"""The control channel: whole messages, descriptors, bounds, and one report of the end."""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
from collections.abc import Iterator

import pytest
import uvloop

from omnirt.runtime import channel as channel_module
from omnirt.runtime.channel import Channel, ChannelBroken, ChannelError, ChannelFull, pair

PATIENCE_S = 20


class End:
    """One end of a pair that writes down what happens to it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket) -> None:
        self.loop = loop
        self.messages: list[bytes] = []
        self.fds: list[list[int]] = []
        self.ends: list[ChannelError | None] = []
        self.change = asyncio.Event()
        self.channel = Channel(sock, loop, self.on_message, self.on_closed)

    def on_message(self, data: bytes, fds: list[int]) -> None:
        self.messages.append(data)
        self.fds.append(fds)
        self.change.set()

    def on_closed(self, why: ChannelError | None) -> None:
        self.ends.append(why)
        self.change.set()

    def until(self, messages: int = 0, ends: int = 0) -> None:
        async def wait() -> None:
            while len(self.messages) < messages or len(self.ends) < ends:
                self.change.clear()
                await asyncio.wait_for(self.change.wait(), PATIENCE_S)

        self.loop.run_until_complete(wait())


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = uvloop.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture
def ends(loop: asyncio.AbstractEventLoop) -> Iterator[tuple[End, End]]:
    a, b = pair()
    one, other = End(loop, a), End(loop, b)
    yield one, other
    one.channel.close()
    other.channel.close()


def settle(loop: asyncio.AbstractEventLoop) -> None:
    """Let everything that is ready happen."""
    loop.run_until_complete(asyncio.sleep(0.05))


def open_fds() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_messages_arrive_whole_and_in_order(ends: tuple[End, End]) -> None:
    one, other = ends
    sent = [b"", b"x", b"y" * 1000]
    for data in sent:
        one.channel.send(data)
    other.until(messages=3)
    assert other.messages == sent


def test_both_directions_are_independent(ends: tuple[End, End]) -> None:
    one, other = ends
    one.channel.send(b"there")
    other.channel.send(b"back")
    other.until(messages=1)
    one.until(messages=1)
    assert (one.messages, other.messages) == ([b"back"], [b"there"])


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_messages_around_the_fragment_size_survive(ends: tuple[End, End], extra: int) -> None:
    one, other = ends
    data = os.urandom(channel_module.FRAGMENT_BYTES + extra)
    one.channel.send(data)
    other.until(messages=1)
    assert other.messages == [data]


def test_the_largest_message_passes_through_a_small_socket_buffer(ends: tuple[End, End]) -> None:
    one, other = ends
    data = os.urandom(channel_module.MESSAGE_BYTES_MAX)
    one.channel.send(data)
    one.channel.send(b"after")
    other.until(messages=2)
    assert other.messages == [data, b"after"]


def test_a_message_over_the_limit_is_the_senders_mistake(ends: tuple[End, End]) -> None:
    with pytest.raises(ValueError, match="over the limit"):
        ends[0].channel.send(bytes(channel_module.MESSAGE_BYTES_MAX + 1))


def test_descriptors_travel_and_are_close_on_exec(ends: tuple[End, End]) -> None:
    one, other = ends
    reading, writing = os.pipe()
    one.channel.send(b"take it", [writing])
    os.close(writing)
    other.until(messages=1)
    (received,) = other.fds[0]
    assert fcntl.fcntl(received, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    os.write(received, b"through")
    assert os.read(reading, 100) == b"through"
    os.close(received)
    os.close(reading)


def test_descriptors_of_a_message_that_waits_survive_the_callers_close(ends: tuple[End, End]) -> None:
    one, other = ends
    reading, writing = os.pipe()
    one.channel.send(bytes(channel_module.MESSAGE_BYTES_MAX // 2))
    one.channel.send(b"take it", [writing])
    os.close(writing)
    other.until(messages=2)
    assert [len(fds) for fds in other.fds] == [0, 1]
    os.write(other.fds[1][0], b"through")
    assert os.read(reading, 100) == b"through"
    os.close(other.fds[1][0])
    os.close(reading)


def test_end_of_file_is_reported_once_after_the_last_words(
    loop: asyncio.AbstractEventLoop, ends: tuple[End, End]
) -> None:
    one, other = ends
    one.channel.send(b"last words")
    one.channel.close()
    other.until(messages=1, ends=1)
    settle(loop)
    assert other.messages == [b"last words"]
    assert other.ends == [None]
    assert one.ends == []


@pytest.mark.parametrize("sent_after", [0, 1])
def test_last_words_are_read_although_our_own_messages_were_not(ends: tuple[End, End], sent_after: int) -> None:
    one, other = ends
    other.channel.send(b"never read")  # so that the kernel reports a reset
    one.channel.send(b"last words")
    one.channel.close()
    for _ in range(sent_after):
        other.channel.send(b"nobody is there")
    other.until(messages=1, ends=1)
    assert (other.messages, other.ends) == ([b"last words"], [None])


def test_nothing_overtakes_the_backlog(loop: asyncio.AbstractEventLoop) -> None:
    a, b = pair()
    end = End(loop, a)
    part = channel_module.FRAGMENT_BYTES
    for number in range(8):  # the kernel takes three of this size
        end.channel.send(bytes([number]) * part)
    received = [b.recv(part + 1)[1] for _ in range(3)]
    end.channel.send(b"\x08")  # there is room in the kernel now
    end.channel.flush(0)
    while received[-1] != 8:
        received.append(b.recv(part + 1)[1])
        end.channel.flush(0)
    assert received == list(range(9))
    end.channel.close()
    b.close()


def test_drain_delivers_what_has_arrived_without_the_loop(ends: tuple[End, End]) -> None:
    one, other = ends
    for count in range(100):
        one.channel.send(b"%d" % count)
    one.channel.close()
    other.channel.drain()
    assert len(other.messages) == 100
    assert other.ends == []
    other.until(ends=1)


def test_sending_after_the_end_does_nothing(ends: tuple[End, End]) -> None:
    one, other = ends
    one.channel.close()
    one.channel.close()
    one.channel.send(b"too late")
    other.until(ends=1)
    other.channel.send(b"too late")
    assert one.channel.closed
    assert other.channel.closed


def test_a_peer_that_does_not_read_overflows_and_is_reported_once(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel_module, "BACKLOG_FRAGMENTS_MAX", 10)
    before = open_fds()
    a, stuck = pair()
    end = End(loop, a)
    reading, writing = os.pipe()
    for _ in range(100_000):
        end.channel.send(b"hello", [writing])
        if end.channel.closed:
            break
    assert end.ends == []  # never from inside send
    end.until(ends=1)
    settle(loop)
    (why,) = end.ends
    assert isinstance(why, ChannelFull)
    for fd in (reading, writing):
        os.close(fd)
    stuck.close()
    assert open_fds() == before


def test_the_backlog_is_bounded_in_bytes(loop: asyncio.AbstractEventLoop) -> None:
    a, stuck = pair()
    end = End(loop, a)
    sent = 0
    while not end.channel.closed:
        end.channel.send(bytes(channel_module.FRAGMENT_BYTES))
        sent += channel_module.FRAGMENT_BYTES
    assert sent < channel_module.BACKLOG_BYTES_MAX + (1 << 20)
    end.until(ends=1)
    stuck.close()


def test_flush_hands_everything_over_while_the_loop_stands_still(loop: asyncio.AbstractEventLoop) -> None:
    a, b = pair()
    end = End(loop, a)
    b.setblocking(False)
    data = bytes(8 * channel_module.FRAGMENT_BYTES)
    end.channel.send(data)
    assert end.channel.flush(0.01) is False
    received = 0
    while received < len(data):
        received += len(b.recv(1 << 20)) - 1
        end.channel.flush(0.001)
    assert end.channel.flush(1) is True
    end.channel.close()
    b.close()


def test_flush_ends_when_the_peer_is_gone(loop: asyncio.AbstractEventLoop) -> None:
    a, b = pair()
    end = End(loop, a)
    end.channel.send(bytes(8 * channel_module.FRAGMENT_BYTES))
    b.close()
    assert end.channel.flush(PATIENCE_S) is False
    end.until(ends=1)
    assert end.ends == [None]


@pytest.mark.parametrize("datagram", [b"\x07what", b"\xff"])
def test_a_foreign_datagram_closes_the_channel(loop: asyncio.AbstractEventLoop, datagram: bytes) -> None:
    a, b = pair()
    end = End(loop, a)
    b.send(datagram)
    end.until(ends=1)
    assert isinstance(end.ends[0], ChannelBroken)
    b.close()


def test_an_endless_message_is_refused(loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_module, "MESSAGE_BYTES_MAX", 1000)
    a, b = pair()
    end = End(loop, a)
    for _ in range(11):
        b.send(b"\x01" + bytes(100))
    end.until(ends=1)
    assert isinstance(end.ends[0], ChannelBroken)
    assert end.messages == []
    b.close()


def test_descriptors_of_an_unfinished_message_are_closed_with_the_channel(loop: asyncio.AbstractEventLoop) -> None:
    before = open_fds()
    a, b = pair()
    end = End(loop, a)
    reading, writing = os.pipe()
    socket.send_fds(b, [b"\x01begin"], [reading, writing])
    for fd in (reading, writing):
        os.close(fd)
    b.close()
    end.until(ends=1)
    assert end.messages == []
    assert open_fds() == before


def test_a_message_handler_may_close_its_own_channel(loop: asyncio.AbstractEventLoop) -> None:
    a, b = pair()
    end = End(loop, a)
    end.channel.close()
    c, d = pair()
    seen: list[bytes] = []

    def once(data: bytes, fds: list[int]) -> None:
        seen.append(data)
        channel.close()

    channel = Channel(c, loop, once, end.on_closed)
    d.send(b"\x00one")
    d.send(b"\x00two")
    settle(loop)
    assert seen == [b"one"]
    assert end.ends == []
    b.close()
    d.close()
