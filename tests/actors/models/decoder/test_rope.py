import math

import numpy as np
import pytest

from omnirt.actors.models.decoder.config import Rope
from omnirt.actors.models.decoder.rope import inverse_frequencies


def test_plain_frequencies_fall_by_equal_factors():
    found = inverse_frequencies(Rope(10000.0), 8)
    np.testing.assert_allclose(found, [1.0, 0.1, 0.01, 0.001], rtol=1e-6)


def test_linear_scaling_slows_all_alike():
    plain, slow = inverse_frequencies(Rope(10000.0), 64), inverse_frequencies(Rope(10000.0, "linear", 4.0), 64)
    np.testing.assert_allclose(slow, plain / 4, rtol=1e-6)


def test_llama3_scaling_keeps_short_waves_and_slows_long_ones():
    rope = Rope(500000.0, "llama3", 8.0, 1.0, 4.0, 8192)
    plain, found = inverse_frequencies(Rope(500000.0), 128), inverse_frequencies(rope, 128)
    waves = 2 * math.pi / plain
    np.testing.assert_array_equal(found[waves < 2048], plain[waves < 2048])
    np.testing.assert_allclose(found[waves > 8192], plain[waves > 8192] / 8, rtol=1e-6)
    between = (waves > 2048) & (waves < 8192)
    assert between.any()
    assert np.all((found[between] > plain[between] / 8) & (found[between] < plain[between]))
    assert np.all(np.diff(found) < 0)


@pytest.mark.parametrize("head_dim", [32, 64, 128])
def test_frequencies_are_those_of_transformers(head_dim):
    torch = pytest.importorskip("torch")
    expected = 1.0 / (10000.0 ** (torch.arange(0, head_dim, 2, dtype=torch.float) / head_dim))
    np.testing.assert_allclose(inverse_frequencies(Rope(10000.0), head_dim), expected.numpy(), rtol=2e-7)
