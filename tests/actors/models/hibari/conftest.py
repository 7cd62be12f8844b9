"""Frames to decode, without a network: random ones, and what the package makes of a sentence."""

import numpy as np
import pytest

from omnirt.actors.models.hibari.frames import BINS, Spectra


@pytest.fixture(scope="session")
def random_spectra():
    """(frames, seed) -> spectra with voiced and unvoiced stretches."""

    def make(frames, seed=0):
        random = np.random.default_rng(seed)
        parts = [(random.standard_normal((BINS, frames)) - 2).astype(np.float32) for _ in range(5)]
        f0 = 180 + 60 * np.sin(np.arange(frames) * 0.1 + seed)
        f0[(np.arange(frames) // 7) % 3 == 1] = 0
        return Spectra(*parts, f0.astype(np.float32))

    return make


@pytest.fixture(scope="session")
def spoken():
    """The frames of a real sentence, as the network gave them."""
    from omnirt.actors.models.hibari.network import Network, reader

    return Network().spectra(reader()("She opened the window, and listened to the rain."), 1.0)
