"""The decoder with kernels: a graph for each size of call, captured at the start; nothing in `run` waits.

    host buffer -> inputs -> graph -> samples -> (a stream of its own) host buffer, event

A call's samples travel beside whatever follows on the current stream; only the next call waits, on the device, until
they have left. Buffers of the host are made at the start; a call holds one until its samples are taken.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from omnirt.actors.engines.codec.bucket import Bucket, Inputs, Memory, Slots, Step
from omnirt.actors.engines.codec.form import Done, Result, Row, Snapshot
from omnirt.actors.engines.codec.memory import FUSED_CHANNELS, sizes_for
from omnirt.actors.engines.codec.packed import PackedDecoder
from omnirt.actors.engines.codec.places import count, places
from omnirt.actors.engines.codec.rounds import Sizes
from omnirt.kernels.codec_layout import CodecShape

CALL_MS = 0.5
FRAME_MS = 0.0133
"""What a call takes on an H200, and each frame of each of its rows."""
COMPILERS = 16
HOST_BUFFERS = 8
"""Made at the start: calls whose samples were not taken yet. A call beyond them makes another, which takes a while."""


class Host(NamedTuple):
    inputs: Tensor
    samples: Tensor
    numbers: np.ndarray
    """The inputs once more."""


class KernelForm:
    def __init__(
        self,
        s: CodecShape,
        weights: Mapping[str, np.ndarray],
        slots: int,
        device: str,
        kind: torch.dtype = torch.bfloat16,
    ) -> None:
        """On a device other than a GPU the kernels must be interpreted."""
        sizes = sizes_for(slots)
        self.sizes = Sizes(sizes, CALL_MS, FRAME_MS)
        self.shape, self._on_gpu, self._spare = s, device.startswith("cuda"), slots
        self._frames = max(size.rows * size.frames for size in sizes)
        self._inputs = max(Inputs(size, s.books).count for size in sizes)
        self._slots = Slots.make(s, slots, device, kind)
        numbers = max(count(places(s, size, FUSED_CHANNELS), size.rows) for size in sizes)
        self._memory = Memory(
            torch.zeros(self._inputs, device=device, dtype=torch.int32),
            torch.zeros(numbers, device=device, dtype=kind),
            torch.zeros(self._frames * s.samples, device=device),
        )
        packed = PackedDecoder(s, weights, device, kind)
        self.buckets = [Bucket(packed, self._slots, size, self._memory) for size in sizes]
        if self._on_gpu:
            self._compile(device)
        self._runs = [self._captured(bucket) for bucket in self.buckets]
        self._hosts = deque(self._host() for _ in range(HOST_BUFFERS))
        self._unheard: deque[Pending] = deque()
        if self._on_gpu:
            self._copies = torch.cuda.Stream(device)
            self._copied = torch.cuda.Event()

    def clear(self, slot: int) -> None:
        self._slots.positions[slot].zero_()

    def run(self, size: int, rows: list[Row], *, heard: bool) -> Result:
        while self._unheard and self._unheard[0].ready():
            self._unheard.popleft().rows()
        bucket = self.buckets[size]
        host = self._hosts.popleft() if self._hosts else self._host()
        frames = self._fill(host, bucket, rows)
        lengths = [len(row.codes) for row in rows]
        used = bucket.inputs.count
        if not self._on_gpu:
            self._memory.inputs[:used].copy_(host.inputs[:used])
            bucket.run()
            self._hosts.append(host)
            return Done(_cut(self._memory.samples.numpy().copy(), frames, lengths, self.shape.samples))
        stream = torch.cuda.current_stream()
        stream.wait_event(self._copied)
        self._memory.inputs[:used].copy_(host.inputs[:used], non_blocking=True)
        self._runs[size]()
        event = torch.cuda.Event()
        event.record(stream)
        pending = Pending(self, host, event, frames, lengths if heard else [])
        if heard:
            self._read_back(pending, len(rows) * frames * self.shape.samples)
        else:
            self._unheard.append(pending)
        return pending

    def snapshot(self, slot: int, position: int) -> Snapshot:
        state = self._slots
        return Snapshot(
            position,
            {
                "tails": state.tails[slot].clone(),
                "keys": state.cache.keys[:, slot].clone(),
                "values": state.cache.values[:, slot].clone(),
            },
        )

    def restore(self, slot: int, snapshot: Snapshot) -> None:
        state, kept = self._slots, snapshot.tensors
        state.positions[slot].fill_(snapshot.position)
        state.tails[slot].copy_(kept["tails"])
        state.cache.keys[:, slot].copy_(kept["keys"])
        state.cache.values[:, slot].copy_(kept["values"])

    def give_back(self, host: Host) -> None:
        """A call's samples were taken."""
        self._hosts.append(host)

    # ------------------------------------------------------------

    def _fill(self, host: Host, bucket: Bucket, rows: list[Row]) -> int:
        """Gives the frames that the device decodes of each row."""
        live, slots, lengths, codes = bucket.inputs.parts(host.numbers)
        frames = max(len(row.codes) for row in rows) if bucket.live else bucket.size.frames
        live[:] = len(rows), frames
        slots[len(rows) :] = self._spare
        lengths[len(rows) :] = 0
        codes[:, :frames] = 0
        for i, row in enumerate(rows):
            slots[i], lengths[i] = row.slot, len(row.codes)
            codes[i, : len(row.codes)] = row.codes
        return frames

    def _read_back(self, pending: Pending, numbers: int) -> None:
        self._copies.wait_event(pending.event)
        with torch.cuda.stream(self._copies):
            pending.host.samples[:numbers].copy_(self._memory.samples[:numbers], non_blocking=True)
        pending.event = self._copied = torch.cuda.Event()
        self._copied.record(self._copies)

    def _host(self) -> Host:
        inputs = torch.zeros(self._inputs, dtype=torch.int32, pin_memory=self._on_gpu)
        samples = torch.zeros(self._frames * self.shape.samples, pin_memory=self._on_gpu)
        return Host(inputs, samples, inputs.numpy())

    def _compile(self, device: str) -> None:
        """Each kernel once (for rows of length 0), on several threads: most of a start that finds none compiled."""
        distinct = {step.key: step for bucket in self.buckets for step in bucket.steps}

        def run(step: Step) -> None:
            with torch.cuda.device(device):
                step.run(step.tile)

        with ThreadPoolExecutor(min(COMPILERS, os.cpu_count() or 1)) as pool:
            for _ in pool.map(run, distinct.values()):
                pass
        torch.cuda.synchronize()

    def _captured(self, bucket: Bucket) -> Callable[[], None]:
        if not self._on_gpu:
            return bucket.run
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            bucket.run()  # compiles
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            bucket.run()
        return graph.replay


class Pending:
    def __init__(self, form: KernelForm, host: Host, event: torch.cuda.Event, frames: int, lengths: list[int]) -> None:
        self.host, self.event = host, event
        self._form, self._frames, self._lengths = form, frames, lengths

    def ready(self) -> bool:
        return self.event.query()

    def rows(self) -> list[np.ndarray]:
        self.event.synchronize()
        self._form.give_back(self.host)
        return _cut(self.host.samples.numpy(), self._frames, self._lengths, self._form.shape.samples)


def _cut(samples: np.ndarray, frames: int, lengths: list[int], samples_per_frame: int) -> list[np.ndarray]:
    """Rows lie one after the other, each `frames` long, of which its own length counts."""
    row = frames * samples_per_frame
    return [samples[i * row : i * row + length * samples_per_frame] for i, length in enumerate(lengths)]
