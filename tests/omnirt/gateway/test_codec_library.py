"""What the codec library is not allowed to do. See also test_recording."""

import io
import socket

import pytest

from omnirt.gateway.codec_library import library, open_recording
from omnirt.testing.recordings import wav


def test_a_recording_opens():
    assert open_recording(io.BytesIO(wav())).format.name == "wav"


@pytest.mark.parametrize("inner", ["http://127.0.0.1:{port}/x.ts", "/etc/hostname"])
def test_a_playlist_is_refused_and_nothing_it_names_is_opened(inner):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        name = inner.format(port=listener.getsockname()[1])
        for text in (
            f"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\n{name}\n#EXT-X-ENDLIST\n",
            f"ffconcat\nfile {name}\n",
        ):
            with pytest.raises((library().FFmpegError, ValueError)):
                open_recording(io.BytesIO(text.encode()))
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_a_large_allocation_is_refused():
    """The cap is the process's: a frame larger than it cannot be made."""
    with pytest.raises((library().FFmpegError, MemoryError, ValueError)):
        library().AudioFrame(format="s16", layout="mono", samples=100 << 20)
