"""A recording in any container the codec library reads, as mono samples of one rate, a step at a time.

Invariants: a step decodes at most one piece of `PIECE_S` and looks at a bounded number of packets, so a thread is
never held for a whole file; decoding stops at the limit, whatever the headers promise. Everything here blocks: run it
on a thread.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from omnirt.gateway.codec_library import CODECS, library, open_recording

Samples = NDArray[np.int16]

RATE = 16_000
"""What those that recognise speech hear."""
PIECE_S = 15
PIECE = PIECE_S * RATE
ACCEPTED = "wav, mp3, flac, ogg (opus, vorbis), m4a, aac, webm, mp4"
TRUSTED_LENGTH = ("mov", "matroska", "flac", "ogg")
"""Containers that say how long they are rather than have it estimated."""
PACKETS_PER_STEP = 1000
RATE_MIN, RATE_MAX = 2_000, 768_000
"""Of what is decoded: below, a few bytes would become minutes."""
WAV_OPEN_SIZES = 0x7FFF0000
"""A data size from here up stands for "not known yet"."""
MICROSECONDS = 1_000_000


class UnreadableError(Exception):
    """The recording cannot be used; the text says why, as the end of "The recording ..."."""


class Decoder:
    """Call `step` until it gives None. One thread at a time; `stop` may come from another one."""

    def __init__(self, file: BinaryIO, seconds_max: float, rate: int = RATE) -> None:
        self._file = file
        self._rate = rate
        self._piece = PIECE_S * rate
        self._seconds_max = seconds_max
        self._packets: Iterator[Any] | None = None
        self._container: Any = None
        self._stream: Any = None
        self._resampler: Any = None
        self._shape: tuple[str, str, int] | None = None
        self._held: list[Samples] = []
        self._held_samples = 0
        self._made = 0
        self._good = self._bad = 0
        self._over = self._stopped = False

    def step(self) -> Samples | None:
        """Up to a piece more; empty when there is none yet; None at the end. Raises UnreadableError."""
        if self._packets is None:
            self._open()
        assert self._packets is not None
        for _ in range(PACKETS_PER_STEP):
            if self._held_samples >= self._piece or self._over or self._stopped:
                break
            self._packet()
        if self._held_samples >= self._piece or self._over:
            return self._take()
        return np.zeros(0, np.int16)

    def stop(self) -> None:
        """Let a step that runs end soon."""
        self._stopped = True

    def _open(self) -> None:
        try:
            self._container = open_recording(self._file)
        except (library().FFmpegError, ValueError) as error:
            raise UnreadableError(f"is in no container that can be read here; accepted: {ACCEPTED}.") from error
        if not self._container.streams.audio:
            raise UnreadableError(f"has no audio track; accepted: {ACCEPTED}.")
        self._stream = self._container.streams.audio[0]
        codec = self._stream.codec_context
        if codec is None or codec.name not in CODECS:
            raise UnreadableError(f"has a codec that is not supported here; accepted: {ACCEPTED}.")
        self._stream.thread_type = "NONE"
        self._check_promise()
        self._packets = self._container.demux()

    def _check_promise(self) -> None:
        """Refuse at once what says itself that it is too long."""
        name, length = self._container.format.name, self._container.duration
        if length and any(part in TRUSTED_LENGTH for part in name.split(",")):
            seconds = length / MICROSECONDS
            if seconds > self._seconds_max + 1:
                raise self._too_long(f"is {seconds:.0f} s long")

    def _packet(self) -> None:
        av = library()
        assert self._packets is not None
        try:
            packet = next(self._packets, None)
        except (av.FFmpegError, ValueError):  # the rest cannot be found any more
            self._bad += 1
            packet = None
        if packet is None:
            self._finish()
        elif packet.stream_index == self._stream.index:
            self._decode(packet)

    def _decode(self, packet: Any) -> None:
        av = library()
        try:
            frames = self._stream.decode(packet)
            self._good += 1
        except (av.FFmpegError, ValueError):  # a damaged packet, or what is left of one at a cut
            self._bad += 1
            return
        for frame in frames:
            self._frame(frame)

    def _frame(self, frame: Any) -> None:
        av = library()
        if not RATE_MIN <= frame.sample_rate <= RATE_MAX:
            raise UnreadableError(f"has {frame.sample_rate} samples a second; {RATE_MIN} to {RATE_MAX} can be read.")
        shape = (frame.format.name, frame.layout.name, frame.sample_rate)
        if shape != self._shape:  # also in the middle, where recordings were joined
            self._drain()
            self._shape = shape
            self._resampler = av.AudioResampler(format="s16", layout="mono", rate=self._rate)
        frame.pts = None  # gaps are not filled: what was not recorded is not silence
        self._resample(frame)

    def _drain(self) -> None:
        if self._resampler is not None:
            self._resample(None)
            self._resampler = None

    def _resample(self, frame: Any) -> None:
        try:
            resampled = self._resampler.resample(frame)
        except (library().FFmpegError, ValueError) as error:
            raise UnreadableError("is damaged: it names channels or a rate that cannot be.") from error
        for part in resampled:
            self._keep(part)

    def _keep(self, frame: Any) -> None:
        samples: Samples = frame.to_ndarray().reshape(-1)
        self._made += samples.size
        if self._made > self._seconds_max * self._rate:
            raise self._too_long("is too long")
        self._held.append(samples)
        self._held_samples += samples.size

    def _finish(self) -> None:
        """The end: what decoder and resampler still hold, and whether it was a recording at all."""
        self._over = True
        if self._good:
            self._drain()
        if self._bad > self._good:
            raise UnreadableError(f"is damaged: {self._bad} of {self._bad + self._good} packets cannot be decoded.")
        if not self._made:
            raise UnreadableError("holds no audio.")

    def _take(self) -> Samples | None:
        if not self._held_samples:
            return None
        samples = self._held[0] if len(self._held) == 1 else np.concatenate(self._held)
        piece, rest = samples[: self._piece], samples[self._piece :]
        self._held = [rest] if rest.size else []
        self._held_samples = rest.size
        return piece.copy() if rest.size else piece

    def _too_long(self, what: str) -> UnreadableError:
        return UnreadableError(f"{what}; the limit is {self._seconds_max:g} s.")


def cut_off(data: bytes) -> int:
    """How many bytes a WAV file lacks of what its header promises; 0 for other containers and for open sizes."""
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        return 0
    at = 12
    while at + 8 <= len(data):
        name, size = struct.unpack_from("<4sI", data, at)
        if name == b"data":
            return max(0, size - (len(data) - at - 8)) if size < WAV_OPEN_SIZES else 0
        at += 8 + size + size % 2
    return 0
