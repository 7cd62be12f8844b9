"""The network: its file, and windows one by one or many at once."""

import numpy as np
import pytest

from omnirt.actors.models.silero import network as module
from omnirt.actors.models.silero.network import WINDOW, Memory, Network, weights
from omnirt.errors import ConfigError


@pytest.fixture(scope="module")
def network():
    return Network()


@pytest.fixture(scope="module")
def sound():
    random = np.random.default_rng(1)
    loud = np.repeat(random.random(60) ** 4, WINDOW * 5)
    return (random.normal(0, 0.3, len(loud)) * loud).astype(np.float32)


def test_windows_one_by_one_are_judged_as_all_at_once(network, sound):
    whole = network.judge(sound, Memory())
    for size in (1, 3, 7, 128, 200):
        memory = Memory()
        parts = [network.judge(sound[at : at + size * WINDOW], memory) for at in range(0, len(sound), size * WINDOW)]
        assert np.array_equal(np.concatenate(parts), whole)


def test_likelihoods_are_between_nothing_and_one(network, sound):
    judged = network.judge(sound, Memory())
    assert judged.shape == (300,)
    assert judged.min() >= 0.0
    assert judged.max() <= 1.0


def test_no_windows_are_no_likelihoods_and_change_no_memory(network):
    memory = Memory()
    assert len(network.judge(np.zeros(0, np.float32), memory)) == 0
    assert not memory.h.any()


def test_silence_is_no_speech(network):
    assert network.judge(np.zeros(WINDOW * 50, np.float32), Memory()).max() < 0.1


def test_other_bytes_than_those_that_were_tested_are_refused(monkeypatch):
    assert weights().is_file()
    monkeypatch.setattr(module, "SHA256", "0" * 64)
    with pytest.raises(ConfigError, match="not the file that was tested"):
        weights()
