"""The network that judges windows of sound, and its file, checked before use. The only file that runs it.

    window i:  the last CONTEXT samples of window i - 1, then its own WINDOW samples      [576] float32
    memory:    h, c of its recurrent layer                                                [1, 1, 128] each

Windows that come one by one give the same bits as many at once, so how a recording is cut changes nothing.
"""

from __future__ import annotations

import hashlib
from importlib import util
from pathlib import Path

import numpy as np

from omnirt.actors.models.hibari.network import session
from omnirt.errors import ConfigError

RATE = 16_000
WINDOW = 512
CONTEXT = 64
WIDTH = 128
WINDOWS_MAX = 128
"""Judged by one call; more would only take more memory (0.06 ms a window here, 0.13 ms for one alone)."""
PACKAGE = "faster-whisper"
FILE = "silero_vad_v6.onnx"
SHA256 = "4cbf549b8326f60f80f2536d9eefeb450a9abe83365a098031c89719f1be17d2"


def weights() -> Path:
    """The file, once its bytes are what SHA256 says. Raises ConfigError."""
    found = util.find_spec("faster_whisper")
    if found is None or found.origin is None:
        raise ConfigError(f"voice activity needs the package {PACKAGE}; install it: pip install {PACKAGE}")
    path = Path(found.origin).parent / "assets" / FILE
    if not path.is_file():
        raise ConfigError(f"{path} is missing; pip install --force-reinstall {PACKAGE}")
    actual = hashlib.sha256(path.read_bytes()).hexdigest()
    if actual != SHA256:
        raise ConfigError(f"{path} is not the file that was tested (sha256 {actual}); {PACKAGE} of another version?")
    return path


class Memory:
    """What the network keeps of one recording between two windows."""

    __slots__ = ("c", "context", "h")

    def __init__(self) -> None:
        self.h = np.zeros((1, 1, WIDTH), np.float32)
        self.c = np.zeros((1, 1, WIDTH), np.float32)
        self.context = np.zeros(CONTEXT, np.float32)


class Network:
    def __init__(self) -> None:
        self._session = session(weights())

    def judge(self, samples: np.ndarray, memory: Memory) -> np.ndarray:
        """How likely each window holds speech: [N]. `samples`: [N * WINDOW] float32 in -1..1, what follows."""
        windows = samples.reshape(-1, WINDOW)
        judged = [
            self._some(windows[start : start + WINDOWS_MAX], memory) for start in range(0, len(windows), WINDOWS_MAX)
        ]
        return np.concatenate(judged) if judged else np.zeros(0, np.float32)

    def _some(self, windows: np.ndarray, memory: Memory) -> np.ndarray:
        before = np.concatenate((memory.context[None], windows[:-1, -CONTEXT:]))
        feeds = {"input": np.concatenate((before, windows), axis=1), "h": memory.h, "c": memory.c}
        likely, memory.h, memory.c = self._session.run(None, feeds)
        memory.context = windows[-1, -CONTEXT:].copy()
        return likely.reshape(-1)
