"""Recordings as clients send them, made for tests: any container and codec, and files that claim what is not there."""

from __future__ import annotations

import io
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omnirt.gateway.codec_library import library
from omnirt.gateway.media import wav_header

HERTZ = 440.0


def tone_of(seconds: float, rate: int) -> NDArray[np.int16]:
    at = np.arange(round(seconds * rate)) / rate
    return (12_000 * np.sin(2 * np.pi * HERTZ * at)).astype(np.int16)


def wav(seconds: float = 1.0, rate: int = 16_000, data_bytes: int | None = -1) -> bytes:
    """A tone. `data_bytes`: what the header says (None for an open size), if not the truth."""
    samples = tone_of(seconds, rate)
    return wav_header(rate, samples.nbytes if data_bytes == -1 else data_bytes) + samples.tobytes()


def recorded(
    container: str, codec: str, seconds: float = 1.0, rate: int = 48_000, layout: str = "mono", picture: bool = False
) -> bytes:
    """A tone in `container`. `picture`: with a video track beside it."""
    return encoded(tone_of(seconds, rate), rate, container, codec, layout, picture)


def encoded(
    samples: NDArray[np.int16], rate: int, container: str, codec: str, layout: str = "mono", picture: bool = False
) -> bytes:
    """The same of any mono samples."""
    av = library()
    sink = io.BytesIO()
    with av.open(sink, "w", format=container) as out:
        film = _film_stream(out) if picture else None
        stream: Any = out.add_stream(codec, rate=rate, layout=layout)
        if film is not None:
            _film(out, film, samples.size / rate)
        for start in range(0, samples.size, rate):
            packed = np.repeat(samples[start : start + rate], stream.codec_context.channels).reshape(1, -1)
            frame = av.AudioFrame.from_ndarray(packed, format="s16", layout=layout)
            frame.sample_rate, frame.pts = rate, start
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    return sink.getvalue()


def table_bomb(samples: int) -> bytes:
    """An m4a of a few kilobytes whose index claims to hold `samples`."""
    data = bytearray(recorded("ipod", "aac", 5.0))
    for name, values in ((b"stsz", (1, samples)), (b"stsc", (1, 1, samples, 1)), (b"stts", (1, samples, 1024))):
        at = data.index(name) + 8  # after the name, the version and the flags
        struct.pack_into(f">{len(values)}I", data, at, *values)
    return bytes(data)


def _film_stream(out: Any) -> Any:
    stream = out.add_stream("mpeg4" if "mp4" in out.format.name else "libvpx", rate=10)
    stream.width = stream.height = 64
    stream.pix_fmt = "yuv420p"
    return stream


def _film(out: Any, stream: Any, seconds: float) -> None:
    av = library()
    for index in range(round(seconds * 10)):
        frame = av.VideoFrame.from_ndarray(np.full((64, 64, 3), index % 255, np.uint8))
        frame.pts = index
        out.mux(stream.encode(frame))
    out.mux(stream.encode(None))
