"""The transports measured side by side: ours, and what others use. One class each, behind `Peer`.

The peers' steps are stated here again in our own words; those that need a package say so when it is missing.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import importlib.util
import logging
import os
import pickle
import select
import shutil
import sys
import tempfile
import types
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import resource_tracker
from typing import Any

import numpy as np
from transport_measure import FORK, MB, Peer, now_ns

from omnirt.connectors.base import LinkFull, Received
from omnirt.connectors.ring import RingPair
from omnirt.ids import Fence
from omnirt.wire.codec import Packing
from omnirt.wire.messages import Chunk, Record
from omnirt.wire.payload import Latents
from omnirt.wire.plan import LinkPlan

TAG = f"b{os.getpid()}"
FENCE = Fence(3, 7)


class Watched(Peer):
    """A descriptor in the loop: the callback takes what there is and resolves the future a coroutine waits for."""

    def descriptor(self) -> int:
        raise NotImplementedError

    def pull(self) -> None:
        """Move what has arrived into `queue`."""
        raise NotImplementedError

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.waiting: asyncio.Future[None] | None = None
        loop.add_reader(self.descriptor(), self._readable)

    def _readable(self) -> None:
        self.pull()
        if self.waiting is not None and not self.waiting.done():
            self.waiting.set_result(None)


# ------------------------------------------------------------------------------------------------ ours


class Ring(Watched):
    """RingLink: 1 MB rings, four slots of 16 MB one way. The payload's packing is made once, as its array is."""

    spins_us = 0

    def __init__(self) -> None:
        self.pair = RingPair.create(LinkPlan("a", "b", MB, 16 * MB + 4096, 4, 65536, 2))

    def open(self, side: int) -> None:
        self.link = self.pair.link("ab"[side])
        self.queue: deque[tuple[Record, Received | None]] = deque()
        self.packed: np.ndarray | None = None
        self.poll = select.poll()
        self.poll.register(self.link.fileno(), select.POLLIN)
        self.received: Received | None = None
        self.seq = 0

    def pack(self, array: np.ndarray) -> Packing:
        return Packing(Latents(array))

    def send(self, array: np.ndarray) -> None:
        if array is not self.packed:
            self.packed, self.kept = array, self.pack(array)
        packing = self.kept
        self.seq += 1
        chunk = Chunk(1, 7, FENCE, self.seq, packing.header)
        while True:
            try:
                return self.link.send(chunk, packing)
            except LinkFull:
                os.sched_yield()

    def keep(self, record: Record, received: Received | None) -> None:
        self.queue.append((record, received))

    def view(self) -> np.ndarray:
        _, received = self.queue.popleft()
        assert received is not None
        self.received = received
        return np.frombuffer(received.body, np.uint8)

    def receive(self) -> np.ndarray:
        while not self.queue:
            self.poll.poll()
            self.link.pump(self.keep)
        return self.view()

    def release(self) -> None:
        assert self.received is not None
        self.received.release()

    def descriptor(self) -> int:
        return self.link.fileno()

    def pull(self) -> None:
        self.link.pump(self.keep)

    async def areceive(self) -> np.ndarray:
        while not self.queue:
            self.waiting = self.loop.create_future()
            await self.waiting
        return self.view()


class RingCodec(Ring):
    """The same with the whole codec inside: every send packs its array, every receive unpacks it."""

    def send(self, array: np.ndarray) -> None:
        self.packed = None
        super().send(array)

    def view(self) -> np.ndarray:
        _, received = self.queue.popleft()
        assert received is not None
        self.received = received
        return received.unpack(Latents).latents


class RingSpin(Ring):
    """Never parks: what is left when nobody sleeps."""

    modes = ("block",)

    def receive(self) -> np.ndarray:
        while not self.queue:
            self.link.drain(self.keep)
        return self.view()


class RingAdaptive(Ring):
    """Polls for 60 us after the last record, a few times in each turn of the loop, then parks. In the bench only."""

    modes = ("asyncio", "uvloop")
    poll_ns = 60_000
    polls_per_turn = 8

    def pull(self) -> None:
        self.link.clear()
        self.link.drain(self.keep)

    def receive(self) -> np.ndarray:
        until = now_ns() + self.poll_ns
        while not self.queue and now_ns() < until:
            self.link.drain(self.keep)
        return super().receive()

    async def areceive(self) -> np.ndarray:
        until = now_ns() + self.poll_ns
        while not self.queue:
            for _ in range(self.polls_per_turn):
                if self.link.drain(self.keep):
                    break
            if self.queue:
                break
            if now_ns() < until:
                await asyncio.sleep(0)
            elif self.link.park():
                self.waiting = self.loop.create_future()
                await self.waiting
        return self.view()


# ------------------------------------------------------------------------------------------------ peers


class Pipe(Watched):
    """multiprocessing.Pipe."""

    modes = ("block", "asyncio")

    def __init__(self) -> None:
        self.ends = FORK.Pipe()

    def open(self, side: int) -> None:
        self.side = side
        self.connection = self.ends[side]
        self.queue: deque[np.ndarray] = deque()

    def send(self, array: np.ndarray) -> None:
        self.connection.send_bytes(array)

    def receive(self) -> np.ndarray:
        return np.frombuffer(self.connection.recv_bytes(), np.uint8)

    def descriptor(self) -> int:
        return self.connection.fileno()

    def pull(self) -> None:
        self.queue.append(self.receive())

    async def areceive(self) -> np.ndarray:
        while not self.queue:
            self.waiting = self.loop.create_future()
            await self.waiting
        return self.queue.popleft()


class Zmq(Peer):
    """pyzmq, PUSH and PULL over ipc://."""

    modes = ("block", "asyncio")

    def __init__(self) -> None:
        self.folder = tempfile.mkdtemp(prefix=f"{TAG}_")

    def open(self, side: int) -> None:
        import zmq

        self.context = zmq.Context()
        self.out, self.into = self.context.socket(zmq.PUSH), self.context.socket(zmq.PULL)
        for each in (self.out, self.into):
            for option, value in ((zmq.SNDHWM, 256), (zmq.RCVHWM, 256), (zmq.LINGER, 0)):
                each.setsockopt(option, value)
        self.out.bind(f"ipc://{self.folder}/{side}")
        self.into.connect(f"ipc://{self.folder}/{1 - side}")

    def send(self, array: np.ndarray) -> None:
        self.out.send(array, copy=array.nbytes < 65536)

    def receive(self) -> np.ndarray:
        return np.frombuffer(self.into.recv(copy=False).buffer, np.uint8)

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        import zmq.asyncio

        self.awaitable = zmq.asyncio.Socket.from_socket(self.into)

    async def areceive(self) -> np.ndarray:
        return np.frombuffer((await self.awaitable.recv(copy=False)).buffer, np.uint8)

    def close(self) -> None:
        self.context.destroy(linger=0)


class SegmentPerPayload(Pipe):
    """The steps of vLLM-Omni's shared-memory connector: encode (a copy), lock file, new segment, copy, close; the
    consumer locks, opens, copies out, unlinks, removes the lock file, decodes. Names go over a pipe."""

    number = 0

    def __init__(self) -> None:
        super().__init__()
        resource_tracker.ensure_running()  # one for both processes, else it complains of every name ever used

    def open(self, side: int) -> None:
        super().open(side)
        import msgspec

        self.encode, self.decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder().decode

    @staticmethod
    def lock(name: str) -> str:
        return f"/dev/shm/shm_{name}_lockfile.lock"

    def send(self, array: np.ndarray) -> None:
        from multiprocessing.shared_memory import SharedMemory

        data = self.encode({"dtype": array.dtype.str, "shape": list(array.shape), "data": array.tobytes()})
        self.number += 1
        name = f"{TAG}_{self.side}_{self.number}"
        with open(self.lock(name), "wb+") as guard:
            fcntl.flock(guard, fcntl.LOCK_EX)
            memory = SharedMemory(create=True, size=len(data), name=name)
            memory.buf[: len(data)] = data
            memory.close()
            fcntl.flock(guard, fcntl.LOCK_UN)
        self.connection.send((name, len(data)))

    def receive(self) -> np.ndarray:
        from multiprocessing.shared_memory import SharedMemory

        name, size = self.connection.recv()
        with open(self.lock(name), "rb+") as guard:
            fcntl.flock(guard, fcntl.LOCK_EX)
            memory = SharedMemory(name=name)
            data = bytes(memory.buf[:size])
            memory.close()
            memory.unlink()
            fcntl.flock(guard, fcntl.LOCK_UN)
        os.remove(self.lock(name))
        fields = self.decode(data)
        return np.frombuffer(fields["data"], fields["dtype"]).reshape(fields["shape"])


class Threaded(Peer):
    """No descriptor to watch: a thread waits and hands over."""

    modes = ("block", "asyncio")

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.thread = ThreadPoolExecutor(1)

    async def areceive(self) -> np.ndarray:
        return await self.loop.run_in_executor(self.thread, self.receive)


class Iceoryx(Threaded):
    """iceoryx2, publish-subscribe with an event per record."""

    polls = False

    def open(self, side: int) -> None:
        import iceoryx2 as iox

        iox.set_log_level(iox.LogLevel.Error)
        self.node = iox.NodeBuilder.new().create(iox.ServiceType.Ipc)
        out, into = self._service(iox, side), self._service(iox, 1 - side)
        strategy = iox.BackpressureStrategy.RetryUntilDelivered
        self.publisher = out.publisher_builder().initial_max_slice_len(16 * MB).backpressure_strategy(strategy).create()
        self.subscriber = into.subscriber_builder().create()
        self.notifier = self._event(iox, side).notifier_builder().create()
        self.listener = self._event(iox, 1 - side).listener_builder().create()

    def _service(self, iox: Any, direction: int) -> Any:
        builder = self.node.service_builder(iox.ServiceName.new(f"{TAG}/d{direction}"))
        builder = builder.publish_subscribe(iox.Slice[ctypes.c_uint8]).enable_safe_overflow(False)
        builder = builder.subscriber_max_buffer_size(4).subscriber_max_borrowed_samples(2)
        return builder.payload_alignment(iox.Alignment.new(64)).open_or_create()

    def _event(self, iox: Any, direction: int) -> Any:
        return self.node.service_builder(iox.ServiceName.new(f"{TAG}/e{direction}")).event().open_or_create()

    def send(self, array: np.ndarray) -> None:
        sample = self.publisher.loan_slice_uninit(array.nbytes)
        np.copyto(np.frombuffer(sample.payload().as_memory_view(), np.uint8), array)
        sample.assume_init().send()
        if not self.polls:
            self.notifier.notify()

    def receive(self) -> np.ndarray:
        while (sample := self.subscriber.receive()) is None:
            if not self.polls:
                self.listener.blocking_wait()
        self.sample = sample
        return np.frombuffer(sample.payload().as_memory_view(), np.uint8)

    def release(self) -> None:
        self.sample.delete()
        self.sample = None


class IceoryxPoll(Iceoryx):
    """The same with a consumer that never sleeps."""

    modes = ("block",)
    polls = True


class MessageQueue(Threaded):
    """vLLM's shared-memory broadcast queue, its own file read from an unpacked wheel with the heavy imports stubbed."""

    source = ""

    def __init__(self) -> None:
        self.handles = [FORK.Pipe(), FORK.Pipe()]

    def open(self, side: int) -> None:
        module = _load_message_queue(self.source)
        self.out = module.MessageQueue(1, 1, max_chunk_bytes=24 * MB, max_chunks=10)
        self.handles[side][0].send(pickle.dumps(self.out.handle.__dict__))
        handle = module.Handle(**pickle.loads(self.handles[1 - side][1].recv()))
        self.into = module.MessageQueue.create_from_handle(handle, 0)
        for queue in (self.out, self.into) if side == 0 else (self.into, self.out):
            queue.wait_until_ready()

    def send(self, array: np.ndarray) -> None:
        self.out.enqueue(array)

    def receive(self) -> np.ndarray:
        return self.into.dequeue()


def _load_message_queue(source: str) -> Any:
    def stub(name: str, **contents: object) -> types.ModuleType:
        module = types.ModuleType(name)
        module.__dict__.update(contents)
        sys.modules[name] = module
        return module

    class Filled:
        def __init__(self, buffer: Any) -> None:
            self.buffer = buffer

        def fill_(self, value: int) -> None:
            np.frombuffer(self.buffer, np.uint8)[:] = value

    def path(kind: str) -> Any:
        counter = iter(range(1 << 20))
        return lambda: f"{kind}://{tempfile.gettempdir()}/{TAG}_{os.getpid()}_{next(counter)}"

    torch = stub("torch", frombuffer=lambda b, dtype=None: Filled(b), uint8=None, Tensor=type("Tensor", (), {}))
    torch.distributed = stub("torch.distributed", ProcessGroup=object)
    envs = stub("vllm.envs", VLLM_USE_SPINLOOP_EXT=False, VLLM_RINGBUFFER_WARNING_INTERVAL=60)
    stub("vllm", envs=envs)
    stub("vllm.distributed")
    stub("vllm.distributed.utils", StatelessProcessGroup=object, sched_yield=os.sched_yield)
    stub("vllm.logger", init_logger=logging.getLogger)
    stub("vllm.platforms", current_platform=None)
    stub("vllm.utils")
    stub("vllm.utils.cpu_resource_utils", check_cgroup_memory_available=lambda *_: None)
    stub(
        "vllm.utils.network_utils",
        get_ip=lambda: "127.0.0.1",
        get_open_zmq_inproc_path=path("inproc"),
        get_open_zmq_ipc_path=path("ipc"),
        is_valid_ipv6_address=lambda _: False,
    )
    spec = importlib.util.spec_from_file_location(
        "vllm_message_queue", f"{source}/vllm/distributed/device_communicators/shm_broadcast.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


PEERS: dict[str, type[Peer]] = {
    "omnirt": Ring,
    "omnirt with codec": RingCodec,
    "omnirt spinning": RingSpin,
    "omnirt adaptive": RingAdaptive,
    "mp.Pipe": Pipe,
    "pyzmq ipc": Zmq,
    "iceoryx2 event": Iceoryx,
    "iceoryx2 poll": IceoryxPoll,
    "segment per payload": SegmentPerPayload,
    "vLLM MessageQueue": MessageQueue,
}
NEEDS = {"pyzmq ipc": "zmq", "iceoryx2 event": "iceoryx2", "iceoryx2 poll": "iceoryx2", "vLLM MessageQueue": "zmq"}


def missing(name: str, vllm_source: str) -> str:
    """Why a peer cannot be measured here, or empty."""
    module = NEEDS.get(name, "")
    if module and importlib.util.find_spec(module) is None:
        return f"package {module} is not installed (in the checkout: pip install '.[bench]')"
    if name == "vLLM MessageQueue" and not vllm_source:
        return "no --vllm-source (folder of an unpacked vllm wheel)"
    return ""


def sweep_names() -> None:
    """Remove what killed or daemonic peers left under this run's tag."""
    for folder in ("/dev/shm", tempfile.gettempdir()):
        for name in os.listdir(folder):
            if TAG + "_" in name:
                path = f"{folder}/{name}"
                with contextlib.suppress(OSError):
                    shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)
