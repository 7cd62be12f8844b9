"""PCM in, encoded audio out, a piece at a time: one `Encoder` per answer, so a stream is one valid file.

Invariants: the decoded answer is as long as the PCM to within one codec frame; every piece of `pcm` and `wav` holds
whole samples; an encoder is fed from one thread at a time. The codec library (PyAV) is imported on first use, and it
releases the interpreter lock while it works.

Codecs with a priming delay start with frames that hold nothing but padding. MP3 and ADTS streams cannot say how much
to skip, so those frames are dropped: MP3 gets `lead` zeros first so that the cut falls between two frames, and its bit
reservoir is off so that no frame needs an earlier one. What remains is a fade-in shorter than a codec frame. AAC runs
at 48 kHz: half the frame time, and the cheap coder is good enough at that bit rate.
"""

from __future__ import annotations

import math
import struct
from typing import Any, Protocol

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from omnirt.errors import Unsupported
from omnirt.extras import extra

Samples = NDArray[np.int16]

WAV_UNKNOWN = 0xFFFFFFFF
MP3_DELAY = 1105
"""Samples between what LAME is fed and what a decoder gives back."""
SHORTEST_MS = 60
"""Less is padded with silence: decoders do not recognise a compressed file of one or two frames."""


class Encoder(Protocol):
    rate: int
    """Of the encoded audio, in Hz."""

    def feed(self, samples: Samples) -> bytes: ...

    def flush(self) -> bytes:
        """What is left. The encoder is finished."""
        ...


class Codec(Struct, frozen=True):
    container: str
    name: str
    rates: tuple[int, ...]
    """Rates the codec takes; empty for any. Others are resampled to the last."""
    bit_rate: int = 0
    codec_options: dict[str, str] = {}
    container_options: dict[str, str] = {}
    frame: int = 0
    """Samples per frame; 0 where it does not matter."""
    delay: int = 0
    """Priming samples that the container cannot declare."""


CODECS = {
    "mp3": Codec(
        container="mp3",
        name="libmp3lame",
        rates=(16_000, 22_050, 24_000, 44_100, 48_000),
        bit_rate=128_000,
        codec_options={"reservoir": "0", "compression_level": "7"},
        container_options={"write_xing": "0", "id3v2_version": "0"},
        frame=576,
        delay=MP3_DELAY,
    ),
    "aac": Codec(
        "adts", "aac", (48_000,), bit_rate=128_000, codec_options={"aac_coder": "fast"}, frame=1024, delay=1024
    ),
    "opus": Codec(
        "ogg", "libopus", (16_000, 24_000, 48_000), bit_rate=64_000, container_options={"page_duration": "40000"}
    ),
    # Compression level 2 is the highest with short blocks (27 ms; then 105 ms).
    "flac": Codec(
        "flac", "flac", (), codec_options={"compression_level": "2"}, container_options={"metadata_header_padding": "0"}
    ),
}


CONTENT_TYPES = {
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "aac": "audio/aac",
    "flac": "audio/flac",
    "wav": "audio/wav",
}


def encoder_for(format: str, rate: int, sample_rate: int | None = None) -> Encoder:
    """An encoder of PCM at `rate` into `format`, at `sample_rate` if that is given."""
    wanted = sample_rate or rate
    if format == "pcm":
        return PcmEncoder(rate, wanted)
    if format == "wav":
        return WavEncoder(rate, wanted)
    return CodecEncoder(CODECS[format], rate, wanted)


def content_type_of(format: str, rate: int) -> str:
    if format == "pcm":
        return f"audio/pcm;rate={rate};channels=1"
    return CONTENT_TYPES[format]


def is_cheap(format: str, rate: int, sample_rate: int | None) -> bool:
    """True where encoding is a copy, not worth a thread."""
    return format in ("pcm", "wav") and sample_rate in (None, rate)


def int16_of(samples: NDArray[Any]) -> Samples:
    """Mono samples, int16 or float in -1..1, as int16; what is too loud is clipped."""
    if samples.dtype == np.int16:
        return samples
    if samples.dtype.kind != "f":
        raise TypeError(f"PCM must be int16 or float, not {samples.dtype}")
    return np.clip(np.rint(samples * 32767.0), -32768, 32767).astype(np.int16)


def wav_header(rate: int, data_bytes: int | None) -> bytes:
    """44 bytes before mono 16-bit samples; `data_bytes` None when nobody knows yet."""
    riff, data = (WAV_UNKNOWN, WAV_UNKNOWN) if data_bytes is None else (36 + data_bytes, data_bytes)
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, rate, rate * 2, 2, 16)
    return struct.pack("<4sI4s", b"RIFF", riff, b"WAVE") + form + struct.pack("<4sI", b"data", data)


class PcmEncoder:
    """16-bit little-endian samples, resampled where asked."""

    def __init__(self, rate: int, sample_rate: int) -> None:
        self.rate = sample_rate
        self._resampler = None if rate == sample_rate else Resampler(rate, sample_rate)

    def feed(self, samples: Samples) -> bytes:
        if self._resampler is not None:
            samples = self._resampler.feed(samples)
        return samples.astype("<i2", copy=False).tobytes()

    def flush(self) -> bytes:
        return b"" if self._resampler is None else self._resampler.flush().astype("<i2", copy=False).tobytes()


class WavEncoder:
    """One header with open sizes, then samples."""

    def __init__(self, rate: int, sample_rate: int) -> None:
        self.rate = sample_rate
        self._pcm = PcmEncoder(rate, sample_rate)
        self._header = wav_header(sample_rate, None)

    def feed(self, samples: Samples) -> bytes:
        return self._take_header() + self._pcm.feed(samples)

    def flush(self) -> bytes:
        return self._take_header() + self._pcm.flush()

    def _take_header(self) -> bytes:
        header, self._header = self._header, b""
        return header


class CodecEncoder:
    """Any format of the codec library, through its own container writer."""

    def __init__(self, codec: Codec, rate: int, sample_rate: int) -> None:
        self.rate = sample_rate if not codec.rates or sample_rate in codec.rates else codec.rates[-1]
        self._input_rate = rate
        self._sink = _Sink()
        self._container: Any = _av().open(
            self._sink, "w", format=codec.container, options=dict(codec.container_options)
        )
        self._stream: Any = self._container.add_stream(codec.name, rate=self.rate, layout="mono")
        self._stream.codec_context.options = dict(codec.codec_options)
        if codec.bit_rate:
            self._stream.bit_rate = codec.bit_rate
        self._pts = 0
        frame = codec.frame * 2 if codec.name == "libmp3lame" and self.rate >= 32_000 else codec.frame
        self._stream.codec_context.thread_count = 1
        self._shortest = rate * SHORTEST_MS // 1000 if codec.delay else 1
        self._drop = math.ceil(codec.delay / frame) if codec.delay else 0
        self._lead = self._drop * frame - codec.delay

    def feed(self, samples: Samples) -> bytes:
        if self._lead:
            lead = np.zeros(math.ceil(self._lead * self._input_rate / self.rate), np.int16)
            self._lead = 0
            samples = np.concatenate((lead, samples))
        if samples.size:
            self._encode(_frame(samples, self._input_rate, self._pts))
            self._pts += samples.size
        return self._sink.take()

    def flush(self) -> bytes:
        short = self._shortest - self._pts
        padding = self.feed(np.zeros(short, np.int16)) if short > 0 else b""
        self._encode(None)
        self._container.close()
        return padding + self._sink.take()

    def _encode(self, frame: Any) -> None:
        for packet in self._stream.encode(frame):
            if self._drop:
                self._drop -= 1
            else:
                self._container.mux(packet)


class Resampler:
    """Another rate, piece by piece, without seams."""

    def __init__(self, rate: int, to_rate: int) -> None:
        self._rate = rate
        self._pts = 0
        self._resampler: Any = _av().AudioResampler(format="s16", layout="mono", rate=to_rate)

    def feed(self, samples: Samples) -> Samples:
        if not samples.size:
            return samples
        frame = _frame(samples, self._rate, self._pts)
        self._pts += samples.size
        return _joined(self._resampler.resample(frame))

    def flush(self) -> Samples:
        return _joined(self._resampler.resample(None)) if self._pts else np.zeros(0, np.int16)


class _Sink:
    """What a container writes to; without `seek`, so nothing already sent is ever changed."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def write(self, data: bytes) -> int:
        self._bytes += data
        return len(data)

    def take(self) -> bytes:
        taken = bytes(self._bytes)
        self._bytes.clear()
        return taken


def _frame(samples: Samples, rate: int, pts: int) -> Any:
    frame = _av().AudioFrame.from_ndarray(np.ascontiguousarray(samples).reshape(1, -1), format="s16", layout="mono")
    frame.sample_rate = rate
    frame.pts = pts
    return frame


def _joined(frames: list[Any]) -> Samples:
    parts = [frame.to_ndarray().reshape(-1) for frame in frames]
    return np.concatenate(parts) if parts else np.zeros(0, np.int16)


def _av() -> Any:
    try:
        import av
    except ImportError as error:
        raise Unsupported(f"This format needs the codec library av; {extra('speech')}") from error
    return av
