"""The codec library (PyAV, FFmpeg) as it is let near what strangers send: few containers and codecs, no large memory.

A file of a few kilobytes may claim a table of a hundred million samples, and the library makes room for it before
anything is decoded (measured: 2.7 KB took 2.4 GB and 18 s). So one allocation is capped, for the whole process; the
largest that an hour of audio needs is about 10 MB. Playlists and the like, which make the library fetch what they name,
are not among the containers, and a container may not open anything else.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Any, BinaryIO

from omnirt.errors import Unsupported
from omnirt.extras import extra

ALLOCATION_MAX = 64 << 20
STREAMS_MAX = 16
CONTAINERS = "wav,w64,aiff,caf,au,mp3,flac,ogg,mov,matroska,webm,aac,amr,asf,avi,mpegts"
CODECS = (
    "aac", "aac_latm", "ac3", "eac3", "alac", "amrnb", "amrwb", "flac", "mp1float", "mp2float", "mp3float", "mp3",
    "mp2", "opus", "libopus", "vorbis", "libvorbis", "wmav1", "wmav2", "gsm", "gsm_ms", "speex", "adpcm_ima_wav",
    "adpcm_ms", "adpcm_ima_qt", "pcm_alaw", "pcm_mulaw", "pcm_u8", "pcm_s8", "pcm_s16le", "pcm_s16be", "pcm_s24le",
    "pcm_s24be", "pcm_s32le", "pcm_s32be", "pcm_f32le", "pcm_f32be", "pcm_f64le", "pcm_f64be",
)  # fmt: skip


def open_recording(file: BinaryIO) -> Any:
    """A container to read audio from. Raises what the library raises, and PermissionError for a reference."""
    options = {"format_whitelist": CONTAINERS, "codec_whitelist": ",".join(CODECS), "max_streams": str(STREAMS_MAX)}
    return library().open(file, "r", container_options=options, metadata_errors="ignore", io_open=_refuse)


@functools.cache
def library() -> Any:
    """Imported on first use, and capped."""
    try:
        import av
    except ImportError as error:
        raise Unsupported(f"Recordings need the codec library av; {extra('speech')}") from error
    _cap()
    return av


def _cap() -> None:
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.rpartition(" ")[2]
        if "/libavutil" in path:
            ctypes.CDLL(path).av_max_alloc(ctypes.c_size_t(ALLOCATION_MAX))
            return


def _refuse(url: str, flags: int, options: dict[str, str]) -> Any:
    raise PermissionError("a recording may not refer to other files")
