"""The acoustic network and the reading of words. The only file that runs onnxruntime and imports the package."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from omnirt.actors.models.hibari.frames import Spectra
from omnirt.actors.models.hibari.weights import ACOUSTIC, UNKNOWN_WORDS, assets, phoneme_ids, verified

NATIVE_SPEED_MIN = 0.5
NATIVE_SPEED_MAX = 1.25
"""What is asked of the network. It keeps a least length for each sound, so above 1.0 it shortens by less than it should
(1.7 at 2.0) and slurs; what is missing to the speed asked for is made by the decoder, exactly."""


def session(path: Path) -> Any:
    """An onnxruntime session on the caller's thread, with no thread of its own to wake.

    One thread on every machine and in every placement: more divide the work by their number, sums are rounded in
    another order, and the quantised layers turn that into differences of up to 1 % of full scale. A sentence takes a
    hundredth of its duration; for more speech at once there are replicas.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


class Network:
    """Phoneme ids to frames."""

    def __init__(self) -> None:
        folder = assets()
        self._ids = phoneme_ids(folder)
        self._session = session(verified(folder / ACOUSTIC))

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
    g2p = G2P(oov=OOV(str(path), session(path)))
    return lambda text: str(g2p(text, normalize_text=False))
