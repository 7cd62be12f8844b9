"""The acoustic network and the reading of words. The only file that runs onnxruntime and imports the package."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from omnirt.actors.models.hibari.frames import Spectra
from omnirt.actors.models.hibari.weights import ACOUSTIC, UNKNOWN_WORDS, assets, phoneme_ids, verified

NATIVE_SPEED_MIN = 0.25
NATIVE_SPEED_MAX = 1.0
"""The network slows down well. Asked to be faster it shortens by less than it should (each sound keeps a least length:
at 2.0 by a factor of 1.7), so faster speech is made by the decoder, exactly."""


def session(path: Path, threads: int) -> Any:
    """An onnxruntime session whose threads sleep when there is nothing to do."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


class Network:
    """Phoneme ids to frames."""

    def __init__(self, threads: int) -> None:
        folder = assets()
        self._ids = phoneme_ids(folder)
        self._session = session(verified(folder / ACOUSTIC), threads)

    def spectra(self, phonemes: str, speed: float) -> Spectra:
        """The frames of one clause. `speed` within the native range."""
        ids = [0, *(self._ids[char] for char in phonemes if char in self._ids), 0]
        feeds = {"ids": np.asarray([ids], np.int64), "speed": np.asarray([speed], np.float32)}
        return Spectra(*(output[0] for output in self._session.run(None, feeds)))


def reader() -> Callable[[str], str]:
    """Words (normalised text) to phonemes in the network's alphabet."""
    from hibari.g2p import G2P
    from hibari.g2p.oov import OOV

    path = verified(assets() / UNKNOWN_WORDS)
    g2p = G2P(oov=OOV(str(path), session(path, 1)))
    return lambda text: str(g2p(text, normalize_text=False))
